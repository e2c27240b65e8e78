"""DistSamplerSeedHook under its name."""

from __future__ import annotations

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import as_in_the_original
from hookline.hooks import sampler_seed


@as_in_the_original
class DistSamplerSeedHook(sampler_seed.DistSamplerSeedHook, Hook):  # type: ignore[misc]  # natively, methods take only what they need
    """Tells samplers which pass over the data begins, so that each has an order of its own."""

    priority = "NORMAL"
