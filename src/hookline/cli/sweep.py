"""`hookline sweep`: train a config many times, with values that Optuna chooses."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hookline.cli.common import Allow, Words, show, split_words, to_the_end

if TYPE_CHECKING:
    from hookline.sweeps.results import Row
    from hookline.sweeps.studies import Settings

EXAMPLES = """\b
Examples:
  hookline sweep digits.yaml optim.optimizer.lr=1e-4..1e-1:log --trials 30 --metric val/accuracy
  hookline sweep digits.yaml model.width=8,16,32 train.dataloader.batch_size=16..128:16 --jobs 2
                                                   a list, a range with steps; two trials at a time
  hookline sweep digits.yaml model.width=8,16 optim.optimizer.type=SGD,AdamW --sampler grid
                                                   all combinations
  hookline sweep digits.yaml                       with the 'sweep' section of digits.yaml
  hookline sweep digits.yaml model.width=8,16 --study widths --storage postgresql://me:secret@host/db
                                                   the same command on several machines shares the trials
\b
The same command continues a sweep that was interrupted or killed. Trials are ordinary runs: hookline compare
runs/<study>/[0-9]*
"""

TrialCount = Annotated[
    int | None, typer.Option("--trials", metavar="N", help="The number of trials in all, also on other machines.")
]
Metric = Annotated[
    str | None,
    typer.Option("--metric", metavar="NAME", help="The metric of the validation to optimize: val/accuracy."),
]
Direction = Annotated[
    str | None,
    typer.Option("--direction", metavar="NAME", help="maximize or minimize. By default, the metric's name decides."),
]
StudyName = Annotated[
    str | None, typer.Option("--study", metavar="NAME", help="The name of the study; by default CONFIG-sweep.")
]
Folder = Annotated[
    Path | None, typer.Option("--dir", metavar="FOLDER", help="The folder of the study; by default runs/<study>.")
]
Storage = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="URL",
        help="Where Optuna keeps the study; by default a sqlite file in its folder. journal:FILE suits a shared disk.",
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", metavar="N", help="The number of trials that run at the same time.")]
Sampler = Annotated[
    str | None, typer.Option("--sampler", metavar="NAME", help="How values are chosen: tpe (default), random or grid.")
]
Pruner = Annotated[
    str | None,
    typer.Option("--pruner", metavar="NAME", help="How bad trials are ended early: median (default), hyperband, none."),
]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="The seed of the choice of values; default 0.")]
Grace = Annotated[
    float, typer.Option("--grace", metavar="SECONDS", help="Time for trials to save and end after Ctrl-C.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of a table.")]


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("sweep", epilog=EXAMPLES)(to_the_end()(run))


def run(
    words: Words = None,
    trials: TrialCount = None,
    metric: Metric = None,
    direction: Direction = None,
    study: StudyName = None,
    folder: Folder = None,
    storage: Storage = None,
    jobs: Jobs = 1,
    sampler: Sampler = None,
    pruner: Pruner = None,
    seed: Seed = None,
    allow: Allow = None,
    grace: Grace = 60.0,
    as_json: Json = False,
) -> None:
    """Train CONFIG many times and find the best values.

    A KEY=VALUE with a range (1e-4..1e-1:log, 16..64:16) or a list (32,64,128) is searched. Any other is an override
    for all trials.
    """
    from hookline.sweeps.preparation import Request, prepare

    config, overrides = split_words(words)
    options = (trials, metric, direction, study, folder, storage, sampler, pruner, seed, jobs, grace)
    settings, opened = prepare(Request(config, tuple(overrides), *options, allow=tuple(allow or ())))
    from hookline.cli.sweep_screen import Screen
    from hookline.run.signals import describe_ignored
    from hookline.sweeps.results import read_rows, to_data, write_best
    from hookline.sweeps.sweep import Sweep

    screen = Screen(settings, to_stderr=as_json)
    screen.announce(opened)
    sweep = Sweep(settings, opened, ended=screen.show_end, progress=screen.show_progress)
    try:
        with screen:
            if hint := describe_ignored():
                screen.say(hint)
            number = sweep.run()
    finally:
        rows = read_rows(settings, opened, sweep.home)
        best_config = write_best(settings, rows[0]) if rows and rows[0].state == "complete" else None
        if as_json:
            show(json.dumps(to_data(settings, rows, best_config), indent=2, allow_nan=False))
        else:
            screen.show_results(rows, best_config)
    if number:
        screen.say(f"interrupted; continue with: {repeated_command()}")
        raise typer.Exit(128 + number)
    if best_config is None:
        raise typer.Exit(exit_code(settings, rows))


def repeated_command() -> str:
    """Return the command line of this process, to be typed again."""
    return shlex.join(["hookline", *sys.argv[1:]])


def exit_code(settings: Settings, rows: list[Row]) -> int:
    """Return the exit code of a sweep in which no trial finished: the code of the first trial that failed, or 1."""
    codes = [row.reason.removeprefix("exit code ").partition(":")[0] for row in rows if row.reason]
    return next((int(code) for code in codes if code.isdecimal() and int(code)), 1)
