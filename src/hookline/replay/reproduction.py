"""Reproduction: run a whole run again, in a new folder, and compare the result with the run to the bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hookline.common.files import owned, real_path
from hookline.common.numbers import count
from hookline.errors import ConfigError
from hookline.lifecycle import events
from hookline.replay import trail
from hookline.replay.difference import describe, replay
from hookline.replay.preparation import data_changes, find_session, prepare
from hookline.replay.rerun import REACHED
from hookline.rundir import journal, loss_bits, parting
from hookline.rundir.names import CONFIG, RECORDS
from hookline.rundir.runs import load
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.replay.difference import Repeat
    from hookline.replay.preparation import Task
    from hookline.rundir.parting import Parting
    from hookline.rundir.runs import Run
    from hookline.runner.runner import Runner

#: Metrics that begin with this are results; others may be times.
RESULTS = "val/"


@dataclass
class Reproduction:
    """The result of running a run again."""

    task: Task
    out: Path
    parting: Parting
    #: What is different from when the run was started, as lines.
    changes: list[str]
    #: What is the same, by name.
    same_now: list[str]
    #: The metrics of validations that differ.
    metrics: list[str] = field(default_factory=list)
    #: The first difference of two more replays of the steps where the runs part, if there are any.
    replayed: bool = False
    found: trail.Difference | None = None

    @property
    def same(self) -> bool:
        """Return whether the result is the same to the bit."""
        return self.parting.differs_at is None and self.parting.equal_until == self.task.last and not self.metrics

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "run": str(self.task.folder),
            "out": str(self.out),
            "same": self.same,
            "steps": [self.task.start + 1, self.task.last],
            **self.parting.as_data(),
            "metrics": self.metrics,
            "unchanged": self.same_now,
            "changes": self.changes,
            "deterministic": None if not self.replayed else self.found is None,
            "first": None if self.found is None else vars(self.found),
        }

    def lines(self) -> list[str]:
        """Return it as lines."""
        found = [f"ran {self.task.folder} again in {self.out}, from {self.task.begins_at} to step {self.task.last}"]
        found += [f"unchanged: {', '.join(self.same_now)}"] * bool(self.same_now)
        found += [f"changed: {change}" for change in self.changes]
        if self.same:
            losses, checkpoints = self.parting.compared
            return [*found, f"the result is the same to the bit ({losses} losses, {count(checkpoints, 'checkpoint')})"]
        found += ["the result is not the same", self.parting.line]
        found += [f"metrics that differ: {', '.join(self.metrics)}"] * bool(self.metrics)
        if self.found is not None:
            found.append(f"two replays of these steps differ from each other, too; {describe(self.found)}")
        elif self.replayed:
            found.append("two replays of these steps are equal to each other, so something has changed since the run")
        return found


def find_task(folder: Path) -> Task:
    """Return the whole of a run as a task. Refuse a run that has not recorded enough."""
    run = load(folder)
    starts = [event for event in run.events if event["kind"] == "start"]
    last = len(loss_bits.read(run.path))
    if not starts or not last:
        missing = loss_bits.NAME if starts else journal.NAME
        raise ConfigError(f"{folder} cannot be run again: it has no {missing}, in which a run records its steps")
    resumed = bool(starts[0].get("resumed_from"))
    return prepare(folder, (starts[0]["step"] * resumed + 1, last), from_start=not resumed)


def choose_folder(folder: Path, out: Path | None) -> Path:
    """Return the new folder. It must not have any files."""
    folder = real_path(folder)
    chosen = real_path(out if out is not None else folder.with_name(f"{folder.name}-again"))
    if chosen.is_relative_to(folder):
        raise ConfigError(f"{chosen} is in the folder of the run, which is only read; choose another one with --out")
    if chosen.exists() and (not chosen.is_dir() or any(chosen.iterdir())):
        raise ConfigError(f"{chosen} exists already; choose a new folder with --out")
    return chosen


def reproduce(
    task: Task, out: Path, run_again: Callable[[Task, Path], None], repeat: Repeat, scratch: Path
) -> Reproduction:
    """Run a run again in a new folder, and compare. If the result differs, replay the steps where they part twice."""
    out.mkdir(parents=True, exist_ok=True)
    run_again(task, out)
    (out / REACHED).unlink(missing_ok=True)
    run, again = load(task.folder), load(out)
    unchanged, changes = compare_starts(run, again, task)
    result = Reproduction(task, out, parting.find(task.folder, out), changes, unchanged, _metrics(run, again))
    at = result.parting.differs_at
    if at is not None:
        steps = result.parting.base_step + 1, at
        parts = [prepare(task.folder, steps, from_start=task.checkpoint is None and steps[0] == 1) for _ in range(2)]
        trails = [replay(part, repeat, scratch / str(number)).trail for number, part in enumerate(parts)]
        result.replayed, result.found = True, trail.first_difference(trails[0], trails[1])
    return result


def compare_starts(run: Run, again: Run, task: Task) -> tuple[list[str], list[str]]:
    """Return what is unchanged since a run was started, and what has changed, as lines."""
    then, now = find_session(run.events, task.last), find_session(again.events, task.last)
    old, new = _mapping(then.get("environment")), _mapping(now.get("environment"))
    unchanged, changes = [], list(task.warnings)
    for name in ("hookline", "torch", "python", "device", "threads", "platform"):
        if name in old and old[name] == new.get(name):
            unchanged.append(name)
        elif name in old and name not in ("hookline", "torch", "python"):  # the task has named these
            changes.append(f"{name}: {old[name]} then, {new.get(name)} now")
    old, new = _mapping(then.get("sources")), _mapping(now.get("sources"))
    if "revision" in old and old["revision"] != new.get("revision"):
        changes.append(f"the revision of the code: {old['revision'][:12]} then, {str(new.get('revision'))[:12]} now")
    elif "revision" in old:
        unchanged.append(
            f"revision {old['revision'][:12]}" + " (with changes that were not committed)" * (not old["clean"])
        )
    if old.get("files") and not any("since the run had" in warning for warning in task.warnings):
        unchanged.append(f"{count(len(old['files']), 'file')} of code")
    if isinstance(then.get("config"), int):
        path = run.path / CONFIG
        if path.is_file() and events.hash_of(path) == then["config"]:
            unchanged.append("config")
        else:
            changes.append(f"{path} was changed since the run had begun")
    configs = {str(event.get("config")) for event in run.events if event["kind"] == "start"}
    if len(configs) > 1:
        changes.append("the run was resumed with another config, and only the newest one is known")
    if differing := data_changes(then.get("data"), now.get("data")):
        changes.append(f"the data: {differing}")
    elif then.get("data"):
        unchanged.append("data")
    return unchanged, changes


class Results(Hook):
    """Writes the metrics of every validation into a file: writers and observers are off."""

    priority = "LOWEST"
    role = "observer"
    draws_random_numbers = False

    def after_val_epoch(self, runner: Runner, metrics: Mapping[str, Any]) -> None:
        """Write the numbers."""
        if runner.rank == 0:
            numbers = {
                f"{RESULTS}{name}": float(each) for name, each in metrics.items() if isinstance(each, (int, float))
            }
            with open(runner.work_dir / RECORDS, "a", encoding="utf-8", opener=owned) as file:
                file.write(json.dumps({"step": runner.iter, **numbers}) + "\n")


def make_results(runner: Runner) -> Results:
    """Return the watcher that writes the metrics of a run that is run again."""
    return Results()


def _metrics(run: Run, again: Run) -> list[str]:
    """Return the metrics of validations whose values are not the same at the steps that both have."""
    found = []
    for name in (each for each in again.metrics.names if each in run.metrics and each.startswith(RESULTS)):
        (steps, values), (others, other_values) = run.metrics.series(name), again.metrics.series(name)
        _, at_one, at_other = np.intersect1d(steps, others, return_indices=True)
        if not np.array_equal(values[at_one], other_values[at_other], equal_nan=True):
            found.append(name)
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
