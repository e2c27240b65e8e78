"""Which schedulers leave a rate of 0 as it is.

Only the schedulers of torch and of `schedules` are known. Any other may set the rate, so it counts as one that does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import lr_scheduler

from hookline.optim import retiming
from hookline.optim.schedules import Constant, Cosine, Linear, Schedule, WarmupStableDecay
from hookline.optim.warmup import Warmup

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler

#: Schedulers that multiply the current rate.
MULTIPLY = (
    *(lr_scheduler.StepLR, lr_scheduler.MultiStepLR, lr_scheduler.ExponentialLR, lr_scheduler.MultiplicativeLR),
    *(lr_scheduler.LinearLR, lr_scheduler.ConstantLR, lr_scheduler.PolynomialLR),
    *(lr_scheduler.ReduceLROnPlateau, Warmup),
)
#: Schedules that multiply the base rates by a curve that falls, or stays, after its warmup.
CURVES = (Constant, Linear, Cosine, WarmupStableDecay)


def is_zero(rate: Any) -> bool:
    """Return whether a rate is 0. Some optimizers have no rate of their own (None)."""
    return isinstance(rate, (int, float, Tensor)) and not float(rate)


def keeps_zero(scheduler: LRScheduler) -> bool:
    """Return whether a scheduler never changes the rates of an optimizer whose current rates are 0."""
    if retiming.ATTRIBUTE in vars(scheduler):
        return _at_end(scheduler)
    if type(scheduler) in MULTIPLY:
        return True
    base = any(map(float, getattr(scheduler, "base_lrs", [1.0])))
    if isinstance(scheduler, Schedule) and type(scheduler) in CURVES:
        return not base or scheduler.factor(scheduler.last_epoch) == scheduler.end_factor == 0
    if type(scheduler) is lr_scheduler.CosineAnnealingLR:
        return not base and not scheduler.eta_min
    return type(scheduler) is lr_scheduler.LambdaLR and not base


def _at_end(scheduler: LRScheduler) -> bool:
    """Return whether a stretched schedule is at the end of its curve, where it stays."""
    numbers = vars(scheduler)[retiming.ATTRIBUTE]
    return bool(retiming.position_at(numbers, scheduler.last_epoch) >= numbers["until"])
