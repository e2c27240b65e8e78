"""ParamSchedulerHook under its name."""

from __future__ import annotations

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import as_in_the_original
from hookline.hooks import param_scheduler


@as_in_the_original
class ParamSchedulerHook(param_scheduler.ParamSchedulerHook, Hook):  # type: ignore[misc]  # natively, methods take only what they need
    """Steps the schedulers: after epochs, after iterations, or after validations, with their metrics."""

    priority = "LOW"
