"""EmptyCacheHook with MMEngine's parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hookline.dialects.mmengine.hooks.hook import DATA_BATCH as DATA_BATCH
from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import with_original_signatures
from hookline.hooks import empty_cache


@with_original_signatures
class EmptyCacheHook(empty_cache.EmptyCacheHook, Hook):  # type: ignore[misc]  # native methods take only the arguments they need
    """Returns memory that torch has cached but does not use, with the parameters of hookline's EmptyCacheHook.

    On a CPU, it calls `torch.cuda.empty_cache()`, as MMEngine does.
    """

    priority = "NORMAL"
    left_out = ("garbage_collection",)

    def _empty_cache(self, runner: Any) -> Callable[[], Any]:
        return super()._empty_cache(runner) or torch.cuda.empty_cache
