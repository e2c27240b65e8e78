"""The records of a training: metrics.jsonl, with the names that native runs use, for reports and comparisons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hookline.common.durations import clock
from hookline.writers.base import Records
from hookline.writers.jsonl import JsonlWriter
from hookline.writers.router import Writers

if TYPE_CHECKING:
    from hookline.dialects.robo_orchard_lab.pipeline.hook_based_trainer import HookBasedTrainer
    from hookline.writers.base import Outcome

#: The number of steps between two records.
INTERVAL = 10


class StepRecords(Records):
    """Writes the loss, the learning rate and the times every ten steps, and at the end of an epoch."""

    def __init__(self, trainer: HookBasedTrainer) -> None:
        self._trainer = trainer
        self.writers = Writers([JsonlWriter()], main=trainer.accelerator.is_main_process)
        #: True while there is a folder to write to. Without one, records would only fill the memory.
        self.is_open = False
        self.measure()

    def files(self) -> Iterable[str]:
        """Return the file of the records."""
        return self.writers.files()

    def files_cut_back(self) -> Iterable[str]:
        """Return the file of the records, which is cut back when the run resumes."""
        return self.writers.files_cut_back()

    def begin(self, work_dir: Path, experiment_name: str, resuming: bool = False) -> None:
        """Open the records in the folder of the run."""
        self.writers.begin(work_dir, experiment_name, resuming)
        self.is_open = bool(self.writers.deliveries)

    def close(self, outcome: Outcome = "finished") -> None:
        """Close the records."""
        self.is_open = False
        self.writers.close(outcome)

    def measure(self) -> None:
        """Start to measure the time of steps at the current position."""
        trainer = self._trainer
        self._since = trainer.position.iter
        #: The number of finished steps at which the next record is due; infinite if there is none.
        self.due = self._since - self._since % INTERVAL + INTERVAL if self.is_open else math.inf
        self._clock, self._saving, self._data = clock(), trainer.saving.seconds, self._waited

    @property
    def _waited(self) -> float:
        return self._trainer.plan.ledger.parts["data"].seconds

    def write(self, loss: Any) -> None:
        """Write a record of the steps since the last one, if there are any."""
        trainer = self._trainer
        steps = trainer.position.iter - self._since
        if steps and self.is_open:
            spent = clock() - self._clock - (trainer.saving.seconds - self._saving)
            numbers = {
                "epoch": trainer.trainer_progress_state.epoch_id + 1,
                **_rates(trainer.optimizer),
                "train/data_time": (self._waited - self._data) / steps,
                "train/time": spent / steps,
            }
            if isinstance(loss, torch.Tensor) and loss.numel() == 1:
                numbers["train/loss"] = float(loss)
            self.writers.write_scalars(numbers, trainer.position.iter)
        self.measure()

    def write_metrics(self, found: Any, step: int) -> None:
        """Write the numbers that a validation has returned, if it is a mapping with numbers."""
        items = found.items() if isinstance(found, Mapping) else ()
        numbers = {f"val/{name}": float(value) for name, value in items if isinstance(name, str) and _is_number(value)}
        if numbers and self.is_open:
            self.writers.write_scalars({"epoch": self._trainer.trainer_progress_state.epoch_id + 1, **numbers}, step)


def _rates(optimizer: Any) -> dict[str, float]:
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    return {"train/lr" if not number else f"train/lr_{number}": rate for number, rate in enumerate(rates)}


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not value.is_complex()
    return isinstance(value, Real) and not isinstance(value, bool)
