"""`hookline compare`: show how runs differ in config and results."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookline.cli.common import show
from hookline.common.escape import escaped
from hookline.errors import ConfigError, HooklineError, exit_code_of

if TYPE_CHECKING:
    from hookline.cli.side_by_side import Row
    from hookline.common.monitor import Monitor
    from hookline.rundir.comparison import Outcome
    from hookline.rundir.leaderboard import Column
    from hookline.rundir.runs import Result, Run

EXAMPLES = """\b
Examples:
  hookline compare runs/digits runs/digits_lr        two runs side by side
  hookline compare runs --sort val/accuracy --top 10 all runs in a folder: one run per row, the best ten
  hookline compare runs/* --metric 'val/*'           only these metrics; can be repeated
  hookline compare runs/* --columns lr --columns val/loss
                                                     only these columns; can be repeated
  hookline compare runs/* --json                     output for programs
"""

NOTHING = "-"
#: At most this many runs are shown side by side, unless an option asks for rows.
FEW = 2


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("compare", epilog=EXAMPLES)(run)


def run(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="The folders of runs, or a folder with runs in it.")
    ],
    sort: Annotated[
        str, typer.Option("--sort", metavar="NAME", help="Sort by a metric, the best run first, or by a config key.")
    ] = "",
    reverse: Annotated[bool, typer.Option("--reverse", help="Sort the other way around.")] = False,
    top: Annotated[
        int | None, typer.Option("--top", min=1, metavar="N", help="Show only the first N runs after sorting.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="NAME", help="Show only this metric or pattern; can be repeated."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns", metavar="NAME", help="Show exactly these columns: metrics, config keys, patterns; repeatable."
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show all columns, even if they do not fit the screen.")] = False,
    last: Annotated[bool, typer.Option("--last", help="Use the last value of each metric, not the best one.")] = False,
    side_by_side: Annotated[
        bool, typer.Option("--side-by-side", help="Show one run per column, with final and best values.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show how runs differ in config and results.

    Two runs are shown side by side, more as one run per row. For a single run, this shows its results.
    """
    from hookline.rundir import comparison

    folders = runs_in(folders)
    in_rows = not side_by_side and (bool(sort or top or columns or every or last) or len(folders) > FEW)
    _refuse_useless(as_json, side_by_side, bool(columns or every), last and not sort and not top, reverse and not sort)
    loaded, left_out = read_runs(folders, skip_broken=in_rows)
    names = comparison.select_metrics(loaded, metric or (["*"] if columns else ()))
    by, order = None, list[str]()
    if sort or top:
        loaded, by, order = sort_runs(loaded, sort, reverse, last, top)
        names += [by.name] * (by.kind == "metric" and by.name not in names)
    outcomes = [comparison.summarize(loaded_run, names) for loaded_run in loaded]
    differing = comparison.find_differences(loaded)
    if as_json:
        problems = {str(path): str(error) for path, error in left_out.items()}
        show(json.dumps(comparison.to_data(outcomes, differing, problems), indent=2, allow_nan=False))
    else:
        if in_rows:
            lines = show_rows(outcomes, names, by.name if by else "", columns or (), every, last)
        else:
            lines = show_side_by_side(outcomes, names, differing)
        for line in [*lines, *order, *lines_on_configs(loaded, bool(differing))]:
            show_wrapped(line)
    report_left_out(left_out)


def report_left_out(left_out: Mapping[Path, HooklineError]) -> None:
    """Show the runs that could not be compared. A run that cannot be read decides about the exit code."""
    from hookline.rundir.runs import NotARunError

    for error in left_out.values():
        show(f"hookline: left out: {error}", error=True)
    broken = [error for error in left_out.values() if not isinstance(error, NotARunError)]
    if broken:
        raise typer.Exit(exit_code_of(broken[0]))


def show_wrapped(line: str) -> None:
    """Show a line; in a terminal, break it between words."""
    from rich.console import Console

    console = Console()
    show(textwrap.fill(line, console.width, break_on_hyphens=False) if console.is_terminal else line)


def _refuse_useless(as_json: bool, side_by_side: bool, chooses_columns: bool, last: bool, reverse: bool) -> None:
    """Refuse options that would do nothing."""
    view = "--json" if as_json else "--side-by-side" if side_by_side else ""
    if view and chooses_columns:
        raise ConfigError(f"{view} shows all columns; use --metric to choose the metrics, or leave out {view}")
    if view and last:
        raise ConfigError(
            f"{view} shows the last and the best values; leave out --last, or sort by it with --sort NAME"
        )
    if reverse:
        raise ConfigError("--reverse needs a column to sort by: add --sort NAME")


def runs_in(folders: Sequence[Path]) -> list[Path]:
    """Return the runs in folders of runs, each once. A run, and whatever else is given, stand for themselves."""
    from hookline.report.live.folder import find_runs
    from hookline.rundir.runs import is_run

    groups = ([folder] if is_run(folder) else find_runs(folder) or [folder] for folder in folders)
    return list(dict.fromkeys(run for group in groups for run in group))


def read_runs(folders: Sequence[Path], skip_broken: bool = False) -> tuple[list[Run], dict[Path, HooklineError]]:
    """Return the runs, and what is left out: whatever `runs/*` finds besides runs, and runs that cannot be read.

    A path that does not exist is refused, because it is a typing error.
    """
    from hookline.rundir import runs

    loaded: list[Run] = []
    left_out: dict[Path, HooklineError] = {}
    for folder in folders:
        try:
            run = runs.load(folder)
            if skip_broken:
                _ = run.metrics, run.has_config and run.config
            loaded.append(run)
        except HooklineError as error:
            if not (skip_broken or isinstance(error, runs.NotARunError)) or not os.path.lexists(folder):
                raise
            left_out[folder] = error
    if not loaded:
        raise next(iter(left_out.values()))
    return loaded, left_out


def sort_runs(
    runs: list[Run], sort: str, reverse: bool, last: bool, top: int | None
) -> tuple[list[Run], Column, list[str]]:
    """Return the runs in the order of a column, that column, and the line that describes the order."""
    from hookline.rundir import leaderboard
    from hookline.rundir.comparison import summarize

    names = list(dict.fromkeys(name for run in runs for name in run.metrics.names))
    columns = leaderboard.make_columns([summarize(run, names) for run in runs], names, last)
    by = leaderboard.find_column(sort, columns, "--sort") if sort else leaderboard.find_primary(columns)
    if by is None:
        raise ConfigError("--top needs a column to sort by, because no metric shows which run is best: add --sort NAME")
    order = leaderboard.sort_rows(by, len(runs), reverse)
    line = leaderboard.describe_order(by, reverse)
    if top is not None and top < len(order):
        line += f"; {top} of {len(order)} runs"
    return [runs[number] for number in order[:top]], by, [line]


def show_rows(
    outcomes: Sequence[Outcome], names: Sequence[str], by: str, wanted: Sequence[str], every: bool, last: bool
) -> list[str]:
    """Show one run per row, and return lines about what the table means and what it leaves out."""
    from rich.console import Console

    from hookline.cli.run_table import display
    from hookline.rundir import leaderboard

    columns = leaderboard.make_columns(outcomes, names, last)
    if wanted:
        every_key = columns | leaderboard.same_in_all(outcomes, columns)
        ranked = order = leaderboard.select_columns(wanted, every_key)
    else:
        if by and by not in columns:  # a key that is the same in all runs that are left
            columns[by] = leaderboard.same_in_all(outcomes, columns)[by]
        primary = columns[by] if by else leaderboard.find_primary(columns)
        ranked, order = leaderboard.rank_columns(columns, primary), list(columns.values())
    runs = [outcome.run for outcome in outcomes]
    missing = display(Console(highlight=False), titles(runs), ranked, order, every or bool(wanted))
    shown = [column for column in order if column in ranked and column not in missing]
    lines = ["* best in its column"] * any(column.winners for column in shown)
    metrics = [column for column in shown if column.kind == "metric"]
    if metrics and not last:
        unknown = ", ".join(escaped(column.name) for column in metrics if column.rule is None)
        lines.append(f"metrics: the best value of each run{f' (the last one of {unknown})' if unknown else ''}")
    elif metrics:
        lines.append("metrics: the last value of each run")
    if missing:
        left_out = ", ".join(escaped(column.name) for column in missing)
        lines.append(f"not shown, because the screen is too narrow: {left_out}; see --columns NAME, --all and --json")
    return lines


def show_side_by_side(
    outcomes: Sequence[Outcome], names: Sequence[str], differing: Mapping[str, Mapping[int, Any]]
) -> list[str]:
    """Show one run per column, and return the line about its marks."""
    from rich.console import Console

    from hookline.cli.side_by_side import display

    blocks = {"config": config_rows(differing, len(outcomes)), "results": list(result_rows(outcomes, names))}
    display(Console(highlight=False), titles([outcome.run for outcome in outcomes]), blocks)
    return ["* best in its row"] * any(row.marked for rows in blocks.values() for row in rows)


def titles(runs: Sequence[Run]) -> list[str]:
    """Return the titles of the runs: the names of their folders, or their paths if two folders have the same name."""
    from hookline.common.files import real_path

    names = [real_path(run.path).name for run in runs]
    return [escaped(name) for name in (names if len(set(names)) == len(names) else [str(run.path) for run in runs])]


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

    yield Row("epochs", [str(outcome.epochs) for outcome in outcomes])
    yield Row("iterations", [str(outcome.iterations) for outcome in outcomes])
    times = {n: outcome.step_seconds for n, outcome in enumerate(outcomes) if outcome.step_seconds is not None}
    if times:
        total = [NOTHING if outcome.seconds is None else as_duration(outcome.seconds) for outcome in outcomes]
        yield Row("total step time", total)
        steps = [f"{times[n] * 1e3:.2f} ms" if n in times else NOTHING for n in range(len(outcomes))]
        yield Row("time per step", steps, find_winners(times, Monitor("time per step", "less")))
    for name in names:
        rule = find_rule(name)
        yield _results(escaped(name), [outcome.final.get(name) for outcome in outcomes], rule)
        if rule is not None:
            yield _results("  best", [outcome.best.get(name) for outcome in outcomes], rule)


def _results(label: str, results: Sequence[Result | None], rule: Monitor | None) -> Row:
    from hookline.cli.side_by_side import Row
    from hookline.common.numbers import as_number
    from hookline.rundir.comparison import find_winners

    cells = [NOTHING if result is None else f"{as_number(result.value)} at {result.step}" for result in results]
    values = {number: result.value for number, result in enumerate(results) if result is not None}
    return Row(label, cells, find_winners(values, rule) if rule is not None else set())


def lines_on_configs(runs: Sequence[Run], differ: bool) -> Iterator[str]:
    """Yield lines about runs without a config, and about configs that are the same."""
    without = [escaped(run.path) for run in runs if not run.has_config]
    if without and len(runs) > 1:
        yield f"no config recorded in {', '.join(without)}"
    if len(runs) - len(without) > 1 and not differ:
        yield "the configs are the same"
