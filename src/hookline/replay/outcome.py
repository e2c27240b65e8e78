"""Outcome: what a replay has found, compared with what the run has recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hookline.common.numbers import as_number
from hookline.replay.preparation import bits_of, bits_of_run, data_changes, died_in_worker
from hookline.replay.rerun import comparable
from hookline.rundir import capsule, journal, loss_bits

if TYPE_CHECKING:
    from pathlib import Path

    from hookline.replay.preparation import Task
    from hookline.rundir.capsule import Capsule


@dataclass
class Outcome:
    """The result of a replay."""

    task: Task
    #: The failure of the repeated run; None if it did not fail.
    failure: Capsule | None
    #: The steps whose losses both have, and the first step at which they differ; None if all are equal.
    compared: int
    differs_at: int | None
    losses: tuple[float | None, float | None]
    #: The last step of the repeated run.
    reached: int
    same_error: bool
    #: How the data differs from the data of then.
    data_changes: str = ""

    @property
    def same(self) -> bool:
        """Return whether the replay is a repetition: the same error at the same step, or the steps, with equal bits."""
        if self.task.capsule is None:
            return self.failure is None and self.differs_at is None and self.reached >= self.task.last
        return self.same_error and self.differs_at is None

    def as_data(self) -> dict[str, Any]:
        """Return the result as plain data."""
        task, failed = self.task, self.failure
        batch = None if task.capsule is None else task.capsule.data["batch"]
        return {
            "run": str(task.source),
            "same": self.same,
            "from": None if task.checkpoint is None else task.checkpoint.name,
            "start": task.start,
            "steps": [task.first, task.last],
            "reached": self.reached,
            "processes": task.processes,
            "error": None if task.capsule is None else _error(task.capsule),
            "replayed_error": None if failed is None else _error(failed),
            "bits": {"compared": self.compared, "differ_at": self.differs_at},
            "batch": batch,
            "warnings": [*task.warnings, *self._data_warning()],
        }

    def lines(self) -> list[str]:
        """Return the result as lines."""
        task, failed = self.task, self.failure
        found = [f"replayed {task.source} from {task.begins_at}, steps {task.start + 1} to {self.reached}"]
        if task.capsule is not None:
            found.append(f"then: {_describe(task.capsule)}")
        found.append(f"now:  {'no error' if failed is None else _describe(failed)}")
        if failed is None and task.capsule is None and self.reached < task.last:
            found.append(f"training ended after step {self.reached}, before step {task.last}")
        if self.differs_at is not None:
            then, now = (_shown(loss) for loss in self.losses)
            found.append(f"the losses differ from step {self.differs_at}: {then} then, {now} now")
        elif self.compared:
            are = "loss of 1 step is" if self.compared == 1 else f"losses of {self.compared} steps are"
            found.append(f"the {are} equal to the bit")
        else:
            found.append("there are no losses to compare")
        found += [f"warning: {warning}" for warning in self._data_warning()]
        if task.capsule is not None:
            found.append("the failure was repeated" if self.same else "the failure was not repeated")
            if (batch := task.capsule.data["batch"]) is not None and batch.get("kind") == "samples":
                more = ", ..." if batch["size"] > len(batch["ids"][:20]) else ""
                found.append(f"samples of step {task.capsule.step}: {', '.join(map(str, batch['ids'][:20]))}{more}")
        return found

    def _data_warning(self) -> list[str]:
        return [f"the data is not as it was when the run began: {self.data_changes}"] * bool(self.data_changes)


def compare(task: Task, scratch: Path) -> Outcome:
    """Compare what is in the scratch folder with what the run has recorded."""
    found = [capsule.read(path) for path in capsule.find(scratch)]
    rank = 0 if task.capsule is None else task.capsule.rank
    of_rank = next((each for each in found if each.rank == rank), None)
    # If several processes fail in one step, another one may be the first here.
    failure = capsule.first_failure(found) if of_rank is None or of_rank.is_relayed else of_rank
    now = dict(enumerate(loss_bits.read(scratch), 1)) if rank == 0 else {}
    now |= bits_of(of_rank)
    then = bits_of_run(task)
    both = [step for step in sorted(then.keys() & now.keys()) if step > task.start]
    place = loss_bits.first_difference([then[step] for step in both], [now[step] for step in both])
    step = None if place is None else both[place]
    losses = (None, None) if step is None else (loss_bits.as_loss(then[step]), loss_bits.as_loss(now[step]))
    reached = max([task.start, *now]) if failure is None else max(failure.step, failure.data["position"]["iter"])
    same_error = (
        task.capsule is not None
        and failure is not None
        and (failure.step == task.capsule.step or died_in_worker(task.capsule))
        and _comparable(failure, scratch, task.folder) == _comparable(task.capsule, scratch, task.folder)
    )
    starts = [event for event in journal.read(scratch) if event["kind"] == "start"]
    changes = data_changes(task.data, starts[-1].get("data")) if starts else ""
    return Outcome(task, failure, len(both), step, losses, reached, same_error, changes)


def _comparable(failure: Capsule, scratch: Path, folder: Path) -> tuple[str, str, str]:
    error = failure.data["error"]
    return error["type"], comparable(error["text"], scratch, folder), error["hook"]


def _error(failure: Capsule) -> dict[str, Any]:
    error = failure.data["error"]
    return {
        **{name: error[name] for name in ("type", "text", "where", "hook")},
        **{"step": failure.step, "rank": failure.rank},
    }


def _describe(failure: Capsule) -> str:
    error = failure.data["error"]
    rank = f", rank {failure.rank}" if failure.data["processes"] > 1 else ""
    return f"{error['text']} (step {failure.step}, {error['where']}{rank})"


def _shown(loss: float | None) -> str:
    return "no loss" if loss is None else as_number(loss, 17)
