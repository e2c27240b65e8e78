"""Schedulers that multiply the value: step, multi-step, constant, exponential, linear and polynomial."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.optim.scheduler.base import _ParamScheduler


def _check_factor(who: object, name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise ConfigValueError(f"{type(who).__name__}: {name} must be between 0 and 1, not {value}")
    return value


class StepParamScheduler(_ParamScheduler):
    """Multiplies by gamma every `step_size` steps."""

    counts_steps = ("step_size",)

    def _configure(self, step_size: int, gamma: float = 0.1) -> None:
        self.step_size, self.gamma = step_size, gamma

    def _value(self, value: float, base: float) -> float:
        due = self.last_step != 0 and self.last_step % self.step_size == 0
        return value * self.gamma if due else value


class MultiStepParamScheduler(_ParamScheduler):
    """Multiplies by gamma at every milestone. A milestone that is listed twice counts twice."""

    counts_steps = ("milestones",)
    common = ("last_step", "begin", "end", "by_epoch", "verbose")

    def _configure(self, milestones: Sequence[int], gamma: float = 0.1) -> None:
        if isinstance(milestones, str) or not all(isinstance(each, int) for each in milestones):
            raise ConfigTypeError(
                f"{type(self).__name__}: milestones must be a list of steps such as [8, 11], not {milestones!r}"
            )
        self.milestones, self.gamma = Counter(milestones), gamma

    def _value(self, value: float, base: float) -> float:
        times = self.milestones[self.last_step]
        return value * self.gamma**times if times else value


class ConstantParamScheduler(_ParamScheduler):
    """Multiplies by a factor at the first step and undoes it at the last step."""

    def _configure(self, factor: float = 1.0 / 3) -> None:
        self.factor = _check_factor(self, "factor", factor)
        self.total_iters = self.end - self.begin - 1

    def _value(self, value: float, base: float) -> float:
        if self.last_step == 0:
            return value * self.factor
        if self.last_step != self.total_iters:
            return value
        return value * (1.0 / self.factor) if self.factor else base  # a factor of 0 cannot be undone by division


class ExponentialParamScheduler(_ParamScheduler):
    """Multiplies by gamma at every step."""

    def _configure(self, gamma: float) -> None:
        self.gamma = gamma

    def _value(self, value: float, base: float) -> float:
        return value if self.last_step == 0 else value * self.gamma


class LinearParamScheduler(_ParamScheduler):
    """Multiplies by a factor that changes linearly from `start_factor` to `end_factor`."""

    def _configure(self, start_factor: float = 1.0 / 3, end_factor: float = 1.0) -> None:
        self.start_factor = _check_factor(self, "start_factor", start_factor)
        self.end_factor = _check_factor(self, "end_factor", end_factor)
        self.total_iters = self.end - self.begin - 1

    def _value(self, value: float, base: float) -> float:
        if self.last_step == 0:
            return value * self.start_factor
        if self.start_factor == 0:  # multiplication cannot leave 0
            return base * self.end_factor * self.last_step / self.total_iters
        rise = self.end_factor - self.start_factor
        return value * (1.0 + rise / (self.total_iters * self.start_factor + (self.last_step - 1) * rise))


class PolyParamScheduler(_ParamScheduler):
    """Decays to `eta_min` along a polynomial."""

    def _configure(self, eta_min: float = 0, power: float = 1.0) -> None:
        self.eta_min, self.power = eta_min, power
        self.total_iters = self.end - self.begin - 1

    def _value(self, value: float, base: float) -> float:
        if self.last_step == 0:
            return value
        part: float = (1 - 1 / (self.total_iters - self.last_step + 1)) ** self.power
        return (value - self.eta_min) * part + self.eta_min
