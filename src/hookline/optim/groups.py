"""Parameter groups that a hook adds during a run: the schedulers of the optimizer follow them.

Many schedulers of torch have an entry for each group that was there when they were created, and end in an error of
`zip` if a group joins. Here, the new group follows the curve from its own base rate: its `initial_lr`, or else its
`lr`. OneCycleLR and CyclicLR set rates without asking a group, so it gets the rates of the other groups.
"""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import SWALR

from hookline.errors import HookError
from hookline.optim.hyperparameters import set_rate
from hookline.optim.nesting import walk
from hookline.optim.retiming import is_direct, restore
from hookline.optim.schedules import Schedule
from hookline.optim.warmup import Warmup

Groups = list[dict[str, Any]]

#: The lists of a scheduler with an entry per group.
LISTS: dict[type, tuple[str, ...]] = {
    lr_scheduler.LambdaLR: ("lr_lambdas",),
    lr_scheduler.MultiplicativeLR: ("lr_lambdas",),
    lr_scheduler.CyclicLR: ("max_lrs", "base_momentums", "max_momentums"),
    lr_scheduler.ReduceLROnPlateau: ("min_lrs",),
}
#: The options that a scheduler has set in every group.
OPTIONS: dict[type, tuple[str, ...]] = {
    lr_scheduler.OneCycleLR: ("initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum"),
    lr_scheduler.CyclicLR: ("initial_lr", "max_momentum", "base_momentum"),
    SWALR: ("swa_lr",),
}
#: The schedulers that do not ask a group for its rate.
SETS_RATES = (lr_scheduler.OneCycleLR, lr_scheduler.CyclicLR)
#: The schedulers whose rate is a function of the step and the base rate. The others change the current rate.
FROM_BASE = (Schedule, lr_scheduler.CosineAnnealingWarmRestarts, lr_scheduler.CyclicLR)


def follow_groups(scheduler: LRScheduler) -> None:
    """Let a scheduler follow the groups that have joined its optimizer since it was created or this was called."""
    groups: Groups = scheduler.optimizer.param_groups
    known = len(getattr(scheduler, "base_lrs", groups))
    for _, each in walk(scheduler):
        if isinstance(each, Warmup):
            each.follow_groups()
        elif isinstance(each, LRScheduler):
            _extend(each, groups)
    if known < len(groups) and (is_direct(scheduler) or isinstance(scheduler, FROM_BASE)):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "To get the last learning rate")
            rates = scheduler.get_lr()
        for group, rate in list(zip(groups, rates, strict=True))[known:]:
            set_rate(group, float(rate))


def load(scheduler: LRScheduler, saved: Any) -> None:
    """Load the state of a scheduler. A LambdaLR needs as many functions as the groups that it had followed."""
    for (_, each), (_, state) in zip(walk(scheduler), walk(saved), strict=False):
        functions = getattr(each, "lr_lambdas", None)
        if functions:
            functions += functions[-1:] * (len(state.get("lr_lambdas", ())) - len(functions))
    scheduler.load_state_dict(saved)
    restore(scheduler)


def _extend(scheduler: LRScheduler, groups: Groups) -> None:
    """Give a scheduler what it needs of each group."""
    rates = getattr(scheduler, "base_lrs", None)
    if rates is not None and len(rates) > len(groups) and (is_direct(scheduler) or isinstance(scheduler, FROM_BASE)):
        raise HookError(
            f"{type(scheduler).__name__} has rates for {len(rates)} parameter groups, but {len(groups)} are left in "
            "the optimizer. Do not remove a group during a run; to stop training a parameter, freeze it: "
            "parameter.requires_grad_(False)"
        )
    for name in _of(OPTIONS, scheduler):
        for group in groups:
            if name not in group and name in groups[0]:
                group[name] = _common(scheduler, [each[name] for each in groups if name in each], name, group)
    for name in _of(LISTS, scheduler):
        values = getattr(scheduler, name, groups)
        if len(values) < len(groups) and (name != "min_lrs" or scheduler.default_min_lr is None):  # type: ignore[attr-defined]  # a ReduceLROnPlateau has it
            value = _common(scheduler, values, name)
            values += [value] * (len(groups) - len(values))
    if rates is not None:
        rates += [_copied(group.setdefault("initial_lr", _copied(group["lr"]))) for group in groups[len(rates) :]]


def _common(scheduler: LRScheduler, values: list[Any], name: str, group: dict[str, Any] | None = None) -> Any:
    """Return the value that all groups have. Refuse a new group if they differ, or if its own rate would be ignored."""
    kind, default = type(scheduler).__name__, scheduler.optimizer.defaults.get("lr")
    if any(value is not values[0] and value != values[0] for value in values[1:]):
        raise HookError(
            f"{kind} has another {name} for each parameter group, so it has none for the group that was added during "
            f"the run; create the optimizer with all groups, or use the same {name} for all"
        )
    if group is not None and isinstance(scheduler, SETS_RATES) and name == "initial_lr" and group["lr"] != default:
        raise HookError(
            f"{kind} sets the rates of all parameter groups, so lr={float(group['lr']):g} of the group that was added "
            "during the run would be ignored; add it without lr, or use a scheduler that begins at the lr of a group"
        )
    return values[0]


def _of(table: dict[type, tuple[str, ...]], scheduler: LRScheduler) -> tuple[str, ...]:
    return next((names for kind, names in table.items() if isinstance(scheduler, kind)), ())


def _copied(rate: Any) -> Any:
    return rate.clone() if isinstance(rate, Tensor) else rate
