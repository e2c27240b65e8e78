"""The position of a run: counters of what is finished, as a few plain numbers."""

from __future__ import annotations

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

    def state_dict(self) -> dict[str, Any]:
        """Return the counters as plain data."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved position. Counters that the state does not have stay as they are."""
        for known in fields(self):
            if known.name in state:
                setattr(self, known.name, state[known.name])
