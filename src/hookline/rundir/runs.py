"""Asking afterwards: what a run has left in its folder, read when it is asked for.

    run = load("runs/digits")
    run.config["optim"]["optimizer"]["lr"]      0.001
    run.metrics["train/loss"]                   a numpy array, a row a record
    run.best("val/accuracy")                    Result(value=0.9861, step=204)
    run.checkpoints[-1].path                    runs/digits/epoch_15.pth

Nothing is written, so a run that is going on can be looked at, too. No torch is imported.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hookline.checkpoint.names import NAMES
from hookline.checkpoint.seal import damage, read_note
from hookline.common.monitor import monitor
from hookline.errors import ConfigError, HooklineError, StorageError, did_you_mean
from hookline.rundir import columns, ownership

if TYPE_CHECKING:
    from hookline.rundir.columns import Metrics

CONFIG, RECORDS, PLAN, LOG = "config.yaml", "metrics.jsonl", "plan.txt", "run.log"
# What shows that a folder is that of a run; a config alone may be that of a project.
TRACES = (RECORDS, LOG, PLAN, "last_checkpoint")


class Result(NamedTuple):
    """A value of a metric, and the step at which it came."""

    value: float
    step: int


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in the folder of a run: what its name and its seal say, without a look at the rest."""

    path: Path
    #: Finished iterations; None where neither the seal nor the name tells.
    step: int | None
    #: Finished epochs, where the name tells.
    epoch: int | None
    #: The metric whose best it is, as it stands in the name (`clean_accuracy` for `clean/accuracy`).
    metric: str | None
    #: Whether a run can go on from it: nothing was left out when it was saved.
    complete: bool

    @property
    def is_best(self) -> bool:
        """Whether it was kept because it was the best of a metric."""
        return self.path.name.startswith("best_")

    def damage(self) -> str:
        """What is wrong with it; empty when every byte is as it was written. Reads the whole file."""
        return damage(self.path)

    def is_intact(self) -> bool:
        """Whether every byte is as it was written. Reads the whole file."""
        return not self.damage()


class Run:
    """One run, by its folder. Each part is read when it is first asked for, and kept; `load` again to see more."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"<Run {self.path}>"

    @cached_property
    def name(self) -> str:
        """The name of the experiment: that of the folder, unless the config gives one."""
        given = self.config.get("experiment_name") if self.has_config else None
        return str(given or self.path.resolve().name)

    @property
    def has_config(self) -> bool:
        """Whether the config was recorded; a run that is made in Python has none unless it is given one."""
        return (self.path / CONFIG).exists()

    @cached_property
    def config(self) -> dict[str, Any]:
        """The config as resolved: plain data."""
        from hookline.common.yaml_file import read

        if not self.has_config:
            raise StorageError(
                f"{self.path} has no {CONFIG}: the run was made in Python; Runner(config=...) records what you give it"
            )
        return read(self.path / CONFIG)

    @cached_property
    def metrics(self) -> Metrics:
        """What was recorded, as columns; empty where nothing was yet."""
        return columns.read(self.path / RECORDS)

    @cached_property
    def checkpoints(self) -> list[Checkpoint]:
        """Those in the folder, in the order of the run."""
        return read_checkpoints(self.path)

    @cached_property
    def plan(self) -> str:
        """Who ran where: the text of plan.txt."""
        return self._text(PLAN)

    @cached_property
    def log(self) -> list[str]:
        """The lines of run.log."""
        return self._text(LOG).splitlines()

    @property
    def running(self) -> bool | None:
        """Whether a process is in the folder now; None if it would be on another machine."""
        return ownership.is_in_use(self.path)

    def best(self, metric: str, rule: str | None = None) -> Result:
        """The best value of a metric, and the first step at which it came.

        Whether `greater` or `less` is better is told by the name, or by `rule`; NaN never is.
        """
        steps, values = self.metrics.series(metric)
        watched = monitor(metric, rule, who=f"{self.path}: best")
        finite = np.isfinite(values)
        if not finite.any():
            raise HooklineError(f"{self.path}: no value of '{metric}' is a finite number, so none is the best")
        steps, values = steps[finite], values[finite]
        at = np.argmax(values) if watched.rule == "greater" else np.argmin(values)
        return Result(float(values[at]), int(steps[at]))

    def final(self, metric: str) -> Result:
        """The last value of a metric, which may be NaN, and its step."""
        steps, values = self.metrics.series(metric)
        return Result(float(values[-1]), int(steps[-1]))

    def _text(self, name: str) -> str:
        try:
            return (self.path / name).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise StorageError(f"{self.path / name} cannot be read: {error.strerror or error}") from error


def load(path: str | os.PathLike[str]) -> Run:
    """The run in a folder; a folder that holds none is refused."""
    folder = Path(path).expanduser()
    if not is_run(folder):
        raise ConfigError(_why_not(folder))
    return Run(folder)


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run."""
    if not folder.is_dir():
        return False
    return any(os.path.exists(folder / name) for name in TRACES) or bool(read_checkpoints(folder))


def read_checkpoints(folder: Path) -> list[Checkpoint]:
    """The checkpoints in a folder, those that are later in the run last; a file of others is none."""
    found = []
    for path in folder.glob("*.pth"):
        try:
            note = read_note(path)
        except (FileNotFoundError, IsADirectoryError):  # the run removes those that it need not keep
            continue
        except OSError:
            note = None
        name = NAMES.fullmatch(path.name)
        if note is None and name is None:
            continue
        unit, count = (name["unit"], int(name["count"])) if name else ("", 0)
        checkpoint = Checkpoint(
            path,
            step=note.step if note else count if unit == "iter" else None,
            epoch=count if unit == "epoch" else None,
            metric=name["metric"] if name else None,
            complete=note is not None and note.complete,
        )
        order = note.order if note else (-1 if checkpoint.step is None else checkpoint.step, 0)
        found.append((order, path.name, checkpoint))
    return [checkpoint for *_, checkpoint in sorted(found, key=lambda each: each[:2])]


def _why_not(folder: Path) -> str:
    """The message about a folder that holds no run, with what was probably meant."""
    if folder.is_dir():
        inside = [str(folder / name) for name in _runs_in(folder)]
        hint = f"; there are runs in it: {', '.join(inside)}" if inside else ""
        return f"{folder} is not the folder of a run: it has neither {RECORDS} nor {LOG} nor a checkpoint{hint}"
    if folder.exists():
        return f"{folder} is a file; a run is the folder that holds {RECORDS}, {LOG} and the checkpoints"
    beside = _runs_in(folder.parent)
    hint = f"; {did_you_mean(folder.name, beside)}" if beside else ""
    return f"there is no folder {folder}{hint}"


def _runs_in(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if is_run(entry))
    except OSError:
        return []
