"""Schedulers that decay along half a cosine wave, once or with restarts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hookline.dialects.mmengine.errors import ConfigValueError
from hookline.dialects.mmengine.optim.scheduler.base import _ParamScheduler


class _CosineScheduler(_ParamScheduler):
    """The shared parts of both cosine schedulers: the minimum, and one step of the descent."""

    eta_min: float | None
    eta_min_ratio: float | None

    def _choose_minimum(self, eta_min: float | None, eta_min_ratio: float | None) -> None:
        if (eta_min is None) == (eta_min_ratio is None):
            raise ConfigValueError(f"{type(self).__name__}: set either eta_min or eta_min_ratio, not both")
        self.eta_min, self.eta_min_ratio = eta_min, eta_min_ratio

    def _minimum(self, base: float) -> float:
        return self.eta_min if self.eta_min is not None else base * (self.eta_min_ratio or 0.0)

    @staticmethod
    def _descend(value: float, minimum: float, step: int, period: int) -> float:
        now, before = (1 + math.cos(math.pi * at / period) for at in (step, step - 1))
        return now / before * (value - minimum) + minimum


class CosineAnnealingParamScheduler(_CosineScheduler):
    """Decays to `eta_min` along half a cosine wave of `T_max` steps, and rises again if there are more steps."""

    counts_steps = ("T_max",)

    def _configure(
        self,
        T_max: int | None = None,  # noqa: N803  # the usual spelling
        eta_min: float | None = None,
        *,
        eta_min_ratio: float | None = None,
    ) -> None:
        self._choose_minimum(0.0 if eta_min is None and eta_min_ratio is None else eta_min, eta_min_ratio)
        self.T_max = T_max or self.end - self.begin

    def _value(self, value: float, base: float) -> float:
        if self.last_step == 0:
            return value
        minimum = self._minimum(base)
        if (self.last_step - 1 - self.T_max) % (2 * self.T_max) == 0:  # the last step was at the bottom
            return value + (base - minimum) * (1 - math.cos(math.pi / self.T_max)) / 2
        return self._descend(value, minimum, self.last_step, self.T_max)


class CosineRestartParamScheduler(_CosineScheduler):
    """Decays along half a cosine wave, and restarts at the top for every period."""

    counts_steps = ("periods",)

    def _configure(
        self,
        periods: Sequence[int],
        restart_weights: Sequence[float] = (1,),
        eta_min: float | None = None,
        eta_min_ratio: float | None = None,
    ) -> None:
        self._choose_minimum(eta_min, eta_min_ratio)
        if len(periods) != len(restart_weights):
            raise ConfigValueError(
                f"{type(self).__name__}: every period needs a weight, but there are {len(periods)} periods and "
                f"{len(restart_weights)} restart_weights"
            )
        self.periods, self.restart_weights = list(periods), list(restart_weights)
        self.cumulative_periods = [sum(self.periods[: number + 1]) for number in range(len(self.periods))]

    def _value(self, value: float, base: float) -> float:
        number = self.get_position_from_periods(self.last_step, self.cumulative_periods)
        if number is None:
            return value
        step = self.last_step - (self.cumulative_periods[number] - self.periods[number])
        if step == 0:
            return base * self.restart_weights[number]
        return self._descend(value, self._minimum(base), step, self.periods[number])

    @staticmethod
    def get_position_from_periods(iteration: int, cumulative_periods: Sequence[int]) -> int | None:
        """Return the index of the period that contains a step, or None after the last period."""
        return next((number for number, until in enumerate(cumulative_periods) if iteration < until), None)
