"""The log buffer, which keeps the records of a run in the native hub, and the base class of the loggers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from hookline.dialects.imix.engine.hooks.base_hook import HookBase
from hookline.errors import HooklineError, did_you_mean
from hookline.record.history import PLAIN
from hookline.record.hub import MessageHub
from hookline.writers.values import plain_image, plain_values

if TYPE_CHECKING:
    from hookline.record.history import History

#: The prefix in the hub for the numbers of a buffer.
PREFIX = "train/"

_current: list[LogBufferStorage] = []


class NoLogBufferError(HooklineError, AssertionError):
    """Raised when there is no log buffer, because no engine is training."""


class NoHistoryError(HooklineError, KeyError):
    """Raised when nothing is recorded under a name."""

    __str__ = Exception.__str__


def get_log_buffer() -> LogBufferStorage:
    """Return the log buffer of the engine that is training now."""
    if not _current:
        raise NoLogBufferError("get_log_buffer() works only while an engine is training; use engine.log_buffer instead")
    return _current[-1]


def write_metrics(metrics: Mapping[str, Any]) -> None:
    """Record several numbers in the current buffer."""
    get_log_buffer().put_scalars(**metrics)


class HistoryBuffer:
    """The newest values of one name, read from the native history."""

    def __init__(self, history: History) -> None:
        self._history = history

    def latest(self) -> float:
        """Return the newest value."""
        return self._history.current()

    def median(self, window_size: int) -> float:
        """Return the median of the newest `window_size` values."""
        values = sorted(self._history.last(window_size))
        middle = len(values) // 2
        return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2

    def avg(self, window_size: int) -> float:
        """Return the mean of the newest `window_size` values."""
        return self._history.mean(window_size)

    def global_avg(self) -> float:
        """Return the mean of all values that are kept: at least the newest thousand."""
        return self._history.mean()

    def values(self) -> list[float]:
        """Return all values that are kept, oldest first."""
        return self._history.last()

    def __len__(self) -> int:
        return len(self._history)


class PendingItem(NamedTuple):
    """An image or a histogram that no writer has taken yet."""

    name: str
    data: Any
    iter: int


class LogBufferStorage:
    """The numbers, images and histograms of a run, by name.

    A tensor stays on its device until its value is read. Numbers are kept in the native hub as `train/<name>`, so
    checkpoints contain them, and a loss that is NaN or Inf ends the run.

    Args:
        hub: The hub for the numbers. The default is a new one.
        keeps_images: Whether to keep images and histograms for a logger; otherwise they are checked and dropped.
    """

    def __init__(self, hub: MessageHub | None = None, keeps_images: bool = False) -> None:
        self.hub = MessageHub() if hub is None else hub
        self.keeps_images = keeps_images
        self.iter = 0
        self.images: list[PendingItem] = []
        self.histograms: list[PendingItem] = []
        #: The number of records written so far.
        self.clock = 0
        self._histories: dict[str, History] = {}
        self._put_at: dict[str, int] = {}
        self._smoothed: dict[str, bool] = {}
        self._of_epochs: dict[str, bool] = {}
        self._prefix = ""
        self._known: dict[tuple[str, int], float] = {}
        self._reading = False

    # -- recording

    def put_scalar(self, name: str, data: Any, smoothing_hint: bool = True, is_epoch: bool = False) -> None:
        """Record one number, or a tensor with one element.

        A record contains the median of the newest values. Without `smoothing_hint`, or with `is_epoch` (a value that is
        recorded once per epoch), it contains the newest value.
        """
        if self._prefix:
            name = self._prefix + name
        history = self._histories.get(name)
        if history is None:
            self.hub.update_scalar(PREFIX + name, data)  # it checks the value
            self._histories[name] = self.hub.history(PREFIX + name)
            self._smoothed.setdefault(name, smoothing_hint and not is_epoch)
            self._of_epochs.setdefault(name, is_epoch)
        else:  # the same work as in the hub, without its function calls
            if data.__class__ not in PLAIN:
                if not hasattr(data, "requires_grad"):
                    data = float(data)
                elif data.requires_grad:
                    data = data.detach()
            history.values.append(data)
            history.fresh += 1
        self._put_at[name] = self.clock

    def put_scalars(self, *, smoothing_hint: bool = True, is_epoch: bool = False, **numbers: Any) -> None:
        """Record several numbers."""
        for name, data in numbers.items():
            self.put_scalar(name, data, smoothing_hint, is_epoch)

    def put_image(self, name: str, data: Any) -> None:
        """Record an image, or several as a grid, in any form that `hookline.record.images` accepts."""
        image = plain_image(name, data)
        if self.keeps_images:
            self.images.append(PendingItem(self._prefix + name, image, self.iter))

    def put_histogram(self, name: str, data: Any) -> None:
        """Record the distribution of the numbers in a tensor, an array or a list."""
        values = plain_values(name, data)
        if self.keeps_images:
            self.histograms.append(PendingItem(self._prefix + name, values, self.iter))

    def clear_images(self) -> None:
        """Remove all images."""
        self.images.clear()

    def clear_histograms(self) -> None:
        """Remove all histograms."""
        self.histograms.clear()

    @contextmanager
    def name_scope(self, name: str) -> Iterator[None]:
        """Put `name/` before every name that is recorded inside this context."""
        before, self._prefix = self._prefix, name.rstrip("/") + "/"
        try:
            yield
        finally:
            self._prefix = before

    # -- reading

    def history(self, name: str) -> HistoryBuffer:
        """Return the values of a name. For an unknown name, the error suggests the nearest one."""
        if name not in self._put_at:
            raise NoHistoryError(f"nothing is recorded as '{name}'; {did_you_mean(name, self._put_at)}")
        return HistoryBuffer(self.hub.get_scalar(PREFIX + name))

    def __contains__(self, name: str) -> bool:
        return name in self._put_at

    def is_recorded_per_iteration(self, name: str) -> bool:
        """Return whether a name is recorded, and not just once per epoch."""
        return not self._of_epochs.get(name, True)

    def histories(self) -> dict[str, HistoryBuffer]:
        """Return the values of all names."""
        return {name: self.history(name) for name in self._put_at}

    def latest(self) -> dict[str, float]:
        """Return the newest value of every name."""
        return {name: self.hub.get_scalar(PREFIX + name).current() for name in self._put_at}

    def latest_with_smoothing_hint(
        self, window_size: int = 20, since: int = -1, of_epochs: bool = False
    ) -> dict[str, float]:
        """Return for every name the median of its newest values, or the newest value if it is not smoothed.

        Args:
            window_size: The number of newest values for the median.
            since: Skip the names that were last recorded at this `clock` or earlier.
            of_epochs: Return only the names that are recorded once per epoch.
        """
        return {
            name: self._smooth(name, window_size)
            for name, at in self._put_at.items()
            if at > since and (self._of_epochs[name] or not of_epochs)
        }

    def _smooth(self, name: str, window_size: int) -> float:
        key = (name, window_size)
        if key not in self._known:
            history = self.history(name)
            self._known[key] = history.median(window_size) if self._smoothed[name] else history.latest()
        value = self._known[key]
        if not self._reading:
            self._known.clear()
        return value

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Cache the smoothed values inside this context, because nothing is recorded while several loggers read."""
        self._reading = True
        try:
            yield
        finally:
            self._reading = False
            self._known.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return the names and when each was last recorded. The hub's state contains the numbers."""
        known: dict[str, dict[str, Any]] = {
            "put_at": self._put_at,
            "smoothed": self._smoothed,
            "of_epochs": self._of_epochs,
        }
        return {"clock": self.clock, **{name: dict(each) for name, each in known.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the names."""
        self.clock, self._put_at = state["clock"], dict(state["put_at"])
        self._smoothed, self._of_epochs = dict(state["smoothed"]), dict(state["of_epochs"])

    def __enter__(self) -> LogBufferStorage:
        _current.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _current.remove(self)


class LogBufferWriter(HookBase):
    """The base class of loggers. A subclass defines `process_buffer_data`, which writes out `self.log_buffer`.

    A logger belongs to a PeriodicLogger, or it is registered as a hook and follows the same schedule.
    """

    window_size = 20
    #: Whether the logger takes images and histograms from the buffer.
    takes_images = False
    log_buffer: LogBufferStorage
    _seen = -1
    _cleans_up = False

    def write(self) -> None:
        """Write one record."""
        self.get_buffer_data()
        self.process_buffer_data()
        self._seen = self.log_buffer.clock

    def get_buffer_data(self) -> None:
        """Set `self.log_buffer` to the current buffer."""
        self.log_buffer = self.trainer.log_buffer if self._trainer is not None else get_log_buffer()

    def process_buffer_data(self) -> None:
        """Write the contents of the buffer."""
        raise NotImplementedError(f"{type(self).__name__} must define process_buffer_data(), to write out the buffer")

    def new_values(self) -> dict[str, float]:
        """Return the values since the last record; after the end of training, only those recorded once per epoch."""
        of_epochs = self._trainer is not None and self.trainer.is_over
        return self.log_buffer.latest_with_smoothing_hint(self.window_size, self._seen, of_epochs)

    def write_remaining(self) -> None:
        """Write what the last epoch recorded after the last record, so that it is not lost."""
        self.get_buffer_data()
        if self.new_values():
            self.write()

    def close(self) -> None:
        """End the work of the logger, at the end of training."""

    def after_train_iter(self) -> None:
        """Write a record if one is due. Only for a logger that is registered as a hook."""
        if record_is_due(self.trainer, None):
            write_all(self.trainer, [self])

    def after_train(self) -> None:
        """Close the logger. Only for a logger that is registered as a hook."""
        self.close()
        self.trainer.log_buffer.clock += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the `clock` of the last record."""
        return {"seen": self._seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the `clock` of the last record."""
        self._seen = state["seen"]


def record_is_due(trainer: Any, period: int | None) -> bool:
    """Return whether a record is due.

    When training by epochs, the period is counted within each epoch. When training by iterations, there is also a
    record after the last iteration.
    """
    wanted = trainer.log_period or period or 10
    if trainer.by_epoch:
        return bool((trainer.inner_iter + 1) % wanted == 0)
    done = trainer.iter + 1
    return bool(done % wanted == 0 or done == trainer.max_iter)


def write_all(trainer: Any, loggers: list[Any]) -> None:
    """Write one record with each logger, and start the next record. Refuse a loss that is NaN or Inf."""
    trainer.runner.check_loss()
    with trainer.log_buffer.reading():
        for logger in loggers:
            logger.write()
    trainer.log_buffer.clock += 1
    trainer.runner.hub.take(PREFIX)
