"""The schedulers for the momentum, or for the first beta if an optimizer has betas."""

from __future__ import annotations

from typing import Any

from hookline.dialects.exports import export_defined
from hookline.dialects.mmengine.errors import ConfigValueError
from hookline.dialects.mmengine.optim.scheduler import param_scheduler
from hookline.dialects.mmengine.optim.scheduler.base import OneParameter


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


class ConstantMomentum(MomentumSchedulerMixin, param_scheduler.ConstantParamScheduler):
    """Multiplies by a factor from `begin` to `end`."""


class CosineAnnealingMomentum(MomentumSchedulerMixin, param_scheduler.CosineAnnealingParamScheduler):
    """Decays along half a cosine wave."""


class CosineRestartMomentum(MomentumSchedulerMixin, param_scheduler.CosineRestartParamScheduler):
    """Decays along half a cosine wave, with restarts."""


class ExponentialMomentum(MomentumSchedulerMixin, param_scheduler.ExponentialParamScheduler):
    """Multiplies by gamma at every step."""


class LinearMomentum(MomentumSchedulerMixin, param_scheduler.LinearParamScheduler):
    """Multiplies by a factor that changes linearly."""


class MultiStepMomentum(MomentumSchedulerMixin, param_scheduler.MultiStepParamScheduler):
    """Multiplies by gamma at every milestone."""


class PolyMomentum(MomentumSchedulerMixin, param_scheduler.PolyParamScheduler):
    """Decays along a polynomial."""


class ReduceOnPlateauMomentum(MomentumSchedulerMixin, param_scheduler.ReduceOnPlateauParamScheduler):
    """Multiplies by a factor when a metric no longer improves."""


class StepMomentum(MomentumSchedulerMixin, param_scheduler.StepParamScheduler):
    """Multiplies by gamma every `step_size` steps."""


export_defined(globals())
