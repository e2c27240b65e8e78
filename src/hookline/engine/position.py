"""Where a run stands: everything the loop needs to go on, as a few plain numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass
class Position:
    """Counters of what is finished.

    `batch` counts the batches of the current pass over the data. A position with `batch` at the end of the pass and the
    epoch not yet counted means that the epoch's end points are still to come.
    """

    epoch: int = 0
    iter: int = 0
    batch: int = 0
    #: Finished validations, and the iteration validated last: a run killed between save and validation owes one.
    validations: int = 0
    validated_at: int = -1
    #: A hook asked for a validation that has not come yet.
    val_requested: bool = False
    #: Why a hook asked to stop, and whether the iteration or the epoch is to be finished first.
    stop_asked: str = ""
    stop_when: str = "iter"
    #: Why training was ended before its time, and by which hook; empty while it goes on. A stop for now ends this run,
    #: and one that is resumed goes on.
    stopped: str = ""
    stopped_by: str = ""
    #: The parameters of that hook, as text: with others, the run may go on.
    stopped_with: str = ""
    stopped_for_now: bool = False
    #: A stop for good at the end of the epoch, and by which hook, that has to wait for the run that goes on.
    stop_later: str = ""
    stop_later_by: str = ""

    def go_on(self) -> None:
        """After a stop: training goes on, up to a stop that waited."""
        if not self.stopped:
            return
        self.stopped, self.stopped_by, self.stopped_with, self.stopped_for_now = "", "", "", False
        if self.stop_later:
            self.stop_asked, self.stop_when, self.stopped_by = self.stop_later, "epoch", self.stop_later_by
            self.stop_later = self.stop_later_by = ""

    def state_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved position; what a later version has added to it is left alone."""
        for known in fields(self):
            if known.name in state:
                setattr(self, known.name, state[known.name])
