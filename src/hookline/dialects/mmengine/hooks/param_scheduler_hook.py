"""ParamSchedulerHook with MMEngine's name and priority."""

from __future__ import annotations

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import with_original_signatures
from hookline.hooks import param_scheduler


@with_original_signatures
class ParamSchedulerHook(param_scheduler.ParamSchedulerHook, Hook):  # type: ignore[misc]  # native methods take only the arguments they need
    """Steps the schedulers after epochs, after iterations, or after validations with the metrics."""

    priority = "LOW"
