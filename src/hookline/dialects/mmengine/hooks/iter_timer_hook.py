"""IterTimerHook with MMEngine's name and priority."""

from __future__ import annotations

from hookline.dialects.mmengine.hooks.hook import DATA_BATCH as DATA_BATCH
from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import with_original_signatures
from hookline.hooks import timer


@with_original_signatures
class IterTimerHook(timer.IterTimerHook, Hook):  # type: ignore[misc]  # native methods take only the arguments they need
    """Times data loading and steps, and estimates the remaining training time."""

    priority = "NORMAL"
