"""Checks the numbers of optimizers and schedulers before training. torch checks only some of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor

from hookline.common.checks import check_number, is_finite
from hookline.optim.nesting import walk

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

# The options of parameter groups that are never negative, by the end of their names: `lr`, `initial_lr`, ...
NOT_NEGATIVE = ("lr", "momentum", "weight_decay", "eps", "betas")
# The numbers of a scheduler that it divides by.
DIVISORS = ("step_size", "T_max", "total_size")
# The numbers of a scheduler that nobody has chosen: its state, and the rates of the optimizer.
OWN = ("last_epoch", "T_cur", "best", "mode_worse", "base_lrs")


def check_optimizer(optimizer: Optimizer) -> None:
    """Refuse a NaN, infinite or negative number in a parameter group. Options unknown to torch may be anything."""
    who, several = type(optimizer).__name__, len(optimizer.param_groups) > 1
    for index, group in enumerate(optimizer.param_groups):
        for name, value in group.items():
            limited = name.endswith(NOT_NEGATIVE)
            if name == "params" or not (limited or _is_torch(optimizer)):
                continue
            label = f"{who}: {name}" + (f" of parameter group {index}" if several else "")
            for number in _numbers(value):
                check_number(label, number, least=0 if limited else None)


def out_of_limits(groups: list[dict[str, Any]]) -> list[str]:
    """Return where saved parameter groups have a NaN, infinite or negative number in a known option, or no name."""
    return [
        f"[{index}][{name!r}]"
        for index, group in enumerate(groups)
        for name, value in group.items()
        if not isinstance(name, str)
        or (name.endswith(NOT_NEGATIVE) and not all(is_finite(number) and number >= 0 for number in _numbers(value)))
    ]


def check_scheduler(scheduler: LRScheduler) -> None:
    """Refuse a NaN, infinite or negative number in a scheduler of torch. Others may count as they like."""
    for each in [each for _, each in walk(scheduler) if _is_torch(each)]:
        for name, value in vars(each).items():
            if name.startswith("_") or name in OWN:
                continue
            for number in _numbers(value):
                label = f"{type(each).__name__}: {name}"
                if name in DIVISORS:
                    check_number(label, number, above=0)
                else:
                    check_number(label, number, least=0)


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Set the rate of a parameter group, which may be a tensor."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def _is_torch(thing: object) -> bool:
    return type(thing).__module__.startswith("torch.optim")


def _numbers(value: Any) -> Iterator[float]:
    """Yield a number, the number in a tensor, or the numbers in a list or tuple."""
    if isinstance(value, Tensor) and value.numel() == 1 and value.is_floating_point():
        yield value.item()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _numbers(inner)
