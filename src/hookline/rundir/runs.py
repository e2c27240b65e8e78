"""Reading a run back from its folder. Each part is read on first access.

    run = load("runs/digits")
    run.config["optim"]["optimizer"]["lr"]      0.001
    run.metrics["train/loss"]                   a numpy array, one row per record
    run.best("val/accuracy")                    Result(value=0.9861, step=204)
    run.checkpoints[-1].path                    runs/digits/epoch_15.pth

Nothing is written, so you can also read a run that is still in progress. torch is not imported.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hookline.checkpoint import folders
from hookline.checkpoint.names import NAMES
from hookline.checkpoint.seal import damage, read_note
from hookline.common.environment import shown
from hookline.common.files import real_path, regular
from hookline.common.monitor import monitor
from hookline.errors import MOST_NAMES, ConfigError, HooklineError, StorageError, did_you_mean
from hookline.rundir import columns, journal, loss_bits, ownership, states
from hookline.rundir.names import CONFIG, LOG, PLAN, RECORDS

if TYPE_CHECKING:
    from hookline.rundir.columns import Metrics

# Any of these files shows that a folder holds a run. A config alone does not: it may belong to a project.
RUN_FILES = (RECORDS, LOG, PLAN, "last_checkpoint")
#: The most characters of a plan.
LONGEST_PLAN = 4_000_000
# In an error about a folder, this many entries of it are looked at.
MOST_ENTRIES = 1000


class NotARunError(ConfigError):
    """Raised for a path that is not the folder of a run."""


class Result(NamedTuple):
    """A value of a metric and its step."""

    value: float
    step: int


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in the folder of a run, described by its name and its seal; the rest of the file is not read."""

    path: Path
    #: Finished iterations; None if neither the seal nor the name contains them.
    step: int | None
    #: Finished epochs; None if the name does not contain them.
    epoch: int | None
    #: The metric for which this was the best checkpoint, as in the name (`clean_accuracy` for `clean/accuracy`).
    metric: str | None
    #: True if a run can resume from it: it was saved with everything that a resume needs.
    complete: bool

    @property
    def is_best(self) -> bool:
        """Return whether it was saved as the best checkpoint for a metric."""
        return self.path.name.startswith("best_")

    def damage(self) -> str:
        """Return a description of the damage; empty if every byte is as it was written. Reads the whole file."""
        return damage(self.path)

    def is_intact(self) -> bool:
        """Return whether every byte is as it was written. Reads the whole file."""
        return not self.damage()


class Run:
    """One run and its folder. Each part is read on first access and then kept; call `load` again to see new data."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"<Run {self.path}>"

    @cached_property
    def name(self) -> str:
        """Return the name of the experiment: the config's `experiment_name`, or else the name of the folder."""
        chosen = self.config.get("experiment_name") if self.has_config else None
        return str(chosen or real_path(self.path).name)

    @property
    def has_config(self) -> bool:
        """Return whether the config was recorded; a run created in Python has one only if it was passed to Runner."""
        return os.path.lexists(self.path / CONFIG)

    @cached_property
    def config(self) -> dict[str, Any]:
        """Return the resolved config as plain data. Environment variables stay references: `${oc.env:NAME}`."""
        from hookline.common.yaml_file import read

        if not self.has_config:
            raise StorageError(
                f"{self.path} has no {CONFIG}: the run was created in Python; to record a config, pass "
                "Runner(config=...)"
            )
        self._text(CONFIG, 0)  # a file that cannot be opened is an error of the storage, not of the config
        data: dict[str, Any] = shown(read(self.path / CONFIG))
        return data

    @cached_property
    def metrics(self) -> Metrics:
        """Return the recorded metrics as columns; empty if nothing has been recorded yet."""
        return columns.read(self.path / RECORDS)

    @cached_property
    def checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints in the folder, in the order of the run."""
        return read_checkpoints(self.path)

    @cached_property
    def losses(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the loss of every iteration, exactly; NaN for one without, and empty if the run has not recorded them.

        They are the losses of the main process. `metrics` has means of several iterations and of all processes.
        """
        return np.array(loss_bits.read(self.path), "<u8").view("<f8")

    @cached_property
    def plan(self) -> str:
        """Return the text of plan.txt: which hooks ran at which points."""
        text = self._text(PLAN, LONGEST_PLAN + 1)
        if len(text) > LONGEST_PLAN:
            raise StorageError(f"{self.path / PLAN} has more than {LONGEST_PLAN:,} characters; this is not a plan")
        return text

    @cached_property
    def log(self) -> list[str]:
        """Return the lines of run.log."""
        return self._text(LOG).splitlines()

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """Return the events of the journal, oldest first; empty if the run has none. See `hookline.rundir.journal`."""
        return journal.read(self.path)

    @property
    def state(self) -> states.State:
        """Return whether the run is running now, and how it ended otherwise."""
        return states.state_of(self.path)

    @property
    def running(self) -> bool | None:
        """Return whether a process uses the folder now; None if this is unknown (it would be on another machine)."""
        return ownership.is_in_use(self.path)

    def best(self, metric: str, rule: str | None = None) -> Result:
        """Return the best value of a metric and the first step that reached it.

        `rule` says whether `greater` or `less` is better. Without it, the name of the metric decides. NaN is never the
        best.
        """
        steps, values = self.metrics.series(metric)
        watched = monitor(metric, rule, who=f"{self.path}: best")
        finite = np.isfinite(values)
        if not finite.any():
            raise HooklineError(f"{self.path}: no value of '{metric}' is a finite number, so there is no best one")
        steps, values = steps[finite], values[finite]
        position = np.argmax(values) if watched.rule == "greater" else np.argmin(values)
        return Result(float(values[position]), int(steps[position]))

    def final(self, metric: str) -> Result:
        """Return the last value of a metric, which may be NaN, and its step."""
        steps, values = self.metrics.series(metric)
        return Result(float(values[-1]), int(steps[-1]))

    def _text(self, name: str, most: int = -1) -> str:
        """Return the text of a file, or as much of it."""
        try:
            with open(self.path / name, encoding="utf-8", errors="replace", opener=regular) as file:
                return file.read(most)
        except OSError as error:
            raise StorageError(f"{self.path / name} cannot be read: {error.strerror or error}") from error


def load(path: str | os.PathLike[str]) -> Run:
    """Return the run in a folder; raise NotARunError, a ConfigError, if it does not hold one."""
    folder = Path(path).expanduser()
    if not is_run(folder):
        raise NotARunError(_why_not(folder))
    return Run(folder)


def is_run(folder: Path) -> bool:
    """Return whether a folder holds a run."""
    if not os.path.isdir(folder):
        return False
    return any(os.path.exists(folder / name) for name in RUN_FILES) or bool(read_checkpoints(folder))


def read_checkpoints(folder: Path) -> list[Checkpoint]:
    """Return the checkpoints in a folder in the order of the run; files of other programs are left out."""
    checkpoints = []
    for path in folders.find_all(folder):
        try:
            note = read_note(path)
        except (FileNotFoundError, IsADirectoryError):  # the run may remove old ones in the meantime
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
        checkpoints.append((order, path.name, checkpoint))
    return [checkpoint for *_, checkpoint in sorted(checkpoints, key=lambda entry: entry[:2])]


def _why_not(folder: Path) -> str:
    """Return the message about a folder that does not hold a run, with a guess at the intended one."""
    if os.path.isdir(folder):
        inside = [str(folder / name) for name in _runs_in(folder)]
        more = f" and {len(inside) - MOST_NAMES} more" if len(inside) > MOST_NAMES else ""
        hint = f"; it contains the runs {', '.join(inside[:MOST_NAMES])}{more}" if inside else ""
        return f"{folder} is not the folder of a run: it has no {RECORDS}, no {LOG} and no checkpoint{hint}"
    if os.path.exists(folder):
        return f"{folder} is a file; expected the folder of a run, with {RECORDS}, {LOG} and checkpoints"
    if os.path.islink(folder):
        return f"{folder} is a link to {os.readlink(folder)}, which does not exist"
    beside = _runs_in(folder.parent)
    hint = f"; {did_you_mean(folder.name, beside)}" if beside else ""
    return f"folder {folder} does not exist{hint}"


def _runs_in(folder: Path) -> list[str]:
    """Return the names of runs in a folder, which may be any folder, such as /tmp: only some entries are looked at."""
    try:
        return sorted(entry.name for entry in islice(folder.iterdir(), MOST_ENTRIES) if is_run(entry))
    except OSError:
        return []
