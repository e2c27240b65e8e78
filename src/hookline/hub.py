"""MessageHub: where every number of a run is recorded, by name.

    hub.update_scalar("train/loss", loss)       # a tensor stays on its device until somebody reads it
    hub.get_scalar("train/loss").mean(10)       # of the last ten
    hub.update_info("stage", "warm-up")

Recording costs the same however long the run is, and never waits for the device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from hookline.errors import HooklineError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

# How many values of a name are kept: more than any smoothing window, little in a checkpoint.
KEPT = 1000

PLAIN = frozenset({float, int})


class History:
    """The newest values of one name."""

    __slots__ = ("fresh", "values")

    def __init__(self, values: Iterable[float] = ()) -> None:
        self.values: deque[float | Tensor] = deque(values, maxlen=KEPT)
        #: Whether something was recorded since this was last taken out.
        self.fresh = False

    def update(self, value: float | Tensor) -> None:
        """Record one value, without reading it."""
        self.values.append(value if value.__class__ in PLAIN else _detached(value))
        self.fresh = True

    def last(self, window: int | None = None) -> list[float]:
        """The newest values as floats, oldest first; one wait for the device, however many they are."""
        values = self.values
        count = len(values) if window is None else min(window, len(values))
        newest = list(islice(reversed(values), count))
        waiting = [index for index, value in enumerate(newest) if value.__class__ not in PLAIN]
        if waiting:
            for index, number in zip(waiting, _read([newest[index] for index in waiting]), strict=True):
                newest[index] = values[-1 - index] = number
        return cast("list[float]", newest[::-1])

    def current(self) -> float:
        """The newest value."""
        return self.last(1)[0]

    def mean(self, window: int | None = None) -> float:
        """The mean of the newest `window` values, or of all that are kept."""
        values = self.last(window)
        return sum(values) / len(values)

    def min(self, window: int | None = None) -> float:
        """The least of the newest `window` values, or of all that are kept."""
        return min(self.last(window))

    def max(self, window: int | None = None) -> float:
        """The greatest of the newest `window` values, or of all that are kept."""
        return max(self.last(window))

    def __len__(self) -> int:
        return len(self.values)


def _detached(value: Any) -> Any:
    """Without its graph, which would keep the activations of its step."""
    return value.detach() if hasattr(value, "detach") else float(value)


def _read(tensors: list[Any]) -> list[float]:
    import torch

    try:
        stacked = torch.stack(tensors)
    except RuntimeError:  # of several shapes, types or devices
        stacked = torch.stack([tensor.reshape(()).double().cpu() for tensor in tensors])
    numbers: list[float] = stacked.reshape(-1).double().tolist()
    return numbers


class MessageHub:
    """Scalars with their history, and facts about the run (`info`) that have only a current value."""

    def __init__(self) -> None:
        self._scalars: dict[str, History] = {}
        #: Facts by name; `update_info` also says whether one is resumed.
        self.info: dict[str, Any] = {}
        self._not_resumed: set[str] = set()

    def update_scalar(self, name: str, value: float | Tensor) -> None:
        """Record one number, or a tensor with one element, which is read only when somebody asks."""
        history = self._scalars.get(name)
        if history is None:
            history = self._new_scalar(name, value)
        history.values.append(value if value.__class__ in PLAIN else _detached(value))
        history.fresh = True

    def _new_scalar(self, name: str, value: Any) -> History:
        numel = getattr(value, "numel", None)
        if not isinstance(value, (int, float)) and (numel is None or numel() != 1):
            found = f"a tensor of shape {tuple(value.shape)}" if numel is not None else repr(value)
            raise HooklineError(f"the scalar '{name}' must be a number or a tensor with one element, not {found}")
        return self._scalars.setdefault(name, History())

    def update_scalars(self, values: Mapping[str, float | Tensor], prefix: str = "") -> None:
        """Record several numbers at once."""
        for name, value in values.items():
            self.update_scalar(prefix + name, value)

    def get_scalar(self, name: str) -> History:
        """The history of a name; an unknown one is refused with the nearest."""
        if name not in self._scalars:
            raise HooklineError(f"nothing is recorded as '{name}'; {did_you_mean(name, self._scalars)}")
        return self._scalars[name]

    @property
    def scalars(self) -> Mapping[str, History]:
        """All histories by name."""
        return self._scalars

    def take(self, prefix: str) -> dict[str, History]:
        """The histories under a prefix that have something new since they were last taken."""
        taken = {}
        for name, history in self._scalars.items():
            if history.fresh and name.startswith(prefix):
                history.fresh = False
                taken[name] = history
        return taken

    def update_info(self, name: str, value: Any, *, resumed: bool = True) -> None:
        """Set a fact; `resumed=False` keeps it out of checkpoints."""
        self.info[name] = value
        if not resumed:
            self._not_resumed.add(name)

    def get_info(self, name: str, default: Any = None) -> Any:
        """A fact, or the default where nobody has set it."""
        return self.info.get(name, default)

    def state_dict(self) -> dict[str, Any]:
        """The histories and facts as plain data and tensors."""
        import torch

        scalars = {}
        for name, history in self._scalars.items():
            scalars[name] = {"values": torch.tensor(history.last(), dtype=torch.float64), "fresh": history.fresh}
        info = {name: value for name, value in self.info.items() if name not in self._not_resumed}
        return {"scalars": scalars, "info": info}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave; facts that are not resumed stay as they are."""
        self._scalars.clear()
        for name, saved in state["scalars"].items():
            history = self._scalars[name] = History(saved["values"].tolist())
            history.fresh = saved["fresh"]
        self.info.update(state["info"])
