"""ParamSchedulerHook under its name."""

from __future__ import annotations

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.hooks import param_scheduler


class ParamSchedulerHook(param_scheduler.ParamSchedulerHook, Hook):
    """Steps the schedulers: those by epoch after epochs, others after iterations, some with the metrics of a validation."""

    priority = "LOW"
