"""DistSamplerSeedHook with MMEngine's name and priority."""

from __future__ import annotations

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import with_original_signatures
from hookline.hooks import sampler_seed


@with_original_signatures
class DistSamplerSeedHook(sampler_seed.DistSamplerSeedHook, Hook):  # type: ignore[misc]  # native methods take only the arguments they need
    """Sets the epoch of the samplers, so that every pass over the data has a different order."""

    priority = "NORMAL"
