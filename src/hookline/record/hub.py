"""MessageHub: records every number of a run by name.

    hub.update_scalar("train/loss", loss)       # a tensor stays on its device until somebody reads it
    hub.get_scalar("train/loss").mean(10)       # the mean of the last ten values
    hub.update_info("stage", "warm-up")

Recording never waits for the device, and it does not get slower as the run gets longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import islice
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, cast

from hookline.common.escape import escaped
from hookline.common.numbers import count
from hookline.errors import ConfigError, HooklineError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

# The number of names that a repr shows.
SHOWN = 8

# The number of values of a name that are kept: enough for common smoothing windows, and little in a checkpoint.
KEPT = 1000


# The steps whose mean loss is shown at the end of a run. Every process saves this many of its own values.
LAST = 20

# The names of a stage's times, without the prefix.
TIMES = ("time", "data_time")


class Weighted(float):
    """A number that counts more or less than others in a mean: the loss of a batch with fewer samples counts less."""

    weight: float

    def __new__(cls, value: float, weight: float) -> Weighted:
        """Return a number with a weight; the usual weight is 1."""
        number = super().__new__(cls, value)
        number.weight = weight
        return number

    def __getnewargs__(self) -> tuple[float, float]:  # type: ignore[override]  # a float has only its value
        """Return what another process needs to create it again."""
        return float(self), self.weight


class Extreme(float):
    """A minimum or maximum. Several processes are combined by taking the least or the greatest one, not the mean."""

    rule: str

    def __new__(cls, value: float, rule: str) -> Extreme:
        """Return an extreme number; the rule is `min` or `max`."""
        number = super().__new__(cls, value)
        number.rule = rule
        return number

    def __getnewargs__(self) -> tuple[float, str]:  # type: ignore[override]  # a float has only its value
        """Return what another process needs to create it again."""
        return float(self), self.rule


PLAIN = frozenset({float, int, Weighted})

# Without a loop in Python, because every record does this.
_READ, _IS_ON_CPU = methodcaller("item"), attrgetter("is_cpu")


def _are_on_cpu(values: list[Any]) -> bool:
    """Return whether all values are tensors on the CPU."""
    try:
        return all(map(_IS_ON_CPU, values))
    except AttributeError:  # a numpy number
        return False


def is_known(value: Any) -> bool:
    """Return whether reading a value waits for nothing."""
    return value.__class__ in PLAIN or getattr(value, "is_cpu", True)


# The statistics that a history can compute over a window.
STATISTICS = ("mean", "min", "max", "current")


class History:
    """The newest values of one name.

    To record a value, do `values.append(number)` and `fresh += 1`. Pass anything but a float or an int through
    `recordable` first. `MessageHub.update_scalar` does exactly this. A hook that records at every step can keep the
    history and save the call.
    """

    __slots__ = ("fresh", "values")

    def __init__(self) -> None:
        self.values: deque[float | Tensor] = deque(maxlen=KEPT)
        #: The number of values that were recorded since `MessageHub.take` last took them.
        self.fresh = 0

    def last(self, window: int | None = None) -> list[float]:
        """Return the newest values as floats, oldest first. Wait for the device only once for all of them."""
        if window is not None and (not isinstance(window, int) or window < 1):
            raise HooklineError(f"window is how many of the newest values to use, an int of at least 1, not {window!r}")
        values: Any = self.values
        if window is None or window >= len(values):
            newest = list(values)
        else:
            newest = list(islice(reversed(values), window))
            newest.reverse()
        return newest if PLAIN.issuperset(map(type, newest)) else read_numbers(newest)

    def current(self) -> float:
        """Return the newest value."""
        value: Any = self.values[-1]
        if value.__class__ not in PLAIN:
            value = value.item()
        return value  # type: ignore[no-any-return]  # a number

    def mean(self, window: int | None = None) -> float:
        """Return the mean of the newest `window` values, or of all that are kept."""
        return mean_of(self.last(window))

    def min(self, window: int | None = None) -> float:
        """Return the minimum of the newest `window` values, or of all that are kept."""
        return min(_counted(self.last(window)))

    def max(self, window: int | None = None) -> float:
        """Return the maximum of the newest `window` values, or of all that are kept."""
        return max(_counted(self.last(window)))

    def statistics(self, method: str | Callable[[list[float]], Any], window: int | None = None) -> Any:
        """Apply a method of this class or any function to the newest `window` values, or to all that are kept.

        >>> history = History()
        >>> history.values.extend([1.0, 5.0, 3.0])
        >>> history.statistics("mean"), history.statistics(sorted)[1], history.statistics("max", 1)
        (3.0, 3.0, 3.0)
        """
        if callable(method):
            return method(self.last(window))
        if method not in STATISTICS:
            raise HooklineError(f"unknown statistics method '{method}'; {did_you_mean(method, STATISTICS)}")
        return self.current() if method == "current" else getattr(self, method)(window)

    def keep(self, number: int) -> None:
        """Keep at least this many values."""
        if number > (self.values.maxlen or 0):
            self.values = deque(self.values, maxlen=number)

    def __len__(self) -> int:
        return len(self.values)


def _counted(values: list[float]) -> list[float]:
    """Return the values without the values of weight 0, unless there are no others."""
    if Weighted not in set(map(type, values)):
        return values
    return [float(value) for value in values if not isinstance(value, Weighted) or value.weight] or values


def mean_of(values: list[float]) -> float:
    """Return the mean of some values. If any of them is weighted, so is the mean.

    >>> mean_of([1.0, 2.0]), mean_of([1.0, Weighted(4.0, 0.5)]), mean_of([Weighted(3.0, 0.0)])
    (1.5, 2.0, 3.0)
    """
    if Weighted not in set(map(type, values)):
        return sum(values) / len(values)
    weights = [value.weight if isinstance(value, Weighted) else 1.0 for value in values]
    total = sum(weights)
    mean = sum(value * weight for value, weight in zip(values, weights, strict=True)) / (total or 1.0)
    return Weighted(mean if total else values[-1], total)


@lru_cache(maxsize=10_000)  # every record asks this for every name
def belongs(name: str, prefix: str) -> bool:
    """Return whether a name is under a prefix. Names outside `train/`, `val/` and `test/` belong to `train/`.

    >>> belongs("train/loss", "train/"), belongs("gan/real", "train/"), belongs("val/loss", "train/")
    (True, True, False)
    """
    return name.startswith(prefix) or (prefix == "train/" and not name.startswith(("val/", "test/")))


def recordable(value: Any) -> float | Tensor | None:
    """Return a number as the hub keeps it: plain, or a detached tensor on its device. None for anything else.

    A tensor is copied if it shares memory with others or if its value may still change, as a weight does.
    A result that a step has just computed is kept without a copy.
    """
    if value.__class__ in PLAIN:
        return cast("float", value)
    if not hasattr(value, "detach"):
        return _plain_number(value)
    if value.numel() != 1 or value.is_complex():
        return None
    if not value.requires_grad:
        return cast("Tensor", value.clone())
    computed = value.grad_fn is not None and value.untyped_storage().nbytes() == value.element_size()
    kept: Tensor = value.detach() if computed else value.detach().clone()
    return kept


def _plain_number(value: Any) -> float | None:
    """Return the number in a numpy object or in an instance of any other class, or None."""
    if isinstance(value, (int, float)):
        return float(value) if isinstance(value, float) else int(value)
    try:
        number = value.item()
    except (AttributeError, TypeError, ValueError):
        return None
    return cast("float", number) if number.__class__ in PLAIN else None


def read_numbers(values: Iterable[Any]) -> list[Any]:
    """Return numbers and tensors with one element as numbers. Wait for the device only once for all of them."""
    values = list(values)
    kinds = set(map(type, values))
    if kinds <= PLAIN:
        return values
    if kinds.isdisjoint(PLAIN) and _are_on_cpu(values):
        return list(map(_READ, values))
    tensors = [value for value in values if value.__class__ not in PLAIN]
    if all(getattr(tensor, "is_cpu", True) for tensor in tensors):  # may include numpy numbers
        return [value if value.__class__ in PLAIN else value.item() for value in values]
    import torch

    groups: dict[Any, list[Tensor]] = {}
    for tensor in map(torch.as_tensor, tensors):
        if tensor.is_meta:
            raise ConfigError(
                "a tensor on the device 'meta' cannot be recorded, because it has no value; check what the step "
                "returns and what hooks record"
            )
        groups.setdefault((tensor.dtype, tensor.device), []).append(tensor.reshape(()))
    # One transfer per type and device, not one per value.
    read = {kind: iter(torch.stack(stacked).tolist()) for kind, stacked in groups.items()}
    order = iter([(tensor.dtype, tensor.device) for tensor in map(torch.as_tensor, tensors)])
    return [value if value.__class__ in PLAIN else next(read[next(order)]) for value in values]


def _no_number(name: str, value: Any) -> HooklineError:
    """Return the error about a value that is not a number."""
    shape = getattr(value, "shape", ())
    kind = "a tensor" if hasattr(value, "detach") else f"a {type(value).__name__}"
    shown = f"{kind} of shape {tuple(shape)}" if shape else repr(value)
    return HooklineError(f"the scalar '{escaped(name)}' must be a number or a tensor with one element, not {shown}")


class MessageHub:
    """Holds scalars with their history, and facts about the run (`info`) that only have a current value."""

    def __init__(self) -> None:
        self._scalars: dict[str, History] = {}
        #: Facts by name. Set them with `update_info`, which also controls whether checkpoints include them.
        self.info: dict[str, Any] = {}
        self._not_resumed: set[str] = set()
        self._kept = KEPT

    def __repr__(self) -> str:
        names = [escaped(name) for name in self.scalars]
        more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        listed = f" ({', '.join(names[:SHOWN])}{more})" if names else ""
        return f"<{type(self).__name__}: {count(len(names), 'scalar')}{listed}, {count(len(self.info), 'fact')}>"

    def update_scalar(self, name: str, value: float | Tensor, *, resumed: bool = True) -> None:
        """Record one number, or a tensor with one element, which is read only when needed.

        `resumed=False` keeps the name out of checkpoints; passing it once is enough.
        """
        if value.__class__ not in PLAIN:
            original, value = value, recordable(value)  # type: ignore[assignment]  # None is refused
            if value is None:
                raise _no_number(name, original)
        history = self._scalars.get(name)
        if history is None:
            if hasattr(value, "is_complex") and value.is_complex():  # only here, because a step must not pay for it
                raise _no_number(name, value)
            history = self.history(name)
        if not resumed:
            self._not_resumed.add(name)
        history.values.append(value)
        history.fresh += 1

    def mark_written(self, name: str) -> None:
        """Note that the newest value of a name was given to the writers, so that LoggerHook does not do it again."""
        self._scalars[name].fresh -= 1

    def update_scalars(self, values: Mapping[str, float | Tensor], prefix: str = "") -> None:
        """Record several numbers at once."""
        for name, value in values.items():
            self.update_scalar(prefix + name, value)

    def history(self, name: str) -> History:
        """Return the history to record a name in; create it if needed. It stays the same object while the hub lives."""
        history = self._scalars.get(name)
        if history is None:
            history = self._scalars[name] = History()
            history.keep(self._kept)
        return history

    def keep(self, number: int) -> None:
        """Keep at least this many values of every name, instead of 1,000."""
        self._kept = max(self._kept, number)
        for history in self._scalars.values():
            history.keep(number)

    def get_scalar(self, name: str) -> History:
        """Return the history of a name; refuse an unknown name and suggest the nearest one."""
        if not len(self._scalars.get(name, ())):
            raise HooklineError(f"nothing is recorded as '{escaped(name)}'; {did_you_mean(name, self._scalars)}")
        return self._scalars[name]

    def known(self, name: str, window: int | None = None) -> list[float]:
        """Return the newest numbers of a name, oldest first, as far as they are known without waiting for a device.

        Values that are still on a device are left out, and a name without any numbers has an empty list. Any thread may
        call this during a run.
        """
        history = self._scalars.get(name)
        # A copy is made in one go, while another thread cannot record.
        newest: Iterable[Any] = reversed(history.values.copy()) if history is not None else ()
        return read_numbers(islice(filter(is_known, newest), window))[::-1]

    @property
    def scalars(self) -> Mapping[str, History]:
        """Return all histories that have at least one value, by name."""
        return {name: history for name, history in self._scalars.items() if history.values}

    def read(self, prefix: str) -> None:
        """Convert all new values under a prefix to numbers, waiting for the device only once."""
        waiting: list[tuple[deque[float | Tensor], int]] = []
        unread: list[Any] = []
        for name, history in self._scalars.items():
            fresh, values = history.fresh, history.values
            # The newest one tells: a name is recorded as numbers or as tensors. Others are read when they are used.
            if fresh > 0 and values and values[-1].__class__ not in PLAIN and belongs(name, prefix):
                newest = list(islice(reversed(values), fresh))
                unread += newest
                waiting.append((values, len(newest)))
        if not waiting:
            return
        numbers = iter(read_numbers(unread))
        for values, length in waiting:
            read = list(islice(numbers, length))
            for _ in range(length):
                values.pop()
            values.extend(reversed(read))

    def take(self, prefix: str, fewer_than: int | None = None) -> dict[str, tuple[History, int]]:
        """Return the histories under a prefix with values since they were last taken, and how many are new.

        `fewer_than` leaves out histories with this many new values or more; they stay new.
        """
        taken = {}
        for name, history in self._scalars.items():
            if history.fresh and belongs(name, prefix) and (fewer_than is None or history.fresh < fewer_than):
                taken[name] = (history, history.fresh)
                history.fresh = 0
        return taken

    def update_info(self, name: str, value: Any, *, resumed: bool = True) -> None:
        """Set a fact. `resumed=False` keeps it out of checkpoints, which can only hold tensors and plain data."""
        if resumed:
            from hookline.common.plain import check_plain  # it imports torch

            check_plain(value, f"the fact '{name}' (saved in checkpoints unless update_info has resumed=False)")
        else:
            self._not_resumed.add(name)
        self.info[name] = value

    def get_info(self, name: str, default: Any = None) -> Any:
        """Return a fact, or the default if it is not set."""
        return self.info.get(name, default)

    def state_dict(self) -> dict[str, Any]:
        """Return the histories and facts as plain data and tensors."""
        import torch

        scalars: dict[str, dict[str, Any]] = {}
        for name, history in self.scalars.items():
            if name in self._not_resumed:
                continue
            values = history.last()
            # Keep the numbers, so that the next save need not read the device again.
            history.values = deque(values, maxlen=history.values.maxlen)
            kinds = set(map(type, values))
            kept = values if int in kinds else torch.tensor(values, dtype=torch.float64)  # a list keeps ints as ints
            scalars[name] = {"values": kept, "fresh": history.fresh}
            if Weighted in kinds:
                weights = {place: value.weight for place, value in enumerate(values) if isinstance(value, Weighted)}
                scalars[name]["weights"] = weights
        info = {name: value for name, value in self.info.items() if name not in self._not_resumed}
        return {"scalars": scalars, "info": info}

    def newest_state(self) -> dict[str, Any]:
        """Return only the values that were not taken yet, and some before: the state that differs per process."""
        state = self.state_dict()
        for saved in state["scalars"].values():
            first = max(len(saved["values"]) - max(saved["fresh"], LAST), 0)
            saved["values"] = saved["values"][first:]
            weights = {place - first: weight for place, weight in saved.pop("weights", {}).items() if place >= first}
            if weights:
                saved["weights"] = weights
        return {"scalars": state["scalars"], "info": {}}

    def load_newest_state(self, state: dict[str, Any] | None) -> None:
        """Restore the newest values from `newest_state`. Without a state, drop the values that were not taken yet."""
        saved = MessageHub()
        if state is not None:
            saved.load_state_dict(state)
        for name, history in self._scalars.items():
            theirs = saved._scalars.get(name)
            dropped = history.fresh if theirs is None else max(history.fresh, len(theirs))
            for _ in range(min(dropped, len(history.values))):
                history.values.pop()
            history.fresh = 0
        for name, theirs in saved._scalars.items():
            history = self.history(name)
            history.values.extend(theirs.values)
            history.fresh = theirs.fresh

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned. Names kept out of checkpoints stay unchanged."""
        for name, history in self._scalars.items():
            if name not in self._not_resumed:
                history.values.clear()
                history.fresh = 0
        for name, saved in state["scalars"].items():
            history = self.history(name)
            values = saved["values"]
            history.values.extend(values if isinstance(values, list) else values.tolist())
            for place, weight in saved.get("weights", {}).items():
                history.values[place] = Weighted(float(history.values[place]), weight)
            history.fresh = saved["fresh"]
        self.info.update(state["info"])
