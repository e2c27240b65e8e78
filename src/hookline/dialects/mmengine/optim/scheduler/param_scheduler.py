"""Schedulers for any optimizer parameter: `lr`, `momentum`, `weight_decay`, ..."""

from hookline.dialects.mmengine.optim.scheduler.base import INF, _ParamScheduler
from hookline.dialects.mmengine.optim.scheduler.cosine import CosineAnnealingParamScheduler, CosineRestartParamScheduler
from hookline.dialects.mmengine.optim.scheduler.decay import (
    ConstantParamScheduler,
    ExponentialParamScheduler,
    LinearParamScheduler,
    MultiStepParamScheduler,
    PolyParamScheduler,
    StepParamScheduler,
)
from hookline.dialects.mmengine.optim.scheduler.one_cycle import OneCycleParamScheduler
from hookline.dialects.mmengine.optim.scheduler.plateau import ReduceOnPlateauParamScheduler

OptimizerType = object
__all__ = [
    "INF",
    "ConstantParamScheduler",
    "CosineAnnealingParamScheduler",
    "CosineRestartParamScheduler",
    "ExponentialParamScheduler",
    "LinearParamScheduler",
    "MultiStepParamScheduler",
    "OneCycleParamScheduler",
    "PolyParamScheduler",
    "ReduceOnPlateauParamScheduler",
    "StepParamScheduler",
    "_ParamScheduler",
]
