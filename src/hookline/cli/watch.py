"""`hookline watch`: follow a run, or a folder of runs, in a browser."""

from __future__ import annotations

import ipaddress
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookline.cli.common import show
from hookline.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline.report.live.alerts import Rule
    from hookline.report.live.hub import Hub

EXAMPLES = """\b
Examples:
  hookline watch runs/digits                   the page of one run, live
  hookline watch runs                          the list of all runs in a folder
  hookline watch runs --alert 'train/loss > 3' --alert nan --alert stalled --alert died
                                               tell about these, here and on the pages
  hookline watch runs --alert died --webhook https://example.com/hook --alert-file alerts.jsonl
  hookline watch runs/digits --host 0.0.0.0    also for other machines, with a token
  hookline watch runs/digits --json            the state, once, for programs
"""
#: The niceness of the server. If all cores are busy, a training comes first.
NICENESS = 10


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("watch", epilog=EXAMPLES)(run)


def run(
    folder: Annotated[Path, typer.Argument(metavar="RUN_OR_FOLDER", help="The folder of a run, or a folder of runs.")],
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, metavar="N", help="The port; 0 is any free one. Default: 7860."),
    ] = None,
    token: Annotated[
        str, typer.Option("--token", metavar="TEXT", help="The token for actions; by default a new random one.")
    ] = "",
    alert: Annotated[
        list[str] | None,
        typer.Option(
            "--alert", metavar="RULE", help="Tell about this: 'train/loss > 3', nan, stalled, died; can be repeated."
        ),
    ] = None,
    alert_file: Annotated[
        Path | None, typer.Option("--alert-file", metavar="FILE", help="Append alerts to this file, as JSON lines.")
    ] = None,
    webhook: Annotated[str, typer.Option("--webhook", metavar="URL", help="Post alerts as JSON to this address.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print what the page shows, as JSON, and end.")] = False,
) -> None:
    """Follow a run, or a folder of runs, in a browser: the page of `hookline report`, live.

    The page can ask the run to save, to validate, or to stop. Other machines can open it only with --host, and only
    with the token in the address that is shown. Ctrl-C ends the server; the runs go on.
    """
    from hookline.report.live import alerts
    from hookline.report.live.folder import Watched

    if (alert_file is not None or webhook) and not alert:
        option = "--webhook" if webhook else "--alert-file"
        raise ConfigError(f"{option} needs a rule: add --alert 'train/loss > 3', --alert nan, stalled or died")
    rules = [alerts.parse(text) for text in dict.fromkeys(alert or ())]
    watched = Watched(folder)
    if as_json:
        show(json.dumps(_state(watched), indent=2, allow_nan=False, default=str))
        return
    _require_web()
    with ExitStack() as leaving:
        from hookline.report.live.hub import Hub

        tell: list[Any] = [lambda alerted: _say(alerts.describe(alerted))]
        if alert_file is not None:
            file = alerts.AlertFile(alert_file, _say)
            leaving.callback(file.close)
            tell.append(file)
        if webhook:
            hook = alerts.Webhook(webhook, _say)
            leaving.callback(hook.close)
            tell.append(hook)
        hub = Hub(watched, alerts.Alerts(rules, tell))
        _start(hub, rules, host, port, token)


def _start(hub: Hub, rules: Sequence[Rule], host: str, port: int | None, token: str) -> None:
    from hookline.report.live import security, server
    from hookline.report.live.alerts import find_unknown
    from hookline.run.signals import describe_ignored

    if token and len(token) < security.SHORTEST:
        raise ConfigError(f"--token must have at least {security.SHORTEST} characters; leave it out for a random one")
    token = token or security.new_token()
    with server.bind(host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        number = listening.getsockname()[1]
        show(f"watching {hub.watched.given}: http://{shown}:{number}/?token={token}")
        if not security.is_loopback(host):
            show("anyone who has this address can read these runs and stop them; it is not encrypted")
            if _is_everywhere(host):
                show(f"from another machine, put the name of this one in place of {host}")
        for line in filter(None, (find_unknown(rule, hub.feeds.values()) for rule in rules)):
            show(f"note: {line}")
        _say(describe_ignored() or "Ctrl-C ends this; the runs go on")
        os.nice(NICENESS)
        server.serve(server.Server(hub, host, token), listening)


def _say(text: str) -> None:
    """Show a line at once: the output may be a file, and the server may run for days."""
    show(text)
    sys.stdout.flush()


def _is_everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _require_web() -> None:
    from importlib.util import find_spec

    for module in ("starlette", "sse_starlette", "uvicorn"):
        if find_spec(module) is None:
            raise ConfigError(f"hookline watch needs {module}, which is not installed: pip install 'hookline[web]'")


def _state(watched: Any) -> dict[str, Any]:
    """Return the data of the page: of one run everything, of a folder the list."""
    from hookline.report.live.alerts import Alerts
    from hookline.report.live.hub import Hub, list_data
    from hookline.report.live.pages import Pages

    hub = Hub(watched, Alerts([], []))
    if not watched.is_single:
        return list_data(hub)
    ((run, feed),) = hub.feeds.items()
    return Pages().of(run, feed, {"name": watched.name_of(feed.folder)})
