"""HistoryBuffer: hookline's history of one number, with counts and custom statistics."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from hookline.dialects.mmengine.errors import ConfigKeyError, ConfigTypeError, ConfigValueError
from hookline.errors import did_you_mean
from hookline.record.history import History


class HistoryBuffer(History):
    """The newest values of one name, each with a count: the mean is the sum of values divided by the sum of counts.

    Args:
        log_history: The initial values.
        count_history: The counts of these values.
        max_length: The maximum number of values to keep. A hub keeps fewer.
    """

    __slots__ = ("_counts",)

    #: Custom statistics, by name.
    _statistics_methods: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __init__(self, log_history: Any = (), count_history: Any = (), max_length: int = 1_000_000) -> None:
        super().__init__()
        log_history, count_history = (np.asarray(each).reshape(-1).tolist() for each in (log_history, count_history))
        if len(log_history) != len(count_history):
            raise ConfigValueError(
                f"log_history and count_history must have the same length, not {len(log_history)} and "
                f"{len(count_history)}"
            )
        self.values = deque(log_history, maxlen=max_length)
        #: None while all counts are 1, so that recording stays cheap.
        self._counts: deque[float] | None = None
        if any(count != 1 for count in count_history):
            self._counts = deque(count_history, maxlen=max_length)

    @property
    def max_length(self) -> int:
        """Return how many values are kept."""
        return self.values.maxlen or 0

    @property
    def _log_history(self) -> np.ndarray[Any, Any]:
        return self.data[0]

    @property
    def _count_history(self) -> np.ndarray[Any, Any]:
        return self.data[1]

    def update(self, log_val: Any, count: int = 1) -> None:
        """Add a value and its count."""
        if np.ndim(log_val) or isinstance(log_val, str):
            raise ConfigTypeError(f"a HistoryBuffer takes single numbers, not {log_val!r}")
        if count != 1 and self._counts is None:
            self._counts = deque([1] * len(self.values), maxlen=self.values.maxlen)
        if self._counts is not None:
            self._fill_counts()
            self._counts.append(count)
        self.values.append(log_val)
        self.fresh += 1

    def _fill_counts(self) -> None:
        """Add a count of 1 for values that were not recorded by `update`."""
        if self._counts is not None:
            self._counts.extend([1] * max(len(self.values) - len(self._counts), 0))

    def counts(self, window_size: int | None = None) -> list[float]:
        """Return the counts of the newest values."""
        self._fill_counts()
        kept = list(self._counts) if self._counts is not None else [1.0] * len(self.values)
        return kept if window_size is None else kept[-window_size:]

    def set_counts(self, counts: Sequence[float]) -> None:
        """Restore saved counts."""
        self._counts = deque(counts, maxlen=self.values.maxlen)

    @property
    def has_counts(self) -> bool:
        """Return whether any count is not 1."""
        return self._counts is not None

    def keep(self, number: int) -> None:
        """Keep at least this many values."""
        super().keep(number)
        if self._counts is not None:
            self._fill_counts()
            self._counts = deque(self._counts, maxlen=self.values.maxlen)

    @property
    def data(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the values and their counts."""
        return np.array(self.last()), np.array(self.counts())

    def mean(self, window_size: int | None = None) -> float:
        """Return the mean of the newest values, weighted by their counts."""
        self._check_window(window_size)
        values = self.last(window_size)
        return sum(values) / (len(values) if self._counts is None else sum(self.counts(window_size)))

    def min(self, window_size: int | None = None) -> float:
        """Return the smallest of the newest values."""
        self._check_window(window_size)
        return super().min(window_size)

    def max(self, window_size: int | None = None) -> float:
        """Return the largest of the newest values."""
        self._check_window(window_size)
        return super().max(window_size)

    def current(self) -> float:
        """Return the newest value."""
        self._check_window(None)
        return super().current()

    def _check_window(self, window_size: int | None) -> None:
        if not self.values:
            raise ConfigValueError("this HistoryBuffer has no values yet; call update first")
        if window_size is not None and (not isinstance(window_size, int) or window_size < 1):
            raise ConfigValueError(
                f"window_size is the number of newest values to use; it must be an integer of at least 1, "
                f"not {window_size!r}"
            )

    @classmethod
    def register_statistics(cls, method: Callable[..., Any]) -> Callable[..., Any]:
        """Register a function `f(buffer, ...)` as a statistic under its own name."""
        cls._statistics_methods[method.__name__] = method
        return method

    def statistics(self, method_name: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]  # takes any arguments
        """Call a statistic by name, built-in or registered, with its arguments."""
        if callable(method_name):
            return super().statistics(method_name, *args, **kwargs)
        if method_name in self._statistics_methods:
            return self._statistics_methods[method_name](self, *args, **kwargs)
        if method_name not in ("mean", "min", "max", "current"):
            known = ["mean", "min", "max", "current", *self._statistics_methods]
            raise ConfigKeyError(f"unknown HistoryBuffer statistic '{method_name}'; {did_you_mean(method_name, known)}")
        if method_name == "current":
            return self.current()
        return getattr(self, method_name)(*args, **kwargs)
