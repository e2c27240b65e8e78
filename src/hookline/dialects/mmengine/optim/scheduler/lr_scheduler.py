"""The schedulers for the learning rate."""

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
    """Makes a scheduler change `lr`."""

    def __init__(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(optimizer, "lr", *args, **kwargs)  # type: ignore[call-arg]  # the scheduler is next in the MRO


class ConstantLR(LRSchedulerMixin, ConstantParamScheduler):
    """Multiplies by a factor from `begin` to `end`."""


class CosineAnnealingLR(LRSchedulerMixin, CosineAnnealingParamScheduler):
    """Decays along half a cosine wave."""


class CosineRestartLR(LRSchedulerMixin, CosineRestartParamScheduler):
    """Decays along half a cosine wave, with restarts."""


class ExponentialLR(LRSchedulerMixin, ExponentialParamScheduler):
    """Multiplies by gamma at every step."""


class LinearLR(LRSchedulerMixin, LinearParamScheduler):
    """Multiplies by a factor that changes linearly."""


class MultiStepLR(LRSchedulerMixin, MultiStepParamScheduler):
    """Multiplies by gamma at every milestone."""


class OneCycleLR(LRSchedulerMixin, OneCycleParamScheduler):
    """Rises to a maximum and then decays far below the start."""


class PolyLR(LRSchedulerMixin, PolyParamScheduler):
    """Decays along a polynomial."""


class ReduceOnPlateauLR(LRSchedulerMixin, ReduceOnPlateauParamScheduler):
    """Multiplies by a factor when a metric no longer improves."""


class StepLR(LRSchedulerMixin, StepParamScheduler):
    """Multiplies by gamma every `step_size` steps."""
