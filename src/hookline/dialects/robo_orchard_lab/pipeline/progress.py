"""Counters of a training, as hooks see them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass
class TrainerProgressState:
    """The counters that hooks get as arguments: epoch, step of the epoch and step of the run, from 0."""

    epoch_id: int = 0
    step_id: int = 0
    global_step_id: int = 0

    def state_dict(self) -> dict[str, int]:
        """Return the counters as plain data."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore saved counters."""
        for known in fields(self):
            setattr(self, known.name, int(state[known.name]))

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
