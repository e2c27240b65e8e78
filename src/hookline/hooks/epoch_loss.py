"""The mean training loss of an epoch, added up where losses are read anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.record.history import Weighted

if TYPE_CHECKING:
    from hookline.record.history import History


class LossOfEpoch:
    """Adds up the losses of an epoch when they are logged, and the rest of them when the epoch ends."""

    def __init__(self) -> None:
        self._sum = self._weight = 0.0
        #: The number of values that were not logged yet, but are already added up.
        self._seen = 0
        #: The mean of the last epoch that was finished, with its weight; None before the first.
        self.mean: Weighted | None = None

    def take(self, history: History, logged: bool = False) -> None:
        """Add the new values. After this, the values of a record that is `logged` are no longer new."""
        new = history.fresh - self._seen
        if new > 0:
            self._add(history.last(min(new, len(history))))
        self._seen = 0 if logged else max(history.fresh, 0)

    def finish(self, history: History, reset: bool = True) -> None:
        """Set the mean of the epoch. Without `reset`, the epoch continues."""
        self.take(history)
        self.mean = Weighted(self._sum / self._weight, self._weight) if self._weight else None
        if reset:
            self._sum = self._weight = 0.0

    def _add(self, values: list[float]) -> None:
        if Weighted not in set(map(type, values)):
            self._sum, self._weight = sum(values, self._sum), self._weight + len(values)
            return
        for value in values:
            weight = value.weight if isinstance(value, Weighted) else 1.0
            self._sum += value * weight
            self._weight += weight

    def state_dict(self) -> dict[str, Any]:
        """Return the sums as plain numbers."""
        mean, weight = (None, 0.0) if self.mean is None else (float(self.mean), self.mean.weight)
        return {"sum": self._sum, "weight": self._weight, "seen": self._seen, "mean": mean, "weight_of_mean": weight}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the sums. Without a state, start from scratch."""
        self._sum, self._weight = float(state.get("sum", 0.0)), float(state.get("weight", 0.0))
        self._seen = int(state.get("seen", 0))
        mean = state.get("mean")
        self.mean = None if mean is None else Weighted(float(mean), float(state["weight_of_mean"]))
