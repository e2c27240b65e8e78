"""Optimizer wrappers and schedulers."""

from hookline.dialects.mmengine.optim import optimizer, scheduler
from hookline.dialects.mmengine.optim.optimizer import *  # everything in its __all__
from hookline.dialects.mmengine.optim.scheduler import *
from hookline.dialects.mmengine.optim.scheduler import _ParamScheduler

__all__ = ["_ParamScheduler", *optimizer.__all__, *scheduler.__all__]
