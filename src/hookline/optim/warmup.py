"""Warmup: a linear rise of the learning rate at the start, for any scheduler.

Optim(optimizer, schedulers=[StepLR(optimizer, 30), Warmup(optimizer, 500)])
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from torch.optim.lr_scheduler import LRScheduler

from hookline.errors import ConfigError
from hookline.optim.hyperparameters import set_rate
from hookline.optim.lengths import check_share, steps_of
from hookline.optim.nesting import inside, walk
from hookline.optim.schedules import Schedule

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


class Warmup(LRScheduler):
    """Raises the rate linearly at the start, whatever the other schedulers of the same Optim do.

    The other schedulers step as usual, and the rate that they set is multiplied by 1/(n + 1), 2/(n + 1), ..., until it
    is the full rate after n steps. They may step per iteration, epoch or validation.

    Args:
        optimizer: The optimizer.
        steps: The length of the warmup: a number of steps (an int), or a share of the training (a float below 1).
    """

    default_when: ClassVar[str] = "iter"

    def __init__(self, optimizer: Optimizer, steps: float) -> None:
        check_share("Warmup: steps", steps)
        self.asked = steps
        #: The number of steps; 0 as long as it is not known.
        self.steps = 0
        #: The rates without the warmup; empty until the training starts.
        self.rates: list[float] = []
        self._last_lr: list[float | Tensor] = []
        super().__init__(optimizer)

    @property
    def is_over(self) -> bool:
        """Return whether the rate is the one that the other schedulers set."""
        return self.last_epoch >= self.steps

    def begin(self, length: int | None, unit: str) -> None:
        """Apply the warmup to the rates of the first step. The other schedulers must exist by now.

        `length` is the length of the training; None if it is unknown.
        """
        if self.rates:
            return
        if length is None and isinstance(self.asked, float):
            raise ConfigError(
                "Warmup: a share of the training needs the length of the loader, which has none; set a number of steps"
            )
        self.steps = int(self.asked) if length is None else steps_of("Warmup: steps", self.asked, length, unit)
        self.rates = self._current()
        self._write()

    def step(self, epoch: int | None = None) -> None:
        """Raise the rate by one step."""
        if self.last_epoch >= 0 and not self.rates:
            raise ConfigError("a Warmup works only in an Optim of a Runner, which starts it: Optim(schedulers=[...])")
        if self.is_over:
            self.last_epoch += 1
            return
        if self.rates:
            self._notice_changes()
        self.last_epoch += 1
        if self.rates:
            self._write()

    def follow_groups(self) -> None:
        """Apply the warmup to groups that were added: their rates are the ones without it."""
        joined = self._current()[len(self.rates) :]
        if joined and self.rates and not self.is_over:
            self._notice_changes()
            self.rates += joined
            self._write()

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Let another scheduler step, from the rates without the warmup."""
        self._notice_changes()
        self._set(self.rates)
        try:
            yield
        finally:
            self.rates = self._current()
            self._write()

    def get_lr(self) -> list[float | Tensor]:
        """Return the current rates."""
        return list(self._current())

    def state_dict(self) -> dict[str, Any]:
        """Return the position and the rates, as plain data."""
        return {"last_epoch": self.last_epoch, "steps": self.steps, "rates": self.rates, "_last_lr": self._last_lr}

    def _factor(self) -> float:
        return 1.0 if self.is_over else (self.last_epoch + 1) / (self.steps + 1)

    def _notice_changes(self) -> None:
        """Keep a rate that a hook has set since the last step."""
        for number, (rate, written) in enumerate(zip(self._current(), self._last_lr, strict=False)):
            if rate != written:
                self.rates[number] = rate / self._factor()

    def _write(self) -> None:
        factor = self._factor()
        self._set([rate * factor for rate in self.rates])
        self._last_lr = list(self._current())

    def _set(self, rates: list[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=False):
            set_rate(group, rate)

    def _current(self) -> list[float]:
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def __repr__(self) -> str:
        return f"Warmup(steps={self.asked!r})"


def refuse_inside(scheduler: LRScheduler) -> None:
    """Refuse a Warmup, or a length that is not known yet, inside a scheduler that consists of others."""
    for outer, inner in [(type(each).__name__, inner) for _, each in walk(scheduler) for inner in inside(each)]:
        if isinstance(inner, Warmup):
            raise ConfigError(
                f"a Warmup cannot be inside {outer}, which sets the rate itself; put it next to it: "
                f"Optim(optimizer, schedulers=[{outer}(...), Warmup(...)])"
            )
        if isinstance(inner, Schedule) and not inner.length:
            raise ConfigError(f"{type(inner).__name__} inside {outer} needs a number as its length, not 'auto'")
