"""SyncBuffersHook under its name."""

from __future__ import annotations

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import as_in_the_original
from hookline.hooks import sync_buffers


@as_in_the_original
class SyncBuffersHook(sync_buffers.SyncBuffersHook, Hook):
    """Averages the buffers of the model over all processes after every training epoch."""

    priority = "NORMAL"
