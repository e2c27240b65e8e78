"""The log buffer: what a run records, kept in the native hub; and the base class of what writes it out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from hookline.dialects.imix.engine.hooks.base_hook import HookBase
from hookline.engine.numerics import refuse_infinite_loss
from hookline.errors import HooklineError, did_you_mean
from hookline.record.hub import PLAIN, MessageHub
from hookline.writers.values import plain_image, plain_values

if TYPE_CHECKING:
    from hookline.record.hub import History

#: Where the numbers of a buffer stand in the hub.
PREFIX = "train/"

_current: list[LogBufferStorage] = []


class NoLogBufferError(HooklineError, AssertionError):
    """There is no log buffer, because no engine is training."""


class NoHistoryError(HooklineError, KeyError):
    """Nothing was recorded under a name."""

    __str__ = Exception.__str__


def get_log_buffer() -> LogBufferStorage:
    """The buffer of the engine that is training now."""
    if not _current:
        raise NoLogBufferError("get_log_buffer() was called while no engine is training; use engine.log_buffer")
    return _current[-1]


def write_metrics(metrics: Mapping[str, Any]) -> None:
    """Record several numbers in the current buffer."""
    get_log_buffer().put_scalars(**metrics)


class HistoryBuffer:
    """The newest values of one name, over the native history."""

    def __init__(self, history: History) -> None:
        self._history = history

    def latest(self) -> float:
        """The newest value."""
        return self._history.current()

    def median(self, window_size: int) -> float:
        """The median of the newest so many."""
        values = sorted(self._history.last(window_size))
        middle = len(values) // 2
        return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2

    def avg(self, window_size: int) -> float:
        """The mean of the newest so many."""
        return self._history.mean(window_size)

    def global_avg(self) -> float:
        """The mean of all that are kept: at least the newest thousand."""
        return self._history.mean()

    def values(self) -> list[float]:
        """All that are kept, oldest first."""
        return self._history.last()

    def __len__(self) -> int:
        return len(self._history)


class Shown(NamedTuple):
    """An image or a histogram that waits for a writer."""

    name: str
    data: Any
    iter: int


class LogBufferStorage:
    """Numbers, images and histograms of a run, by name.

    A tensor stays on its device until somebody reads it. Numbers stand in the native hub as `train/<name>`, so they are
    in checkpoints, and a loss that is NaN or Inf ends the run.

    Args:
        hub: Where the numbers go; one of its own, unless given.
        keeps_images: Whether anybody takes images and histograms out; otherwise they are checked and dropped.
    """

    def __init__(self, hub: MessageHub | None = None, keeps_images: bool = False) -> None:
        self.hub = MessageHub() if hub is None else hub
        self.keeps_images = keeps_images
        self.iter = 0
        self.images: list[Shown] = []
        self.histograms: list[Shown] = []
        #: Counts the records that were taken out.
        self.clock = 0
        self._histories: dict[str, History] = {}
        self._put_at: dict[str, int] = {}
        self._smoothed: dict[str, bool] = {}
        self._of_epochs: dict[str, bool] = {}
        self._prefix = ""
        self._known: dict[tuple[str, int], float] = {}
        self._is_read = False

    # -- putting in

    def put_scalar(self, name: str, data: Any, smoothing_hint: bool = True, is_epoch: bool = False) -> None:
        """Record one number, or a tensor with one element.

        Without `smoothing_hint` a record has the newest value, and not the median of the newest; nor has it of a value
        that comes once an epoch.
        """
        if self._prefix:
            name = self._prefix + name
        history = self._histories.get(name)
        if history is None:
            self.hub.update_scalar(PREFIX + name, data)  # it checks what is given
            self._histories[name] = self.hub.history(PREFIX + name)
            self._smoothed.setdefault(name, smoothing_hint and not is_epoch)
            self._of_epochs.setdefault(name, is_epoch)
        else:  # as the hub does it, without the calls
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
        """An image, or several as a grid: anything that `hookline.record.images` knows."""
        image = plain_image(name, data)
        if self.keeps_images:
            self.images.append(Shown(self._prefix + name, image, self.iter))

    def put_histogram(self, name: str, data: Any) -> None:
        """How the numbers of a tensor, an array or a list are distributed."""
        values = plain_values(name, data)
        if self.keeps_images:
            self.histograms.append(Shown(self._prefix + name, values, self.iter))

    def clear_images(self) -> None:
        """Forget the images."""
        self.images.clear()

    def clear_histograms(self) -> None:
        """Forget the histograms."""
        self.histograms.clear()

    @contextmanager
    def name_scope(self, name: str) -> Iterator[None]:
        """In here, `name/` stands before every name."""
        before, self._prefix = self._prefix, name.rstrip("/") + "/"
        try:
            yield
        finally:
            self._prefix = before

    # -- taking out

    def history(self, name: str) -> HistoryBuffer:
        """The values of a name; an unknown one is refused with the nearest."""
        if name not in self._put_at:
            raise NoHistoryError(f"nothing is recorded as '{name}'; {did_you_mean(name, self._put_at)}")
        return HistoryBuffer(self.hub.get_scalar(PREFIX + name))

    def __contains__(self, name: str) -> bool:
        return name in self._put_at

    def comes_every_iteration(self, name: str) -> bool:
        """Whether a name is recorded, and not once an epoch."""
        return not self._of_epochs.get(name, True)

    def histories(self) -> dict[str, HistoryBuffer]:
        """The values of all names."""
        return {name: self.history(name) for name in self._put_at}

    def latest(self) -> dict[str, float]:
        """The newest value of every name."""
        return {name: self.hub.get_scalar(PREFIX + name).current() for name in self._put_at}

    def latest_with_smoothing_hint(
        self, window_size: int = 20, since: int = -1, of_epochs: bool = False
    ) -> dict[str, float]:
        """Every name with the median of its newest values, or, where that was asked for, the newest.

        `since` leaves out what was recorded no later than then, as `clock` counts; `of_epochs` all but what comes once
        an epoch.
        """
        return {
            name: self._shown(name, window_size)
            for name, at in self._put_at.items()
            if at > since and (self._of_epochs[name] or not of_epochs)
        }

    def _shown(self, name: str, window_size: int) -> float:
        key = (name, window_size)
        if key not in self._known:
            history = self.history(name)
            self._known[key] = history.median(window_size) if self._smoothed[name] else history.latest()
        value = self._known[key]
        if not self._is_read:
            self._known.clear()
        return value

    @contextmanager
    def being_read(self) -> Iterator[None]:
        """In here nothing is put in, so what several loggers ask for is worked out once."""
        self._is_read = True
        try:
            yield
        finally:
            self._is_read = False
            self._known.clear()

    def state_dict(self) -> dict[str, Any]:
        """Which names there are and which of them are in no record yet; the numbers are in the hub's state."""
        known: dict[str, dict[str, Any]] = {
            "put_at": self._put_at,
            "smoothed": self._smoothed,
            "of_epochs": self._of_epochs,
        }
        return {"clock": self.clock, **{name: dict(each) for name, each in known.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.clock, self._put_at = state["clock"], dict(state["put_at"])
        self._smoothed, self._of_epochs = dict(state["smoothed"]), dict(state["of_epochs"])

    def __enter__(self) -> LogBufferStorage:
        _current.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _current.remove(self)


class LogBufferWriter(HookBase):
    """Writes the buffer out: a subclass has `process_buffer_data`, which finds it as `self.log_buffer`.

    It is one of the loggers of a PeriodicLogger, or a hook by itself, with the same schedule.
    """

    window_size = 20
    #: Whether it takes images and histograms out of the buffer.
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
        """Find the buffer."""
        self.log_buffer = self.trainer.log_buffer if self._trainer is not None else get_log_buffer()

    def process_buffer_data(self) -> None:
        """Write what is in the buffer."""
        raise NotImplementedError(f"{type(self).__name__} has no process_buffer_data() that writes the buffer out")

    def news(self) -> dict[str, float]:
        """What is new since the last record; when training is over, of that what comes once an epoch."""
        of_epochs = self._trainer is not None and self.trainer.is_over
        return self.log_buffer.latest_with_smoothing_hint(self.window_size, self._seen, of_epochs)

    def write_rest(self) -> None:
        """Training is over: what the last epoch gave after the last record is not lost."""
        self.get_buffer_data()
        if self.news():
            self.write()

    def close(self) -> None:
        """Training is over."""

    def after_train_iter(self) -> None:
        """As a hook by itself: a record, when it is due."""
        if record_is_due(self.trainer, None):
            write_all(self.trainer, [self])

    def after_train(self) -> None:
        """As a hook by itself."""
        self.close()
        self.trainer.log_buffer.clock += 1

    def state_dict(self) -> dict[str, Any]:
        """What was seen last."""
        return {"seen": self._seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._seen = state["seen"]


def record_is_due(trainer: Any, period: int | None) -> bool:
    """By epochs, every so many iterations of each; by iterations, every so many and after the last."""
    wanted = trainer.log_period or period or 10
    if trainer.by_epoch:
        return bool((trainer.inner_iter + 1) % wanted == 0)
    done = trainer.iter + 1
    return bool(done % wanted == 0 or done == trainer.max_iter)


def write_all(trainer: Any, loggers: list[Any]) -> None:
    """One record by each, if the loss is a number; what is recorded from here on is for the next."""
    refuse_infinite_loss(trainer.runner, trainer.iter + 1)
    with trainer.log_buffer.being_read():
        for logger in loggers:
            logger.write()
    trainer.log_buffer.clock += 1
    trainer.runner.hub.take(PREFIX)
