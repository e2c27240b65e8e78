"""Difference: the first thing that differs between two runs, found by running the steps of both again.

parting    what their records show: equal until a step, and the newest checkpoints that are equal
trails     the bits of everything in the steps after that, of both, each written by a process of its own
found      the first difference of the trails: batch, random numbers, module output, loss, gradient, ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from hookline.errors import ConfigError
from hookline.replay import outcome, trail
from hookline.replay.preparation import Task, prepare
from hookline.replay.trail import Trail
from hookline.rundir import parting
from hookline.rundir.comparison import find_differences
from hookline.rundir.runs import load

if TYPE_CHECKING:
    from hookline.rundir.parting import Parting
    from hookline.runner.hook import Hook
    from hookline.runner.runner import Runner

#: Returns a hook that looks at the steps of a runner.
MakeWatcher: TypeAlias = "Callable[[Runner], Hook]"
#: Repeats steps in a process of its own, in a scratch folder, with a watcher.
Repeat: TypeAlias = "Callable[[Task, Path, MakeWatcher], None]"


@dataclass
class Replayed:
    """The steps of one run that were run again."""

    task: Task
    trail: dict[trail.Key, trail.Record]
    #: The first step at which the replay has another loss than the run has recorded; None if all are equal.
    differs_at: int | None


@dataclass
class Diff:
    """Where two runs part."""

    runs: tuple[Path, Path]
    parting: Parting
    #: The keys of the configs that differ, with both values.
    config: dict[str, list[Any]] = field(default_factory=dict)
    processes: tuple[int, ...] = ()
    replayed: tuple[Replayed, Replayed] | None = None
    found: trail.Difference | None = None

    @property
    def equal(self) -> bool:
        """Return whether nothing differs."""
        return self.parting.differs_at is None and self.found is None

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        sides = self.replayed or ()
        return {
            "runs": [str(run) for run in self.runs],
            "equal": self.equal,
            **self.parting.as_data(),
            "equal_until": self.parting.equal_until if self.found is None else self.found.step - 1,
            "first": None if self.found is None else asdict(self.found),
            "replayed": [
                {"from": side.task.begins_at, "steps": _steps(side), "differs_from_record_at": side.differs_at}
                for side in sides
            ],
            "config": self.config,
            "warnings": [warning for side in sides for warning in side.task.warnings],
        }

    def lines(self) -> list[str]:
        """Return it as lines."""
        found = [] if self.found is None else [f"equal to the bit until step {self.found.step - 1}"]
        found.append(self.parting.line if self.found is None else f"records: {self.parting.line}")
        found += [f"config {key}: {one!r}, {other!r}" for key, (one, other) in self.config.items()]
        if len(set(self.processes)) > 1:
            found.append(f"processes: {self.processes[0]}, {self.processes[1]}")
        if self.replayed is None:
            return found
        first, last = _steps(self.replayed[0])
        found.append(f"replayed both from {self.replayed[0].task.begins_at}, steps {first} to {last}")
        found += [
            f"note: the replay of {side.task.folder} has another loss than its record, from step {side.differs_at} on"
            for side in self.replayed
            if side.differs_at is not None
        ]
        return [*found, "the replays are equal to the bit" if self.equal else describe(self.found)]


def describe(found: trail.Difference | None) -> str:
    """Return the first difference of two replays as a line."""
    if found is None:
        return "the replays are equal to the bit, so what made the difference was not repeated"
    rank = f" of rank {found.rank}" if found.rank else ""
    others = ", ".join(kind for kind in found.kinds if kind != found.kind)
    return f"first difference: step {found.step}{rank}, {found}" + f"; then: {others}" * bool(others)


def _steps(side: Replayed) -> tuple[int, int]:
    return side.task.start + 1, side.task.last


def diff(one: Path, other: Path, repeat: Repeat, scratch: Path, steps: tuple[int, int] | None = None) -> Diff:
    """Compare two runs. If a record differs, or if `steps` are chosen, run steps of both again to find what differs."""
    runs = [load(one), load(other)]
    differing = find_differences(runs)
    found = Diff(
        (one, other),
        parting.find(one, other),
        {key: [values.get(number) for number in (0, 1)] for key, values in differing.items()},
    )
    at = found.parting.differs_at
    if steps is None and at is None:
        if not any(found.parting.compared):
            raise ConfigError(f"{one} and {other} cannot be compared: {found.parting.line}; choose --steps")
        return found
    chosen = steps or (found.parting.base_step + 1, at or 0)
    tasks = [
        prepare(folder, chosen, from_start=steps is None and found.parting.bases is None) for folder in (one, other)
    ]
    if tasks[0].start != tasks[1].start:
        raise ConfigError(
            f"the runs cannot be replayed from one step: {one} begins at {tasks[0].begins_at}, {other} at "
            f"{tasks[1].begins_at}; choose other steps with --steps"
        )
    found.processes = tuple(task.processes for task in tasks)
    sides = [replay(task, repeat, scratch / str(number)) for number, task in enumerate(tasks)]
    found.replayed = sides[0], sides[1]
    found.found = trail.first_difference(sides[0].trail, sides[1].trail)
    return found


def replay(task: Task, repeat: Repeat, scratch: Path) -> Replayed:
    """Run the steps of a task again, and return their trail."""
    scratch.mkdir(parents=True)
    repeat(task, scratch, partial(make_trail, scratch))
    return Replayed(task, trail.read_folder(scratch), outcome.compare(task, scratch).differs_at)


def make_trail(folder: Path, runner: Runner) -> Trail:
    """Return the watcher that writes the trail of a replay."""
    return Trail(folder, runner.model)


def compare_files(one: Path, other: Path) -> trail.Difference | None:
    """Return the first difference between two trails in files, which may come from other machines."""
    first, second = trail.read(one), trail.read(other)
    if not first.keys() & second.keys():
        raise ConfigError(f"{one} and {other} have no step in common; replay the same steps of both runs")
    return trail.first_difference(first, second)
