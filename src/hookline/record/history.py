"""History: the values of one name. A tensor stays on its device until somebody reads it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import islice
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, cast

from hookline.common.escape import escaped
from hookline.errors import ConfigError, HooklineError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

# The number of values of a name that are kept: enough for common smoothing windows, and little in a checkpoint.
KEPT = 1000


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


def no_number(name: str, value: Any) -> HooklineError:
    """Return the error about a value that is not a number."""
    shape = getattr(value, "shape", ())
    kind = "a tensor" if hasattr(value, "detach") else f"a {type(value).__name__}"
    shown = f"{kind} of shape {tuple(shape)}" if shape else repr(value)
    return HooklineError(f"the scalar '{escaped(name)}' must be a number or a tensor with one element, not {shown}")
