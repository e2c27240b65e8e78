"""`hookline compare`: show how runs differ in config and results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookline.cli.common import show
from hookline.common.escape import escaped

if TYPE_CHECKING:
    from hookline.cli.side_by_side import Blocks, Row
    from hookline.common.monitor import Monitor
    from hookline.rundir.comparison import Outcome
    from hookline.rundir.runs import Result, Run

EXAMPLES = """\b
Examples:
  hookline compare runs/digits runs/digits_lr
  hookline compare runs/* --metric 'val/*'     only these metrics; can be repeated
  hookline compare runs/* --json               output for programs
"""

NOTHING = "-"


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("compare", epilog=EXAMPLES)(run)


def run(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN", help="The folders of the runs.")],
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="NAME", help="Show only this metric or pattern; can be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show how runs differ in config and results. For a single run, show its results."""
    from hookline.rundir import comparison, runs

    found = [runs.load(folder) for folder in dict.fromkeys(folders)]
    names = comparison.select_metrics(found, metric or ())
    outcomes = [comparison.summarize(each, names) for each in found]
    differing = comparison.find_differences(found)
    if as_json:
        show(json.dumps(comparison.to_data(outcomes, differing), indent=2, allow_nan=False))
        return
    from rich.console import Console

    from hookline.cli.side_by_side import display

    blocks = {"config": config_rows(differing, len(found)), "results": list(result_rows(outcomes, names))}
    display(Console(highlight=False), titles(found), blocks)
    for remark in remarks(found, blocks):
        show(remark)


def titles(runs: Sequence[Run]) -> list[str]:
    """Return the titles of the runs: the names of their folders, or their paths if two folders have the same name."""
    from hookline.common.files import real_path

    names = [real_path(each.path).name for each in runs]
    return [escaped(name) for name in (names if len(set(names)) == len(names) else [str(each.path) for each in runs])]


def config_rows(differing: Mapping[str, Mapping[int, Any]], count: int) -> list[Row]:
    """Return one row for every key that differs."""
    from hookline.cli.side_by_side import Row

    return [
        Row(escaped(key), [_value(values[number]) if number in values else NOTHING for number in range(count)])
        for key, values in differing.items()
    ]


def _value(value: Any) -> str:
    """Return a config value in one line, as in YAML; text with line breaks or other control characters is quoted."""
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value)


def result_rows(outcomes: Sequence[Outcome], names: Sequence[str]) -> Iterator[Row]:
    """Yield rows for the length and times of the runs, then for the final and best value of every metric."""
    from hookline.cli.side_by_side import Row
    from hookline.common.durations import as_duration
    from hookline.common.monitor import Monitor
    from hookline.rundir.comparison import find_rule, find_winners

    yield Row("epochs", [str(each.epochs) for each in outcomes])
    yield Row("iterations", [str(each.iterations) for each in outcomes])
    times = {n: each.step_seconds for n, each in enumerate(outcomes) if each.step_seconds is not None}
    if times:
        total = [NOTHING if each.seconds is None else as_duration(each.seconds) for each in outcomes]
        yield Row("total step time", total)
        steps = [f"{times[n] * 1e3:.2f} ms" if n in times else NOTHING for n in range(len(outcomes))]
        yield Row("time per step", steps, find_winners(times, Monitor("time per step", "less")))
    for name in names:
        rule = find_rule(name)
        yield _results(escaped(name), [each.final.get(name) for each in outcomes], rule)
        if rule is not None:
            yield _results("  best", [each.best.get(name) for each in outcomes], rule)


def _results(label: str, results: Sequence[Result | None], rule: Monitor | None) -> Row:
    from hookline.cli.side_by_side import Row
    from hookline.common.numbers import as_number
    from hookline.rundir.comparison import find_winners

    cells = [NOTHING if each is None else f"{as_number(each.value)} at {each.step}" for each in results]
    values = {number: each.value for number, each in enumerate(results) if each is not None}
    return Row(label, cells, find_winners(values, rule) if rule is not None else set())


def remarks(runs: Sequence[Run], blocks: Blocks) -> Iterator[str]:
    """Yield the lines below the table, which explain it."""
    if any(row.marked for rows in blocks.values() for row in rows):
        yield "* best in its row"
    without = [escaped(each.path) for each in runs if not each.has_config]
    if without and len(runs) > 1:
        yield f"no config recorded in {', '.join(without)}"
    if len(runs) - len(without) > 1 and not blocks["config"]:
        yield "the configs are the same"
