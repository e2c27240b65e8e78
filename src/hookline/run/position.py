"""The position of a run: counters of what is finished, as a few plain numbers."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass
class Position:
    """Count what is finished.

    `batch` counts the batches of the current pass over the data. If `batch` is at the end of the pass and the epoch is
    not counted yet, the end points of the epoch are still to come.
    """

    epoch: int = 0
    iter: int = 0
    batch: int = 0
    #: Finished validations, and the iteration that was validated last. A run that was killed between a save and the
    #: validation after it validates first when it resumes.
    validations: int = 0
    validated_at: int = -1
    #: The weight of the first batch of the run, which other batches are compared with; 0 before it.
    usual_weight: float = 0.0
    #: True while a loop of the user runs its own code after an epoch. If the run is killed there, it begins with that
    #: code when it resumes.
    between_epochs: bool = False

    def state_dict(self) -> dict[str, Any]:
        """Return the counters as plain data."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved position. Counters that the state does not have stay as they are."""
        for known in fields(self):
            if known.name in state:
                setattr(self, known.name, state[known.name])


class Span:
    """One call of `train()`: when it began and ended, and the counters at its beginning."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._ended: float | None = None
        self._first: Position | None = None
        self._start = (0, 0)

    def start_at(self, position: Position) -> None:
        """Note the counters at which training begins: in a resumed run, the counters of the checkpoint."""
        self._first, self._start = position, (position.epoch, position.iter)

    def end(self) -> None:
        """Note that it has ended."""
        self._ended = time.perf_counter()

    @property
    def is_over(self) -> bool:
        """Return whether it has ended."""
        return self._ended is not None

    @property
    def seconds(self) -> float:
        """Return how long it took, or takes so far."""
        return (self._ended or time.perf_counter()) - self._began

    def done(self, position: Position) -> tuple[int, int]:
        """Return the epochs and iterations that it has finished."""
        if self._first is None:
            return 0, 0
        return position.epoch - self._start[0], position.iter - self._start[1]


class CurrentWeight:
    """The weight of the current batch, relative to a usual one."""

    __slots__ = ("relative",)

    def __init__(self, relative: float | None = None) -> None:
        #: None for a usual batch.
        self.relative = relative


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
        self.weight = CurrentWeight()
