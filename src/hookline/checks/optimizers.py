"""Checks of the optims before the first step: parameters, closures, windows, rates, and optimizers of schedulers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import lr_scheduler

from hookline.checks.reach import mentions, names_in
from hookline.checks.schedules import report_kept_lengths
from hookline.common.escape import escaped
from hookline.errors import ConfigError, DistributedError, HookError
from hookline.optim import retiming
from hookline.optim.refusals import refuse_closure, refuse_other_optimizer
from hookline.optim.schedules import Constant, Cosine, Linear, Schedule, WarmupStableDecay
from hookline.optim.warmup import Warmup
from hookline.plan.entry import is_custom
from hookline.plan.milestones import quantity
from hookline.state.contents import CustomPart

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler

    from hookline.engine.run import Run
    from hookline.optim.optim import Optim

log = logging.getLogger("hookline")

#: How many parameters a warning names.
NAMED = 3
#: Schedulers that multiply the current rate.
MULTIPLY = (
    *(lr_scheduler.StepLR, lr_scheduler.MultiStepLR, lr_scheduler.ExponentialLR, lr_scheduler.MultiplicativeLR),
    *(lr_scheduler.LinearLR, lr_scheduler.ConstantLR, lr_scheduler.PolynomialLR),
    *(lr_scheduler.ReduceLROnPlateau, Warmup),
)
#: Schedules that multiply the base rates by a curve that falls, or stays, after its warmup.
CURVES = (Constant, Linear, Cosine, WarmupStableDecay)


def check_optims(runner: Run) -> None:
    """Refuse an optim that cannot train this model."""
    for name, optim in runner.optims.items():
        who = _name_of(name, optim)
        for scheduled in optim.schedulers:
            refuse_other_optimizer(scheduled.scheduler, optim.optimizer, who)
        if not runner.steps_are_custom:
            refuse_closure(optim.optimizer, who, runner.hints.closure)
        if outside := refuse_foreign(runner, optim, who):
            log.warning(
                "%s updates %d parameters that are not in the model, so checkpoints do not contain them. Put them into "
                "the model, or add their module with runner.add_part.",
                who,
                outside,
            )
        if runner.strict_start:
            report_long_window(runner, optim, who)
            report_zero_rate(runner, optim, who)


def report_long_window(runner: Run, optim: Optim, who: str) -> None:
    """Warn about an accumulation window that is never full, because an epoch or the run ends before it."""
    loop = runner.train_loop.planned
    length, what = (loop.length, "every epoch") if loop.by_epoch else (loop.total_iters, "this run")
    if loop.updates_itself or length is None or optim.accumulate <= length:
        return
    log.warning(
        "%s: accumulate is %s, but %s has only %s, so it makes just one update, with fewer batches than that. Set "
        "accumulate to at most %s",
        *(who, f"{optim.accumulate:,}", what, quantity(length, "batch"), f"{length:,}"),
    )


def report_zero_rate(runner: Run, optim: Optim, who: str) -> None:
    """Warn about rates of 0 that no scheduler and no code of the user changes, so that nothing is trained."""
    groups = optim.optimizer.param_groups
    zero = [number for number, group in enumerate(groups) if is_zero(group.get("lr"))]
    if runner.train_loop.is_over(runner.position) or not all(keeps_zero(each.scheduler) for each in optim.schedulers):
        return
    if mentions(runner, "param_groups") or "param_groups" in names_in(runner.train_loop.step):
        return
    if zero and len(zero) == len(groups):
        ended = any(not is_zero(group.get("initial_lr", 0.0)) for group in groups)
        log.warning(
            "%s: the learning rate is 0%s, so nothing is trained. %s",
            who,
            " and stays there, because the schedule has ended" * ended,
            "Start a new run from these weights (load_from)" if ended else "Set lr to a number above 0",
        )
    elif zero and all(is_zero(groups[number].get("initial_lr", 0.0)) for number in zero):
        log.warning(
            "%s: the learning rate of parameter group%s %s is 0, so these parameters are not trained. Freezing them "
            "with requires_grad=False saves time and memory",
            *(who, "s" * (len(zero) > 1), ", ".join(map(str, zero))),
        )


def is_zero(rate: Any) -> bool:
    """Return whether a rate is 0. Some optimizers have no rate of their own (None)."""
    return isinstance(rate, (int, float, Tensor)) and not float(rate)


def keeps_zero(scheduler: LRScheduler) -> bool:
    """Return whether a scheduler never changes the rates of an optimizer whose current rates are 0.

    Only the schedulers of torch and of `schedules` are known. Any other may set the rate.
    """
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


def check_parameters(runner: Run) -> None:
    """Check, after hooks could change model and optimizers, that the first step trains parameters of the model."""
    for name, optim in runner.optims.items():
        who = _name_of(name, optim)
        refuse_foreign(runner, optim, who)
        updated = optim.parameters()
        if updated and not runner.steps_are_custom and not any(each.requires_grad for each in updated):
            raise ConfigError(
                f"{who} updates only parameters that are frozen (requires_grad is False), so nothing would be trained; "
                "unfreeze some of them: parameter.requires_grad_(True)"
            )
    report_untrained(runner)


def recheck(runner: Run) -> None:
    """Refuse to train on after code of the user has emptied an optimizer, or unfrozen parameters that are not shared.

    This runs in a few iterations only, so the message names the hooks that may have done it.
    """
    for name, optim in runner.optims.items():
        if any(group["params"] for group in optim.optimizer.param_groups):
            optim.take_joined()
            continue
        suspects = [each.name for each in runner.plan if is_custom(each.hook) and "param_groups" in names_in(each.hook)]
        by = f" ({' or '.join(suspects)} uses param_groups)" if suspects else ""
        raise HookError(
            f"{_name_of(name, optim)} has no parameters left by iteration {runner.position.iter}{by}, so nothing is "
            "trained; to stop training a parameter, freeze it: parameter.requires_grad_(False)"
        )
    refuse_unshared(runner)
    if runner.loading.data_of_pass:
        report_kept_lengths(runner)


def refuse_unshared(runner: Run) -> None:
    """Refuse to train parameters whose gradients are not averaged over the processes: they were frozen at the start."""
    gradients = runner.strategy.gradients
    updated = {id(each) for optim in runner.optims.values() for each in optim.parameters()}
    alone = [
        name
        for name, parameter in runner.model.named_parameters()
        if parameter.requires_grad and id(parameter) in updated and not gradients.averages(parameter)
    ]
    if alone:
        raise DistributedError(
            f"{escaped(alone[0])}{f' and {len(alone) - 1} more' if alone[1:] else ''}: trained by iteration "
            f"{runner.position.iter}, but frozen or missing when the strategy '{runner.strategy.name}' wrapped the "
            "model, which averages no other gradients, so each process trains its own; let it require gradients from "
            "the start, and freeze it with FreezeHook(patterns, until_epoch=...)"
        )


def report_untrained(runner: Run) -> None:
    """Warn about parameters of the model that have gradients but are in no optimizer, so that they never change.

    This runs before the first step and at every save, because code of the user may replace a module in between. A
    parameter is reported once.
    """
    if not (runner.strict_start and runner.optims):
        return
    updated = {id(each) for optim in runner.optims.values() for each in optim.parameters()}
    named, known = runner.model.named_parameters(), runner.reported
    lacking = [name for name, each in named if each.requires_grad and id(each) not in updated and name not in known]
    if lacking and not mentions(runner, "add_param_group"):
        known.update(lacking)
        more = f" and {len(lacking) - NAMED} more" if len(lacking) > NAMED else ""
        log.warning(
            "no optimizer has these parameters of the model, so they are never trained: %s%s. Pass them to an "
            "optimizer, or, if they are to stay as they are, freeze them: FreezeHook, or "
            "parameter.requires_grad_(False)",
            ", ".join(map(escaped, lacking[:NAMED])),
            more,
        )


def _name_of(name: str, optim: Optim) -> str:
    kind = type(optim.optimizer).__name__
    return f"the optimizer of optim '{name}' ({kind})" if name else f"the optimizer ({kind})"


def refuse_foreign(runner: Run, optim: Optim, who: str) -> int:
    """Refuse an optimizer that updates nothing of the model. Return how many other parameters it updates."""
    modules = [runner.model, *(part.part for part in runner.contents.parts.values() if isinstance(part, CustomPart))]
    known = {id(each) for module in modules if isinstance(module, nn.Module) for each in module.parameters()}
    updated = optim.parameters()
    outside = sum(id(parameter) not in known for parameter in updated)
    if updated and outside == len(updated):
        raise ConfigError(
            f"{who} updates none of the model's parameters, so the model would not be trained. Create the optimizer "
            "with the parameters of the model that the Runner gets; to train a second model, put both into one module, "
            "or add it with runner.add_part"
        )
    return outside
