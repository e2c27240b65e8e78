"""ProfilerHook with MMEngine's parameters."""

from __future__ import annotations

from hookline.dialects.mmengine.hooks.hook import DATA_BATCH as DATA_BATCH
from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import with_original_signatures
from hookline.dialects.mmengine.not_included import not_included
from hookline.hooks import profiler


@with_original_signatures
class ProfilerHook(profiler.ProfilerHook, Hook):  # type: ignore[misc]  # native methods take only the arguments they need
    """Profiles the first epochs or iterations of training, with the parameters of hookline's ProfilerHook."""

    priority = "VERY_LOW"
    left_out = ("stages",)


not_included(globals(), "NPUProfilerHook", "check_kineto")
