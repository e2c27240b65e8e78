"""Learning rate schedules by name, and a warmup for any scheduler."""

from hookline.optim.schedules import Constant, Cosine, Linear, Schedule, WarmupStableDecay
from hookline.optim.warmup import Warmup

__all__ = ["Constant", "Cosine", "Linear", "Schedule", "Warmup", "WarmupStableDecay"]
