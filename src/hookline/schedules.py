"""Learning rate schedules by name, and a warmup for any scheduler."""

from hookline.engine.schedules import Constant, Cosine, Linear, Schedule, WarmupStableDecay
from hookline.engine.warmup import Warmup

__all__ = ["Constant", "Cosine", "Linear", "Schedule", "Warmup", "WarmupStableDecay"]
