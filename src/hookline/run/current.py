"""Current: the batch of the current iteration, which the loop sets and hooks see."""

from __future__ import annotations

from typing import Any


class Current:
    """The current batch, and what ends with it."""

    __slots__ = ("batch", "ends_epoch", "ends_window", "weight")

    def __init__(self) -> None:
        #: The batch, on the device of the run. A `before_..._iter` may replace it.
        self.batch: Any = None
        self.begin_pass()

    def begin_pass(self) -> None:
        """Begin a pass over the data: nothing is known yet about its end."""
        #: True if the batch is the last one of its pass.
        self.ends_epoch = False
        #: True if an accumulation window has to end with the batch.
        self.ends_window = False
        #: The samples of the batch relative to a usual one; None if every process has a usual one.
        self.weight: float | None = None
