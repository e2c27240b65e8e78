"""GradNormHook: norms of gradients and weights, of the whole model and of its modules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hookline.common.checks import check_int
from hookline.engine.clipping import check_norm_type
from hookline.plan.hook import Hook

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hookline.engine.optim import Optim
    from hookline.engine.runner import Runner

# What the norm of everything is called.
TOTAL = "total"


class GradNormHook(Hook):
    """Records the norms of gradients and weights, in total and by module.

    Scalars, every `interval` optimizer steps: `train/grad_norm/total` and `train/grad_norm/<module>`,
    `train/weight_norm/total` and `train/weight_norm/<module>`. They are of the parameters that the optimizer updates. A
    parameter that several modules share counts once, for the first of them; one that is not the model's counts in the
    total alone. What has no gradient has no norm of it.

    The gradients are complete, unscaled and not yet clipped, by whomever. The weights are those before the step.

    With several optims, each has its own numbers, of its own parameters, every `interval` of its own steps:
    `train/<optim>/grad_norm/total`.

    Cost: a comparison an optimizer step; at a record, two multi-tensor norms a module and two in total, without a wait
    for the device.

    Example:
        from hookline.hooks import GradNormHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[GradNormHook(interval=1)]).train()

    YAML:
        custom_hooks:
          - {type: GradNormHook, interval: 5, depth: 2}

    Args:
        interval: Every how many optimizer steps.
        norm_type: Which norm: 2 is the usual one, `.inf` the greatest absolute value.
        depth: How deep modules are told apart: 1 names the children of the model, 2 theirs as `child.grandchild`.
            A parameter that stands on the model itself goes by its own name.
        weights: Record the norms of weights, too.
    """

    role = "observer"
    draws_random_numbers = False

    def __init__(self, interval: int = 50, norm_type: float = 2.0, depth: int = 1, weights: bool = True) -> None:
        check_int("GradNormHook: interval", interval, least=1)
        check_norm_type("GradNormHook: norm_type", norm_type)
        check_int("GradNormHook: depth", depth, least=1)
        self.interval = interval
        self.norm_type = norm_type
        self.depth = depth
        self.weights = weights

    def how_often(self) -> dict[str, int]:
        """Optimizer steps."""
        return {"before_optimizer_step": self.interval}

    def before_optimizer_step(self, runner: Runner) -> None:
        """Record the norms for the optim that makes this step."""
        for prefix, optim in runner.optims.prefixed.items():
            if optim.updating:
                self._record(runner, optim, prefix)

    def _record(self, runner: Runner, optim: Optim, prefix: str) -> None:
        hub, parameters = runner.hub, optim.parameters()
        for name, members in {TOTAL: parameters, **by_module(runner.model, parameters, self.depth)}.items():
            gradients = [parameter.grad for parameter in members if parameter.grad is not None]
            if gradients:
                hub.update_scalar(f"{prefix}grad_norm/{name}", self._norm(gradients))
            if self.weights:
                hub.update_scalar(f"{prefix}weight_norm/{name}", self._norm(members))

    def _norm(self, tensors: list[Tensor]) -> Tensor:
        from torch.nn.utils import get_total_norm

        return get_total_norm([tensor.detach() for tensor in tensors], self.norm_type)


def by_module(model: nn.Module, parameters: Iterable[Tensor], depth: int) -> dict[str, list[Tensor]]:
    """Those of the model's parameters that are among the given ones, by the module so deep in it that they are in."""
    wanted = {id(parameter) for parameter in parameters}
    groups: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if id(parameter) in wanted:
            module = ".".join(name.split(".")[:-1][:depth]) or name
            groups.setdefault(f"model.{TOTAL}" if module == TOTAL else module, []).append(parameter)
    return groups
