"""Checks of the optims before the first step: parameters and closures."""

from __future__ import annotations

import inspect
import logging
from traceback import walk_tb
from typing import TYPE_CHECKING

from torch import nn

from hookline.common.escape import escaped
from hookline.engine.host import CustomPart
from hookline.engine.reachability import mentions
from hookline.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from hookline.engine.optim import Optim
    from hookline.engine.runner_host import RunnerHost

log = logging.getLogger("hookline")

#: How many parameters a warning names.
NAMED = 3

CLOSURE_HINT = "write a step with a parameter named optim that calls optim.optimizer.step(closure)"


def check_optims(runner: RunnerHost) -> None:
    """Refuse an optim that cannot train this model."""
    for name, optim in runner.optims.items():
        who = _name_of(name, optim)
        if not runner.steps_are_custom:
            refuse_closure(optim.optimizer, who, runner.closure_hint)
        if outside := refuse_foreign(runner, optim, who):
            log.warning(
                "%s updates %d parameters that are not in the model, so checkpoints do not contain them. Put them into "
                "the model, or add their module with runner.add_part.",
                who,
                outside,
            )


def check_parameters(runner: RunnerHost) -> None:
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
    if runner.strict_start and runner.optims and not mentions(runner, "add_param_group"):
        report_untrained(runner)


def report_untrained(runner: RunnerHost) -> None:
    """Warn about parameters of the model that have gradients but are in no optimizer, so that they never change."""
    updated = {id(each) for optim in runner.optims.values() for each in optim.parameters()}
    named = runner.model.named_parameters()
    lacking = [name for name, each in named if each.requires_grad and id(each) not in updated]
    if lacking:
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


def refuse_closure(optimizer: Optimizer, who: str, hint: str = CLOSURE_HINT) -> None:
    """Refuse an optimizer such as LBFGS, whose step evaluates the model again."""
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ConfigError(
            f"{who} needs a closure that evaluates the model again, which the loop does not provide. Use another "
            f"optimizer, or {hint}"
        )


def refuse_foreign(runner: RunnerHost, optim: Optim, who: str) -> int:
    """Refuse an optimizer that updates nothing of the model. Return how many other parameters it updates."""
    modules = [runner.model, *(part.part for part in runner.parts.values() if isinstance(part, CustomPart))]
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


def refuse_resumed_optimizer(error: Exception, runner: RunnerHost) -> None:
    """Turn an error of an optimizer's first step after a resume into one that names the checkpoint.

    Each optimizer has its own rules for its state, and torch does not check them when a state is loaded.
    """
    resumed_at = runner.saving.resumed_at
    if resumed_at < 0 or runner.iter - resumed_at >= max(optim.accumulate for optim in runner.optims.values()):
        return
    optimizers = [optim.optimizer for optim in runner.optims.values()]
    for frame, _ in walk_tb(error.__traceback__):
        if any(frame.f_locals.get("self") is each for each in optimizers):
            kind = type(frame.f_locals["self"]).__name__
            raise StorageError(
                f"{runner.saving.source} cannot be used: {kind} cannot continue from the state in it: "
                f"{type(error).__name__}: {error}"
            ) from error
