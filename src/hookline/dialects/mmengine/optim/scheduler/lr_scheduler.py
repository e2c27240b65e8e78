"""The schedulers for the learning rate."""

from __future__ import annotations

from typing import Any

from hookline.dialects.exports import export_defined
from hookline.dialects.mmengine.optim.scheduler import param_scheduler
from hookline.dialects.mmengine.optim.scheduler.base import OneParameter


class LRSchedulerMixin(OneParameter):
    """Makes a scheduler change `lr`."""

    def __init__(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(optimizer, "lr", *args, **kwargs)  # type: ignore[call-arg]  # the scheduler is next in the MRO


class ConstantLR(LRSchedulerMixin, param_scheduler.ConstantParamScheduler):
    """Multiplies by a factor from `begin` to `end`."""


class CosineAnnealingLR(LRSchedulerMixin, param_scheduler.CosineAnnealingParamScheduler):
    """Decays along half a cosine wave."""


class CosineRestartLR(LRSchedulerMixin, param_scheduler.CosineRestartParamScheduler):
    """Decays along half a cosine wave, with restarts."""


class ExponentialLR(LRSchedulerMixin, param_scheduler.ExponentialParamScheduler):
    """Multiplies by gamma at every step."""


class LinearLR(LRSchedulerMixin, param_scheduler.LinearParamScheduler):
    """Multiplies by a factor that changes linearly."""


class MultiStepLR(LRSchedulerMixin, param_scheduler.MultiStepParamScheduler):
    """Multiplies by gamma at every milestone."""


class OneCycleLR(LRSchedulerMixin, param_scheduler.OneCycleParamScheduler):
    """Rises to a maximum and then decays far below the start."""


class PolyLR(LRSchedulerMixin, param_scheduler.PolyParamScheduler):
    """Decays along a polynomial."""


class ReduceOnPlateauLR(LRSchedulerMixin, param_scheduler.ReduceOnPlateauParamScheduler):
    """Multiplies by a factor when a metric no longer improves."""


class StepLR(LRSchedulerMixin, param_scheduler.StepParamScheduler):
    """Multiplies by gamma every `step_size` steps."""


export_defined(globals())
