"""How far a training has come: as hooks are told it, and as a run that goes on needs it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any


class Counters:
    """Counters as plain data, and back."""

    def state_dict(self) -> dict[str, int]:
        """As plain data."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]  # all subclasses are dataclasses

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved place."""
        for known in fields(self):  # type: ignore[arg-type]
            setattr(self, known.name, int(state[known.name]))


@dataclass
class TrainerProgressState(Counters):
    """What hooks are told, by the names of their arguments: epoch, step of the epoch and step of the run, from 0."""

    epoch_id: int = 0
    step_id: int = 0
    global_step_id: int = 0

    def update_step(self) -> None:
        """One more step is done."""
        self.step_id += 1
        self.global_step_id += 1

    def update_epoch(self) -> None:
        """One more epoch is done, or was ended because all steps are done."""
        self.epoch_id += 1
        self.step_id = 0

    def is_training_end(self, max_step: int | None, max_epoch: int | None) -> bool:
        """Whether all steps or all epochs are done."""
        by_step = max_step is not None and self.global_step_id >= max_step
        return by_step or (max_epoch is not None and self.epoch_id >= max_epoch)


@dataclass
class Place(Counters):
    """Where in the data a training is: finished passes, batches of the current one, and steps of the run.

    A pass that `max_step` has cut off is not finished, whatever hooks are told: with more steps, it goes on there.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
