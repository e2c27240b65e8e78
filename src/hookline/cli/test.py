"""`hookline test`: test a checkpoint."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookline.cli.common import CHECKPOINTS, Allow, load_config, show, to_the_end
from hookline.cli.errors import Traceback  # noqa: TC001  # typer reads the annotations
from hookline.common.escape import escaped
from hookline.errors import ConfigError

if TYPE_CHECKING:
    from hookline.config.loading import LoadedConfig
    from hookline.rundir.choice import Choice
    from hookline.rundir.origin import Origin
    from hookline.runner.runner import Runner

EXAMPLES = """\b
Examples:
  hookline test runs/digits                     the best checkpoint of a run, or else the last one
  hookline test runs/digits --last
  hookline test runs/digits --checkpoint epoch_10.pth
  hookline test digits.yaml --checkpoint runs/digits/epoch_15.pth
"""

Given = Annotated[
    list[str] | None,
    typer.Argument(metavar="RUN|CONFIG [KEY=VALUE ...]", help="The folder of a run, or a YAML file; then overrides."),
]


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("test", epilog=EXAMPLES)(to_the_end()(run))


def run(
    words: Given = None,
    checkpoint: Annotated[str, typer.Option("--checkpoint", metavar="FILE", help="The checkpoint to test.")] = "",
    best: Annotated[
        str, typer.Option("--best", metavar="METRIC", help="Test the best checkpoint of RUN for this metric.")
    ] = "",
    last: Annotated[bool, typer.Option("--last", help="Test the last checkpoint of RUN.")] = False,
    allow: Allow = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
    traceback: Traceback = False,
) -> None:
    """Test the weights of a checkpoint on the test set of RUN or CONFIG.

    RUN is the folder of a run. Its own config is used, and its best checkpoint, if it saved one, or else the last.
    """
    from hookline.common.numbers import as_number

    if bool(checkpoint) + bool(best) + last > 1:
        raise ConfigError("--checkpoint, --best and --last choose different checkpoints; use only one of them")
    arguments = list(words or ())
    if arguments and arguments[0].endswith(CHECKPOINTS):
        raise ConfigError(
            f"{arguments[0]} is a checkpoint; name its run, too: hookline test {Path(arguments[0]).parent} "
            f"--checkpoint {Path(arguments[0]).name}"
        )
    if arguments and os.path.isdir(arguments[0]):
        runner, chosen = open_run(arguments, checkpoint, best, last, allow or (), quiet=as_json)
    else:
        runner, chosen = open_config(arguments, checkpoint, best, last, allow or (), quiet=as_json)
    if chosen.reason and not as_json:
        show(f"testing {escaped(chosen.path)}: {chosen.reason}")
    metrics = runner.test()
    if as_json:
        numbers = {name: value for name, value in metrics.items() if isinstance(value, (int, float))}
        data = {
            "checkpoint": str(chosen.path),
            "reason": chosen.reason or "chosen with --checkpoint",
            "metrics": finite(numbers),
        }
        show(json.dumps(data, indent=2, allow_nan=False))
        return
    for name, value in metrics.items():
        show(f"{escaped(name)}  {as_number(value)}")


def finite(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return numbers for JSON, with None for NaN and Inf."""
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}


def open_run(
    words: list[str], checkpoint: str, best: str, last: bool, allow: list[str] | tuple[str, ...], quiet: bool
) -> tuple[Runner, Choice]:
    """Return the runner of a run's own config, in the folder of the run, and the checkpoint to test."""
    from hookline.config import build_runner
    from hookline.rundir import origin, runs
    from hookline.rundir.choice import Choice, choose
    from hookline.rundir.names import CONFIG

    tested = runs.load(words[0])
    if not tested.has_config:
        raise ConfigError(
            f"{tested.path} has no config.yaml, because the run was created in Python; test it there, with "
            "runner.test(), or with hookline test CONFIG --checkpoint FILE"
        )
    if checkpoint:
        inside = tested.path / checkpoint
        path = inside if not os.path.exists(checkpoint) and inside.exists() else Path(checkpoint)
        chosen = Choice(path, "")
    else:
        chosen = choose(tested, best, last)
    config = tested.path / CONFIG
    where = origin.read(config)
    loaded = load_config([str(config), *words[1:]])
    options = {} if any(word.startswith("work_dir=") for word in words[1:]) else {"work_dir": tested.path}
    try:
        runner = build_runner(loaded, allow=allow, resume=False, load_from=chosen.path, quiet=quiet, **options)
    except ConfigError as error:
        explain_missing_modules(error, loaded, where)
        raise
    return runner, chosen


def explain_missing_modules(error: ConfigError, loaded: LoadedConfig, where: Origin | None) -> None:
    """Say where the modules next to the original config are, if they were not found."""
    if where is None or loaded.modules is not None or "the module '" not in str(error):
        return
    error.add_note(
        f"the config of this run came from {escaped(str(where))}, and its modules are next to it; run this command "
        f"there: cd {escaped(where.folder)}"
    )


def open_config(
    words: list[str], checkpoint: str, best: str, last: bool, allow: list[str] | tuple[str, ...], quiet: bool
) -> tuple[Runner, Choice]:
    """Return the runner of a config and the checkpoint that the command names."""
    from hookline.config import build_runner
    from hookline.rundir import runs
    from hookline.rundir.choice import Choice

    if best or last:
        raise ConfigError(
            f"{'--best' if best else '--last'} needs the folder of a run, such as hookline test runs/digits"
        )
    if not checkpoint and words and not os.path.exists(words[0]) and "=" not in words[0]:
        runs.load(words[0])  # it does not exist, which this reports
    if not checkpoint:
        raise ConfigError(
            "choose what to test: the folder of a run, such as hookline test runs/digits, or a checkpoint, such as "
            "--checkpoint runs/digits/epoch_15.pth"
        )
    runner = build_runner(load_config(words), allow=allow, resume=False, load_from=checkpoint, quiet=quiet)
    return runner, Choice(Path(checkpoint), "")
