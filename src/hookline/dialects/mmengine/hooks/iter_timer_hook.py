"""IterTimerHook under its name."""

from __future__ import annotations

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import as_in_the_original
from hookline.hooks import timer


@as_in_the_original
class IterTimerHook(timer.IterTimerHook, Hook):  # type: ignore[misc]  # natively, methods take only what they need
    """Times data and steps, and tells how long training still takes."""

    priority = "NORMAL"
