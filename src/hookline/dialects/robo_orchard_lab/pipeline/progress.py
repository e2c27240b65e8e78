"""Counters of a training: the ones that hooks see, and the ones that a resumed run needs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any


class Counters:
    """Counters that can be saved and restored as plain data."""

    def state_dict(self) -> dict[str, int]:
        """Return the counters as plain data."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]  # all subclasses are dataclasses

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore saved counters."""
        for known in fields(self):  # type: ignore[arg-type]
            setattr(self, known.name, int(state[known.name]))


@dataclass
class TrainerProgressState(Counters):
    """The counters that hooks get as arguments: epoch, step of the epoch and step of the run, from 0."""

    epoch_id: int = 0
    step_id: int = 0
    global_step_id: int = 0

    def update_step(self) -> None:
        """Count one more finished step."""
        self.step_id += 1
        self.global_step_id += 1

    def update_epoch(self) -> None:
        """Count one more epoch that is finished, or that ended early because all steps are done."""
        self.epoch_id += 1
        self.step_id = 0

    def is_training_end(self, max_step: int | None, max_epoch: int | None) -> bool:
        """Return whether all steps or all epochs are done."""
        by_step = max_step is not None and self.global_step_id >= max_step
        return by_step or (max_epoch is not None and self.epoch_id >= max_epoch)


@dataclass
class Place(Counters):
    """The position in the data: finished passes, finished batches of the current pass, and steps of the run.

    A pass that `max_step` cut off is not finished, although the counters of the hooks show the next epoch. With a
    larger `max_step`, training continues in that pass.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
