"""Data that is replaced during a run: another loader, dataset or batch size, from the next pass on.

A checkpoint cannot contain data. It contains what was replaced, and a resumed run refuses to train on other data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hookline.data.batches import length_of
from hookline.data.sources import as_resumable
from hookline.errors import DataError

HOW = (
    "a resumed run begins with the data that it is built with, so replace the data in before_train_epoch, as a "
    "function of runner.epoch or runner.iter"
)
#: The attribute that was set, by the name in a checkpoint.
NAMES = {"batch_size": "loader.batch_size", "samples": "loader.dataset", "batches": "train_loop.dataloader"}


class DataAtStart:
    """The data that a run begins with: its loader, and the sizes of a pass and of a batch of all processes."""

    def __init__(self, loader: Iterable[Any], batches: int | None) -> None:
        self._loader, self.batches, self.batch_size = loader, batches, samples_of_all(loader)

    def replaced_by(self, loader: Iterable[Any]) -> dict[str, int]:
        """Return what has been replaced since: the batch size, the samples, or all batches."""
        resumable = as_resumable(loader)
        found = {} if resumable is None else dict(resumable.replaced)
        if loader is not self._loader:
            found["batches"] = length_of(loader) or 0
        return found


def samples_of_all(loader: Iterable[Any]) -> int | None:
    """Return the number of samples of a full batch in all processes together; None if it is unknown."""
    resumable = as_resumable(loader)
    return None if resumable is None else resumable.samples_of_all


def refuse_other_data(then: Mapping[str, int], now: Mapping[str, int], in_epoch: bool) -> None:
    """Refuse to resume with other data: nothing was replaced yet, or, inside an epoch, by something else."""
    for name, value in then.items():
        if name not in now or (in_epoch and now[name] != value):
            found = now.get(name, "not replaced")
            raise DataError(
                f"the checkpoint was saved after {NAMES[name]} was replaced ({name}: {value}), but here it is {found}; "
                f"{HOW}"
            )


def is_malformed(state: Any) -> bool:
    """Return whether a saved description of replaced data is none."""
    return not isinstance(state, dict) or not all(
        name in NAMES and type(value) is int and 0 <= value < 1 << 63 for name, value in state.items()
    )
