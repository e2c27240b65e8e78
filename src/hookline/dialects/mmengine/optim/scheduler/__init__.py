"""Schedulers for the learning rate, the momentum, and any other optimizer parameter."""

from hookline.dialects.exports import export_imported
from hookline.dialects.mmengine.optim.scheduler.building import *
from hookline.dialects.mmengine.optim.scheduler.lr_scheduler import *
from hookline.dialects.mmengine.optim.scheduler.momentum_scheduler import *
from hookline.dialects.mmengine.optim.scheduler.param_scheduler import *
from hookline.dialects.mmengine.optim.scheduler.param_scheduler import _ParamScheduler as _ParamScheduler

export_imported(globals(), "_ParamScheduler")
