"""EmptyCacheHook with MMEngine's parameters."""

from __future__ import annotations

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import as_in_the_original
from hookline.hooks import empty_cache


@as_in_the_original
class EmptyCacheHook(empty_cache.EmptyCacheHook, Hook):  # type: ignore[misc]  # natively, methods take only what they need
    """Gives memory that torch holds on to, but does not use, back to the device.

    Args:
        before_epoch: Do it before every epoch.
        after_epoch: Do it after every epoch.
        after_iter: Do it after every iteration.
    """

    priority = "NORMAL"

    def __init__(self, before_epoch: bool = False, after_epoch: bool = True, after_iter: bool = False) -> None:
        super().__init__(before_epoch, after_epoch, after_iter)
