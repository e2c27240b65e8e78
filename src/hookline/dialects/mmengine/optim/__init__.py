"""Optimizer wrappers and schedulers."""

from hookline.dialects.exports import export_imported
from hookline.dialects.mmengine.optim.optimizer import *
from hookline.dialects.mmengine.optim.scheduler import *
from hookline.dialects.mmengine.optim.scheduler import _ParamScheduler as _ParamScheduler

export_imported(globals(), "_ParamScheduler")
