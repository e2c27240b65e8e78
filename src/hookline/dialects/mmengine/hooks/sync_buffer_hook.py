"""SyncBuffersHook with MMEngine's name and priority."""

from __future__ import annotations

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import with_original_signatures
from hookline.hooks import sync_buffers


@with_original_signatures
class SyncBuffersHook(sync_buffers.SyncBuffersHook, Hook):
    """Averages the model's buffers across all processes after every training epoch."""

    priority = "NORMAL"
