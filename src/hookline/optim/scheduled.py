"""Scheduled: a scheduler together with when it steps."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from hookline.errors import ConfigError, did_you_mean
from hookline.optim.hyperparameters import check_scheduler
from hookline.optim.lengths import UNITS
from hookline.optim.refusals import explain_schedule
from hookline.optim.warmup import Warmup, refuse_inside

When = Literal["epoch", "iter", "step", "val"]
WHENS: tuple[str, ...] = get_args(When)


def as_list(schedulers: Any) -> list[Any]:
    """Return schedulers as a list. Refuse a single one, also with when it steps."""
    if isinstance(schedulers, LRScheduler) or (
        isinstance(schedulers, tuple) and len(schedulers) > 1 and isinstance(schedulers[1], str)
    ):
        raise ConfigError("schedulers must be a list, also with one: schedulers=[StepLR(optimizer, 30)]")
    return list(schedulers)


@dataclass
class Scheduled:
    """A scheduler, and when it steps. At `val`, it steps on `monitor`, or on the first metric."""

    scheduler: LRScheduler
    when: When | None
    monitor: str | None = None
    #: The parameters that are `auto`, with the lengths that they stand for: `{"T_max": 40}`. A parameter of a
    #: nested scheduler has the name `schedulers.1.T_max`.
    auto: dict[str, int] = field(default_factory=dict)
    stepped: bool = False
    #: The warmup of the same optim.
    warmup: Warmup | None = None

    @classmethod
    def of(cls, given: Any) -> Scheduled:
        """Check and create it from a scheduler, alone or in a tuple with when it steps and its metric."""
        if isinstance(given, Scheduled):
            found = given
        else:
            found = cls(*(*given, None, None)[:3]) if isinstance(given, (tuple, list)) else cls(given, None)
        scheduler, when, monitor = found.scheduler, found.when, found.monitor
        if not isinstance(scheduler, LRScheduler):
            raise ConfigError(f"a scheduler must be a torch LRScheduler, alone or as (scheduler, when), not {given!r}")
        if when is not None and when not in WHENS:
            raise ConfigError(f"{type(scheduler).__name__} cannot step at '{when}'; {did_you_mean(str(when), WHENS)}")
        if isinstance(scheduler, ReduceLROnPlateau) and when not in (None, "val"):
            raise ConfigError(f"ReduceLROnPlateau steps on a metric, so it must step at 'val', not at '{when}'")
        if monitor is not None and when != "val":
            raise ConfigError(
                f"{type(scheduler).__name__}: only a scheduler that steps at 'val' can have a metric; write "
                f"(scheduler, 'val', '{monitor}')"
            )
        if isinstance(scheduler, Warmup) and when == "val":
            raise ConfigError("Warmup: a warmup steps at 'iter', 'step' or 'epoch', not at 'val'")
        refuse_inside(scheduler)
        check_scheduler(scheduler)
        return found

    @property
    def times(self) -> tuple[When | None, ...]:
        """Return when it steps."""
        return (self.when, "epoch") if takes_metrics(self.scheduler) else (self.when,)

    @property
    def unit(self) -> str:
        """Return what it steps after, for messages."""
        return UNITS[self.when or "epoch"]

    def step(self, metrics: Mapping[str, Any] | None = None) -> None:
        """Step once. At `val`, a scheduler that needs a metric receives it."""
        if metrics is None and self.stepped and self.warmup is None:  # as fast as without hookline
            try:
                self.scheduler.step()
            except ValueError as error:
                explain_schedule(self.scheduler, self.unit, error)
                raise
        elif self.warmup is None or self.warmup.is_over or self.warmup is self.scheduler:
            self._step(metrics)
        else:
            with self.warmup.lifted():
                self._step(metrics)

    def _step(self, metrics: Mapping[str, Any] | None) -> None:
        try:
            if metrics is not None and isinstance(self.scheduler, ReduceLROnPlateau):
                self.scheduler.step(self._metric(metrics))
            elif metrics is not None and takes_metrics(self.scheduler):
                self.scheduler.step(metrics)  # type: ignore[arg-type]  # its class says that it takes them
            elif self.stepped:
                self.scheduler.step()
            else:
                self.stepped = True
                with warnings.catch_warnings():
                    # torch warns if a scheduler steps before the optimizer does. With accumulation, this is correct.
                    warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
                    self.scheduler.step()
        except ValueError as error:
            explain_schedule(self.scheduler, self.unit, error)
            raise

    def _metric(self, metrics: Mapping[str, Any]) -> float:
        name = self.monitor if self.monitor is not None else next(iter(metrics), "")
        if name not in metrics:
            who = type(self.scheduler).__name__
            raise ConfigError(
                f"{who} steps on the metric '{name}', which validation does not return; {did_you_mean(name, metrics)}"
            )
        return cast("float", metrics[name])


def takes_metrics(scheduler: LRScheduler) -> bool:
    """Return whether the class of a scheduler has `takes_metrics = True`.

    Such a scheduler steps at `val` with all metrics of the validation, and after each epoch without metrics, so that it
    can count epochs.
    """
    return bool(getattr(scheduler, "takes_metrics", False))
