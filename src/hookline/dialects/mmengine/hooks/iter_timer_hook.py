"""IterTimerHook under its name."""

from __future__ import annotations

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.hooks import timer


class IterTimerHook(timer.IterTimerHook, Hook):
    """Times data and steps, and tells how long training still takes."""

    priority = "NORMAL"
