"""`hookline plan`: show which hooks run at which points, without running anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hookline.cli.common import Allow, Words, load_config, show, to_the_end
from hookline.cli.errors import Traceback  # noqa: TC001  # typer reads the annotations

EXAMPLES = """\b
Examples:
  hookline plan                    the plan of the bundled digits run
  hookline plan digits.yaml        the hooks at each point: order, frequency, and reason
  hookline plan digits.yaml --tree the same as a tree, with the file and line of every method
  hookline plan digits.yaml --html plan.html
                                   the same as a picture, in one file for a browser
  hookline plan digits.yaml --json output for programs
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("plan", epilog=EXAMPLES)(to_the_end()(plan))


def plan(
    words: Words = None,
    tree: Annotated[bool, typer.Option("--tree", help="Show a tree with the file and line of every method.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Draw the plan, as one HTML file for a browser.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    allow: Allow = None,
    traceback: Traceback = False,
) -> None:
    """Show which hooks of CONFIG run at each point.

    This also shows their order, how often they run, and the reason for their order. Only the hooks are checked.
    """
    from hookline.config.builder import build_hooks
    from hookline.plan.budgets import parse_budget
    from hookline.plan.explanation import Hooks, as_data
    from hookline.plan.plan import Plan
    from hookline.runner.registration import register_all

    loaded = load_config(words)
    default_hooks, custom_hooks = build_hooks(loaded, allow=allow or ())
    budget = loaded.data.get("budget")
    compiled = Plan(_NoHost(), loaded.data.get("points"), budget=None if budget is None else parse_budget(budget))
    register_all(compiled, default_hooks, custom_hooks)
    if html is not None:
        from hookline.report.page import plan_page, write_page

        name = str(loaded.data.get("experiment_name") or (loaded.file.stem if loaded.file else "config"))
        write_page(html, plan_page(as_data(compiled), name))
        show(f"wrote {html}", error=as_json)  # what --json prints must stay JSON
    if as_json:
        show(json.dumps(as_data(compiled), indent=2))
    elif html is None:
        show(Hooks(compiled) if tree else compiled.explain())


class _NoHost:
    """The host of a plan that is only displayed."""
