"""`hookline report`: write one HTML file that shows a run, or compares several."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookline.cli.common import show
from hookline.errors import ConfigError, HooklineError
from hookline.rundir.names import PAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = """\b
Examples:
  hookline report runs/digits                 writes runs/digits/report.html
  hookline report runs                        compares all runs in a folder; writes runs/report.html
  hookline report runs/a runs/b --out compare.html
                                              compares these, in one page
  hookline report lightning_logs/version_0    a folder of another program: JSONL, CSV or TensorBoard files
  hookline report runs/digits --json          what the page shows, as data
"""
#: The name of the file, in the given folder, or, with several folders, in the working directory.
NAME = PAGE
#: The verdicts of up to this many runs are shown on the screen, too.
SHOWN = 10


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("report", epilog=EXAMPLES)(run)


def run(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="The folders of runs, or a folder with runs in it.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help=f"The file to write; by default {NAME} in the given folder, or, with several, here.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what the page shows, as JSON; write no page.")] = False,
) -> None:
    """Write one HTML file that shows a run: a verdict, curves, times, hooks, checkpoints, images, config.

    Several runs, or all runs in a folder, are compared in one page. RUN may also be a folder that another program has
    written. The file needs no network: send it by mail, or open it from the disk.
    """
    from hookline.report.page import make_page, write_page

    if as_json and out is not None:
        raise ConfigError("--json prints the data, and --out writes a page; leave out one of them")
    data = _gather(list(dict.fromkeys(folders)))
    if as_json:
        show(json.dumps(data, indent=2, allow_nan=False, default=str))
        return
    target = out if out is not None else _default_target(folders, data)
    if os.path.isdir(target):
        raise ConfigError(f"--out {target} is a folder; expected the name of a file, such as {target / NAME}")
    page = make_page(data)
    write_page(target, page)
    for entry in data["runs"][:SHOWN]:
        name = f"{entry['name']}: " if len(data["runs"]) > 1 else ""
        show(f"{name}{entry['verdict']['text']}")
        for line in (*entry["verdict"]["evidence"], entry["verdict"]["advice"]):
            if line and entry["verdict"]["kind"] != "healthy":
                show(f"  {line}")
    if (more := len(data["runs"]) - SHOWN) > 0:
        show(f"... and {more} more; the page has all {len(data['runs'])} runs")
    show(f"wrote {target} ({len(page.encode()) / 1e6:.1f} MB)")


def _default_target(folders: Sequence[Path], data: dict[str, Any]) -> Path:
    if len(folders) == 1:
        return folders[0] / NAME
    return Path(data["runs"][0]["path"]) / NAME if len(data["runs"]) == 1 else Path(NAME)


def _runs_in(folder: Path) -> list[Path]:
    """Return the runs in a folder, which may be one itself, of hookline or of another program."""
    from hookline.report.foreign import find_other_runs
    from hookline.report.gather import is_own
    from hookline.report.live.folder import find_runs

    if is_own(folder):
        return [folder]
    return [run for run in find_runs(folder) if is_own(run)] or find_other_runs(folder) or [folder]


def _without_pages(folders: Sequence[Path]) -> Sequence[Path]:
    """Leave out pages, which `runs/*` finds after runs were compared there."""
    return [folder for folder in folders if folder.suffix != ".html" or not os.path.isfile(folder)] or folders


def _gather(folders: Sequence[Path]) -> dict[str, Any]:
    """Return the data of the page. With several folders, whatever `runs/*` finds besides runs is left out."""
    from hookline.report.gather import gather, is_readable

    folders = _without_pages(folders)
    folders = list(dict.fromkeys(run for folder in folders for run in _runs_in(folder)))
    readable = [folder for folder in folders if len(folders) == 1 or is_readable(folder)]
    for folder in folders:
        if folder not in readable:
            error = HooklineError(
                f"{folder} is neither the folder of a run nor a folder with JSONL, CSV or TensorBoard files"
            )
            if not os.path.exists(folder) or not readable:
                raise ConfigError(str(error)) from None
            show(f"hookline: left out: {error}", error=True)
    return gather(*readable)
