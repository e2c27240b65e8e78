"""The same schedulers, of the learning rate."""

from __future__ import annotations

from typing import Any

from hookline.dialects.mmengine.optim.scheduler.base import OneParameter
from hookline.dialects.mmengine.optim.scheduler.param_scheduler import (
    ConstantParamScheduler,
    CosineAnnealingParamScheduler,
    CosineRestartParamScheduler,
    ExponentialParamScheduler,
    LinearParamScheduler,
    MultiStepParamScheduler,
    OneCycleParamScheduler,
    PolyParamScheduler,
    ReduceOnPlateauParamScheduler,
    StepParamScheduler,
)


class LRSchedulerMixin(OneParameter):
    """Makes a scheduler one of `lr`."""

    def __init__(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(optimizer, "lr", *args, **kwargs)  # type: ignore[call-arg]  # the scheduler comes next


class ConstantLR(LRSchedulerMixin, ConstantParamScheduler):
    """Multiplies by a factor between two steps."""


class CosineAnnealingLR(LRSchedulerMixin, CosineAnnealingParamScheduler):
    """Goes down as half a cosine wave."""


class CosineRestartLR(LRSchedulerMixin, CosineRestartParamScheduler):
    """Goes down as half a cosine wave, again and again."""


class ExponentialLR(LRSchedulerMixin, ExponentialParamScheduler):
    """Multiplies by gamma at every step."""


class LinearLR(LRSchedulerMixin, LinearParamScheduler):
    """Multiplies by a factor that changes in a line."""


class MultiStepLR(LRSchedulerMixin, MultiStepParamScheduler):
    """Multiplies by gamma at every milestone."""


class OneCycleLR(LRSchedulerMixin, OneCycleParamScheduler):
    """Goes up to a maximum, and down to much less."""


class PolyLR(LRSchedulerMixin, PolyParamScheduler):
    """Goes down as a polynomial."""


class ReduceOnPlateauLR(LRSchedulerMixin, ReduceOnPlateauParamScheduler):
    """Multiplies by a factor when a metric no longer gets better."""


class StepLR(LRSchedulerMixin, StepParamScheduler):
    """Multiplies by gamma every so many steps."""
