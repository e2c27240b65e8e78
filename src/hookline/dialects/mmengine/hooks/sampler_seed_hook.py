"""DistSamplerSeedHook under its name."""

from __future__ import annotations

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.hooks import sampler_seed


class DistSamplerSeedHook(sampler_seed.DistSamplerSeedHook, Hook):
    """Tells samplers which pass over the data begins, so that each has an order of its own."""

    priority = "NORMAL"
