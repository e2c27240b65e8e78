"""Learning rate schedules by name: cosine, linear, constant and warmup-stable-decay.

    Optim(optimizer, schedulers=[Cosine(optimizer, warmup=0.05)])

A `Schedule` multiplies the base rate of every parameter group by a function of the step:

    1 |    ________            1 |    _                1 |    _                 1 |    _____
      |   /                      |   / `.                |   / `.                 |   /     `.
      |  /                       |  /    `.              |  /    `.               |  /        `.
    0 |_/____________          0 |_/_______`._         0 |_/_______`-__         0 |_/___________`.__
        Constant                   Linear                  Cosine                   WarmupStableDecay

Step 0 of a warmup of n steps has the factor 1/(n + 1), and step n has the factor 1, so no step is lost at rate 0. A
schedule that has ended stays at its last rate.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from hookline.common.checks import check_choice, check_int, check_number
from hookline.errors import ConfigError
from hookline.optim.hyperparameters import set_rate
from hookline.optim.lengths import AUTO, check_share, steps_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

Length = int | Literal["auto"]
#: A number of steps, or a share of the length. A config distinguishes an int from a float.
Share = int | float
DecayShape = Literal["linear", "cosine", "sqrt"]
DECAY_SHAPES = ("linear", "cosine", "sqrt")


class Schedule(LRScheduler):
    """The base of the schedules. A subclass defines `shape`, the curve after the warmup.

    Args:
        optimizer: The optimizer. Each parameter group keeps its own base rate.
        length: The number of steps, warmup included. `auto` is the length of the training.
        warmup: The steps in which the rate rises linearly: a number (an int), or a share of the length (a float
            below 1).
        end_factor: The rate at the end, as a share of the base rate.
    """

    #: Steps per iteration, also in training by epochs.
    default_when: ClassVar[str] = "iter"

    def __init__(self, optimizer: Optimizer, length: Length = AUTO, warmup: Share = 0, end_factor: float = 0.0) -> None:
        who = type(self).__name__
        check_share(f"{who}: warmup", warmup)
        check_number(f"{who}: end_factor", end_factor, least=0)
        if length != AUTO:
            check_int(f"{who}: length", length, least=1)
        self.asked: dict[str, Any] = {"length": length, "warmup": warmup}
        #: The number of steps; 0 as long as it is not known.
        self.length = 0
        #: The steps of the warmup.
        self.warmup = 0
        self.end_factor = float(end_factor)
        #: A step, and the position on the curve at that step. From there, a step is `speed` on the curve.
        self.anchor = [0.0, 0.0]
        self.speed = 1.0
        if length != AUTO:
            self._fit(int(length), "step")
        super().__init__(optimizer)

    def shape(self, position: float) -> float:
        """Return the factor at a position on the curve, from the end of the warmup to the length."""
        raise NotImplementedError(f"{type(self).__name__} must define shape(position)")

    def factor(self, step: float) -> float:
        """Return the number that the base rates are multiplied by after this many steps."""
        position = self._position(step)
        if position < self.warmup:
            return (position + 1) / (self.warmup + 1)
        return self.shape(position)

    def get_lr(self) -> list[float | Tensor]:
        """Return the rates at the current step."""
        if self.length:
            factor = self.factor(self.last_epoch)
            return [float(rate) * factor for rate in self.base_lrs]
        if self.last_epoch > 0:
            raise ConfigError(
                f"{type(self).__name__}: the length 'auto' is found out when a Runner starts to train; without a "
                "Runner, set a number"
            )
        return [group["lr"] for group in self.optimizer.param_groups]

    def resolve(self, length: int, unit: str) -> None:
        """Set the length that is `auto`, and with it the rate of the first step."""
        self._fit(length, unit)
        self._write()

    def stretch(self, remaining: int) -> None:
        """Let the curve end after this many more steps, from its current position, so that the rate does not jump."""
        position, kept = self._position(self.last_epoch), self.length
        now = self.factor(self.last_epoch)
        if self.speed == 1.0:  # in a warmup, or while the rate is constant, only the end of the curve moves
            self._set_length(self.last_epoch + remaining)
            if self.factor(self.last_epoch) == now:
                return
            self._set_length(kept)
        self.anchor = [float(self.last_epoch), position]
        self.speed = (self.length - position) / max(remaining, 1)

    def state_dict(self) -> dict[str, Any]:
        """Return the position, the curve and the base rates, as plain data."""
        return {name: value for name, value in super().state_dict().items() if name != "asked"}

    def _position(self, step: float) -> float:
        since, position = self.anchor
        return min(position + (step - since) * self.speed, self.length)

    def _part(self, position: float, begin: float) -> float:
        """Return how much of the way from a position to the end is done, from 0 to 1."""
        return (position - begin) / (self.length - begin) if position > begin else 0.0

    def _fit(self, length: int, unit: str) -> None:
        """Set the length, and everything that is a share of it."""
        self.warmup = steps_of(f"{type(self).__name__}: warmup", self.asked["warmup"], length, unit)
        self._set_length(length)

    def _set_length(self, length: int) -> None:
        self.length = length

    def _write(self) -> None:
        for group, rate in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            set_rate(group, float(rate))
        self._last_lr: list[float | Tensor] = [float(group["lr"]) for group in self.optimizer.param_groups]

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in self.asked.items())
        return f"{type(self).__name__}({told})"


class Constant(Schedule):
    """Keeps the base rate after the warmup.

    Args:
        optimizer: The optimizer. Each parameter group keeps its own base rate.
        length: The number of steps, of which `warmup` can be a share. `auto` is the length of the training.
        warmup: The steps in which the rate rises linearly: a number (an int), or a share of the length (a float
            below 1).
    """

    def __init__(self, optimizer: Optimizer, length: Length = AUTO, warmup: Share = 0) -> None:
        super().__init__(optimizer, length, warmup, 1.0)

    def shape(self, position: float) -> float:
        """Return 1."""
        return 1.0


class Linear(Schedule):
    """Falls linearly after the warmup, to `end_factor` times the base rate.

    Args:
        optimizer: The optimizer. Each parameter group keeps its own base rate.
        length: The number of steps, warmup included. `auto` is the length of the training.
        warmup: The steps in which the rate rises linearly: a number (an int), or a share of the length (a float
            below 1).
        end_factor: The rate at the end, as a share of the base rate.
    """

    def shape(self, position: float) -> float:
        """Return a line from 1 to `end_factor`."""
        return 1.0 + (self.end_factor - 1.0) * self._part(position, self.warmup)


class Cosine(Schedule):
    """Falls along half a cosine after the warmup, to `end_factor` times the base rate.

    Args:
        optimizer: The optimizer. Each parameter group keeps its own base rate.
        length: The number of steps, warmup included. `auto` is the length of the training.
        warmup: The steps in which the rate rises linearly: a number (an int), or a share of the length (a float
            below 1).
        end_factor: The rate at the end, as a share of the base rate.
    """

    def shape(self, position: float) -> float:
        """Return half a cosine from 1 to `end_factor`."""
        return _cosine(self._part(position, self.warmup), self.end_factor)


class WarmupStableDecay(Schedule):
    """Keeps the base rate after the warmup, and falls to `end_factor` times the base rate at the end.

    Args:
        optimizer: The optimizer. Each parameter group keeps its own base rate.
        length: The number of steps, warmup and decay included. `auto` is the length of the training.
        warmup: The steps in which the rate rises linearly: a number (an int), or a share of the length (a float
            below 1).
        decay: The last steps, in which the rate falls: a number, or a share of the length.
        end_factor: The rate at the end, as a share of the base rate.
        decay_shape: How the rate falls: `linear`, `cosine`, or `sqrt`, which falls fast first.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        length: Length = AUTO,
        warmup: Share = 0,
        decay: Share = 0.2,
        end_factor: float = 0.0,
        decay_shape: DecayShape = "linear",
    ) -> None:
        who = type(self).__name__
        check_share(f"{who}: decay", decay)
        check_choice(f"{who}: decay_shape", decay_shape, DECAY_SHAPES)
        self._decay = decay
        #: The steps of the decay.
        self.decay = 0
        self.decay_shape = decay_shape
        super().__init__(optimizer, length, warmup, end_factor)
        self.asked["decay"] = decay

    def shape(self, position: float) -> float:
        """Return 1, and in the decay a curve from 1 to `end_factor`."""
        part = self._part(position, self.length - self.decay)
        if self.decay_shape == "cosine":
            return _cosine(part, self.end_factor)
        return 1.0 + (self.end_factor - 1.0) * (math.sqrt(part) if self.decay_shape == "sqrt" else part)

    def state_dict(self) -> dict[str, Any]:
        """Return the position, the curve and the base rates, as plain data."""
        return {name: value for name, value in super().state_dict().items() if name != "_decay"}

    def _fit(self, length: int, unit: str) -> None:
        steps_of(f"{type(self).__name__}: decay", self._decay, length, unit)
        super()._fit(length, unit)
        if self.warmup + self.decay > length:
            raise ConfigError(
                f"{type(self).__name__}: warmup and decay are {self.warmup:,} and {self.decay:,} {unit}s, but there "
                f"are only {length:,}; lower one of them"
            )

    def _set_length(self, length: int) -> None:
        self.length = length
        self.decay = steps_of("decay", self._decay, length) if isinstance(self._decay, float) else self._decay


def _cosine(part: float, end: float) -> float:
    return end + (1.0 - end) * (1.0 + math.cos(math.pi * part)) / 2.0


#: The length of a scheduler of torch, and what the rate does after it.
TOO_SHORT: dict[type, tuple[str, str]] = {
    lr_scheduler.CosineAnnealingLR: ("T_max", "the rate rises again after its end"),
    lr_scheduler.PolynomialLR: ("total_iters", "the rate is 0 after its end"),
}


def after_end(scheduler: LRScheduler) -> str:
    """Return what the rate does after the end of a curve; an empty string if that is unknown."""
    if isinstance(scheduler, Schedule) and scheduler.end_factor == 0:
        return "the rate is 0 after its end"
    if isinstance(scheduler, (Schedule, lr_scheduler.LinearLR)):
        return "the rate stays the same after its end"
    return next((so for kind, (_, so) in TOO_SHORT.items() if isinstance(scheduler, kind)), "")
