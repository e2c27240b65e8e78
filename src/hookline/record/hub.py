"""MessageHub: where every number of a run is recorded, by name.

    hub.update_scalar("train/loss", loss)       # a tensor stays on its device until somebody reads it
    hub.get_scalar("train/loss").mean(10)       # of the last ten
    hub.update_info("stage", "warm-up")

Recording costs the same however long the run is, and never waits for the device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from hookline.errors import HooklineError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

# How many values of a name are kept: more than any smoothing window, little in a checkpoint.
KEPT = 1000

PLAIN = frozenset({float, int})

# What a history can tell over a window, by name.
STATISTICS = ("mean", "min", "max", "current")


class History:
    """The newest values of one name.

    Recording is `values.append(number)` and `fresh += 1`; anything but a float or an int goes through `recordable`.
    `MessageHub.update_scalar` does just that; a hook that records at every step can hold on to the history and save
    itself the call.
    """

    __slots__ = ("fresh", "values")

    def __init__(self) -> None:
        self.values: deque[float | Tensor] = deque(maxlen=KEPT)
        #: How many values were recorded since this was last taken out.
        self.fresh = 0

    def last(self, window: int | None = None) -> list[float]:
        """The newest values as floats, oldest first; one wait for the device, however many they are."""
        if window is not None and (not isinstance(window, int) or window < 1):
            raise HooklineError(f"a window is how many of the newest values count, at least 1, not {window!r}")
        values = self.values
        newest = (
            list(values) if window is None or window >= len(values) else list(islice(reversed(values), window))[::-1]
        )
        for value in newest:
            if value.__class__ not in PLAIN:
                return read_numbers(newest)
        return cast("list[float]", newest)

    def current(self) -> float:
        """The newest value."""
        value = self.values[-1]
        return cast("float", value) if value.__class__ in PLAIN else cast("Tensor", value).item()

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

    def statistics(self, method: str | Callable[[list[float]], Any], window: int | None = None) -> Any:
        """The newest `window` values, or all that are kept, through a method of this class, or any function.

        >>> history = History()
        >>> history.values.extend([1.0, 5.0, 3.0])
        >>> history.statistics("mean"), history.statistics(sorted)[1], history.statistics("max", 1)
        (3.0, 3.0, 3.0)
        """
        if callable(method):
            return method(self.last(window))
        if method not in STATISTICS:
            raise HooklineError(f"a history has no statistics '{method}'; {did_you_mean(method, STATISTICS)}")
        return self.current() if method == "current" else getattr(self, method)(window)

    def keep(self, number: int) -> None:
        """Keep at least so many values."""
        if number > (self.values.maxlen or 0):
            self.values = deque(self.values, maxlen=number)

    def __len__(self) -> int:
        return len(self.values)


def belongs(name: str, prefix: str) -> bool:
    """Whether a name is under a prefix; what is under none of `train/`, `val/` and `test/` is training's.

    >>> belongs("train/loss", "train/"), belongs("gan/real", "train/"), belongs("val/loss", "train/")
    (True, True, False)
    """
    return name.startswith(prefix) or (prefix == "train/" and not name.startswith(("val/", "test/")))


def recordable(value: Any) -> float | Tensor | None:
    """A number as the hub keeps it: plain, or a tensor on its device, without its graph; None for anything else.

    A tensor is copied where its memory is not its own, or where somebody may still write into it, as into a weight.
    What a step has just computed is kept as it is.
    """
    if value.__class__ in PLAIN:
        return cast("float", value)
    if not hasattr(value, "detach"):
        return _plain_number(value)
    if value.numel() != 1:
        return None
    if not value.requires_grad:
        return cast("Tensor", value.clone())
    computed = value.grad_fn is not None and value.untyped_storage().nbytes() == value.element_size()
    kept: Tensor = value.detach() if computed else value.detach().clone()
    return kept


def _plain_number(value: Any) -> float | None:
    """The number in something of numpy or of a class of one's own."""
    if isinstance(value, (int, float)):
        return float(value) if isinstance(value, float) else int(value)
    try:
        found = value.item()
    except (AttributeError, TypeError, ValueError):
        return None
    return cast("float", found) if found.__class__ in PLAIN else None


def read_numbers(values: Iterable[Any]) -> list[Any]:
    """Numbers and tensors with one element as numbers; one wait for the device, however many they are."""
    values = list(values)
    tensors = [value for value in values if value.__class__ not in PLAIN]
    if all(getattr(tensor, "is_cpu", True) for tensor in tensors):  # numpy's numbers are among them, too
        return [value if value.__class__ in PLAIN else value.item() for value in values]
    import torch

    groups: dict[Any, list[Tensor]] = {}
    for tensor in map(torch.as_tensor, tensors):
        groups.setdefault((tensor.dtype, tensor.device), []).append(tensor.reshape(()))
    # One transfer a type, not one a value.
    read = {kind: iter(torch.stack(found).tolist()) for kind, found in groups.items()}
    kinds = iter([(tensor.dtype, tensor.device) for tensor in map(torch.as_tensor, tensors)])
    return [value if value.__class__ in PLAIN else next(read[next(kinds)]) for value in values]


class MessageHub:
    """Scalars with their history, and facts about the run (`info`) that have only a current value."""

    def __init__(self) -> None:
        self._scalars: dict[str, History] = {}
        #: Facts by name; `update_info` also says whether one is resumed.
        self.info: dict[str, Any] = {}
        self._not_resumed: set[str] = set()
        self._kept = KEPT

    def update_scalar(self, name: str, value: float | Tensor, *, resumed: bool = True) -> None:
        """Record one number, or a tensor with one element, which is read only when somebody asks.

        `resumed=False` keeps the name out of checkpoints; it is enough to say so once.
        """
        if value.__class__ not in PLAIN:
            given, value = value, recordable(value)  # type: ignore[assignment]  # None is refused
            if value is None:
                shape = getattr(given, "shape", ())
                kind = "a tensor" if hasattr(given, "detach") else f"a {type(given).__name__}"
                found = f"{kind} of shape {tuple(shape)}" if shape else repr(given)
                raise HooklineError(f"the scalar '{name}' must be a number or a tensor with one element, not {found}")
        history = self._scalars.get(name)
        if history is None:
            history = self.history(name)
        if not resumed:
            self._not_resumed.add(name)
        history.values.append(value)
        history.fresh += 1

    def update_scalars(self, values: Mapping[str, float | Tensor], prefix: str = "") -> None:
        """Record several numbers at once."""
        for name, value in values.items():
            self.update_scalar(prefix + name, value)

    def history(self, name: str) -> History:
        """The history to record a name in; it stays the same object as long as the hub lives."""
        history = self._scalars.get(name)
        if history is None:
            history = self._scalars[name] = History()
            history.keep(self._kept)
        return history

    def keep(self, number: int) -> None:
        """Keep at least so many values of every name; 1,000 unless somebody needs more."""
        self._kept = max(self._kept, number)
        for history in self._scalars.values():
            history.keep(number)

    def get_scalar(self, name: str) -> History:
        """The history of a name; an unknown one is refused with the nearest."""
        if not len(self._scalars.get(name, ())):
            raise HooklineError(f"nothing is recorded as '{name}'; {did_you_mean(name, self._scalars)}")
        return self._scalars[name]

    @property
    def scalars(self) -> Mapping[str, History]:
        """All histories that have a value, by name."""
        return {name: history for name, history in self._scalars.items() if history.values}

    def read(self, prefix: str) -> None:
        """Turn what is new under a prefix into numbers, with one wait for the device for all of it."""
        waiting = []
        for name, history in self._scalars.items():
            if history.fresh and belongs(name, prefix):
                values = history.values
                for place in range(-min(history.fresh, len(values)), 0):
                    if values[place].__class__ not in PLAIN:
                        waiting.append((values, place))
        numbers = read_numbers(values[place] for values, place in waiting)
        for (values, place), number in zip(waiting, numbers, strict=True):
            values[place] = number

    def take(self, prefix: str, fewer_than: int | None = None) -> dict[str, tuple[History, int]]:
        """The histories under a prefix that have something new since they were last taken, and how many values.

        `fewer_than` leaves those with so many new values, or more, where they are.
        """
        taken = {}
        for name, history in self._scalars.items():
            if history.fresh and belongs(name, prefix) and (fewer_than is None or history.fresh < fewer_than):
                taken[name] = (history, history.fresh)
                history.fresh = 0
        return taken

    def update_info(self, name: str, value: Any, *, resumed: bool = True) -> None:
        """Set a fact; `resumed=False` keeps it out of checkpoints, which hold tensors and plain data only."""
        if resumed:
            from hookline.common.plain import refuse_odd  # it needs torch

            refuse_odd(value, f"the fact '{name}' (resumed, unless update_info has resumed=False)")
        else:
            self._not_resumed.add(name)
        self.info[name] = value

    def get_info(self, name: str, default: Any = None) -> Any:
        """A fact, or the default where nobody has set it."""
        return self.info.get(name, default)

    def state_dict(self) -> dict[str, Any]:
        """The histories and facts as plain data and tensors."""
        import torch

        scalars = {}
        for name, history in self.scalars.items():
            if name in self._not_resumed:
                continue
            values = history.last()
            history.values.clear()
            history.values.extend(values)  # so that the next time they need not be read again
            whole = any(value.__class__ is int for value in values)  # an int is still one after a resume
            kept = values if whole else torch.tensor(values, dtype=torch.float64)
            scalars[name] = {"values": kept, "fresh": history.fresh}
        info = {name: value for name, value in self.info.items() if name not in self._not_resumed}
        return {"scalars": scalars, "info": info}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave; facts that are not resumed stay as they are."""
        for name, history in self._scalars.items():
            if name not in self._not_resumed:
                history.values.clear()
                history.fresh = 0
        for name, saved in state["scalars"].items():
            history = self.history(name)
            values = saved["values"]
            history.values.extend(values if isinstance(values, list) else values.tolist())
            history.fresh = saved["fresh"]
        self.info.update(state["info"])
