"""EmptyCacheHook with MMEngine's parameters."""

from __future__ import annotations

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import with_original_signatures
from hookline.hooks import empty_cache


@with_original_signatures
class EmptyCacheHook(empty_cache.EmptyCacheHook, Hook):  # type: ignore[misc]  # native methods take only the arguments they need
    """Returns memory that torch has cached but does not use to the device.

    Args:
        before_epoch: Empty the cache before every epoch.
        after_epoch: Empty the cache after every epoch.
        after_iter: Empty the cache after every iteration.
    """

    priority = "NORMAL"

    def __init__(self, before_epoch: bool = False, after_epoch: bool = True, after_iter: bool = False) -> None:
        super().__init__(before_epoch, after_epoch, after_iter)
