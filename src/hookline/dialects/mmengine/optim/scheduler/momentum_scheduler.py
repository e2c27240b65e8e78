"""The schedulers for the momentum, or for the first beta if an optimizer has betas."""

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
    """Makes a scheduler change `momentum`."""

    optimizer: Any

    def __init__(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        self.use_betas = "momentum" not in optimizer.defaults
        if self.use_betas and "betas" not in optimizer.defaults:
            raise ConfigValueError(
                f"{type(self).__name__} needs an optimizer with a momentum or betas, but "
                f"{type(getattr(optimizer, 'optimizer', optimizer)).__name__} has neither"
            )
        if self.use_betas:
            for group in optimizer.param_groups:
                group["momentum"] = group["betas"][0]
        super().__init__(optimizer, "momentum", *args, **kwargs)  # type: ignore[call-arg]  # the scheduler is next in the MRO

    def step(self, metrics: Any = None) -> None:
        """Step the scheduler and update the betas."""
        super().step(metrics)  # type: ignore[misc]  # the scheduler is next in the MRO
        if self.use_betas:
            for group in self.optimizer.param_groups:
                group["betas"] = (group["momentum"], *group["betas"][1:])


class ConstantMomentum(MomentumSchedulerMixin, ConstantParamScheduler):
    """Multiplies by a factor from `begin` to `end`."""


class CosineAnnealingMomentum(MomentumSchedulerMixin, CosineAnnealingParamScheduler):
    """Decays along half a cosine wave."""


class CosineRestartMomentum(MomentumSchedulerMixin, CosineRestartParamScheduler):
    """Decays along half a cosine wave, with restarts."""


class ExponentialMomentum(MomentumSchedulerMixin, ExponentialParamScheduler):
    """Multiplies by gamma at every step."""


class LinearMomentum(MomentumSchedulerMixin, LinearParamScheduler):
    """Multiplies by a factor that changes linearly."""


class MultiStepMomentum(MomentumSchedulerMixin, MultiStepParamScheduler):
    """Multiplies by gamma at every milestone."""


class PolyMomentum(MomentumSchedulerMixin, PolyParamScheduler):
    """Decays along a polynomial."""


class ReduceOnPlateauMomentum(MomentumSchedulerMixin, ReduceOnPlateauParamScheduler):
    """Multiplies by a factor when a metric no longer improves."""


class StepMomentum(MomentumSchedulerMixin, StepParamScheduler):
    """Multiplies by gamma every `step_size` steps."""
