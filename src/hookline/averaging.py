"""Weight averages: EMA, SWA, and a base class for your own."""

from hookline.common.averaging import (
    ExponentialMovingAverage,
    MomentumAnnealingEMA,
    StochasticWeightAverage,
    WeightAverage,
)

__all__ = ["ExponentialMovingAverage", "MomentumAnnealingEMA", "StochasticWeightAverage", "WeightAverage"]
