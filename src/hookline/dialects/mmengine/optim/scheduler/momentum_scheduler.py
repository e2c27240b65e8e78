"""The same schedulers, of the momentum, or of the first beta where an optimizer has betas."""

from __future__ import annotations

from typing import Any

from hookline.dialects.mmengine.errors import ConfigValueError
from hookline.dialects.mmengine.optim.scheduler.base import OneParameter
from hookline.dialects.mmengine.optim.scheduler.param_scheduler import (
    ConstantParamScheduler,
    CosineAnnealingParamScheduler,
    CosineRestartParamScheduler,
    ExponentialParamScheduler,
    LinearParamScheduler,
    MultiStepParamScheduler,
    PolyParamScheduler,
    ReduceOnPlateauParamScheduler,
    StepParamScheduler,
)


class MomentumSchedulerMixin(OneParameter):
    """Makes a scheduler one of `momentum`."""

    optimizer: Any

    def __init__(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        self.use_betas = "momentum" not in optimizer.defaults
        if self.use_betas and "betas" not in optimizer.defaults:
            raise ConfigValueError(
                f"{type(self).__name__} needs an optimizer with a momentum or betas, and "
                f"{type(getattr(optimizer, 'optimizer', optimizer)).__name__} has neither"
            )
        if self.use_betas:
            for group in optimizer.param_groups:
                group["momentum"] = group["betas"][0]
        super().__init__(optimizer, "momentum", *args, **kwargs)  # type: ignore[call-arg]  # the scheduler comes next

    def step(self, metrics: Any = None) -> None:
        """Step, and set the betas."""
        super().step(metrics)  # type: ignore[misc]  # the scheduler comes next
        if self.use_betas:
            for group in self.optimizer.param_groups:
                group["betas"] = (group["momentum"], *group["betas"][1:])


class ConstantMomentum(MomentumSchedulerMixin, ConstantParamScheduler):
    """Multiplies by a factor between two steps."""


class CosineAnnealingMomentum(MomentumSchedulerMixin, CosineAnnealingParamScheduler):
    """Goes down as half a cosine wave."""


class CosineRestartMomentum(MomentumSchedulerMixin, CosineRestartParamScheduler):
    """Goes down as half a cosine wave, again and again."""


class ExponentialMomentum(MomentumSchedulerMixin, ExponentialParamScheduler):
    """Multiplies by gamma at every step."""


class LinearMomentum(MomentumSchedulerMixin, LinearParamScheduler):
    """Multiplies by a factor that changes in a line."""


class MultiStepMomentum(MomentumSchedulerMixin, MultiStepParamScheduler):
    """Multiplies by gamma at every milestone."""


class PolyMomentum(MomentumSchedulerMixin, PolyParamScheduler):
    """Goes down as a polynomial."""


class ReduceOnPlateauMomentum(MomentumSchedulerMixin, ReduceOnPlateauParamScheduler):
    """Multiplies by a factor when a metric no longer gets better."""


class StepMomentum(MomentumSchedulerMixin, StepParamScheduler):
    """Multiplies by gamma every so many steps."""
