"""GradNormHook: norms of gradients and weights, of the whole model and of its modules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hookline.common.checks import check_int
from hookline.optim.clipping import check_norm_type
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hookline.optim.optim import Optim
    from hookline.runner.runner import Runner

# The name of the norm over all parameters.
TOTAL = "total"


class GradNormHook(Hook):
    """Records the norms of gradients and weights, in total and per module.

    Every `interval` optimizer steps, it records the scalars `train/grad_norm/total`, `train/grad_norm/<module>`,
    `train/weight_norm/total` and `train/weight_norm/<module>`, or, with several optims, `train/<optim>/grad_norm/total`
    and so on. They cover the parameters that the optimizer updates. A shared parameter counts for the first module.

    The gradients are complete, unscaled and not yet clipped. The weights are the weights before the step.

    Cost: one comparison per optimizer step. A record computes two multi-tensor norms per module and two in total,
    without waiting for the device.

    Example:
        from hookline.hooks import GradNormHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[GradNormHook(interval=1)]).train()

    YAML:
        custom_hooks:
          - {type: GradNormHook, interval: 5, depth: 2}

    Args:
        interval: Record every `interval` optimizer steps.
        norm_type: The norm to record. 2 is the usual one, and `.inf` is the largest absolute value.
        depth: The depth of the modules that get their own norms. 1 is the children of the model, 2 is their children as
            `child.grandchild`.
        weights: Also record the norms of the weights.
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
        """Return the interval of the records, in optimizer steps."""
        return {"before_optimizer_step": self.interval}

    def before_optimizer_step(self, runner: Runner) -> None:
        """Record the norms for the optim that steps."""
        for prefix, optim in runner.optims.prefixed.items():
            if optim.updating:
                self._record(runner, optim, prefix)

    def _record(self, runner: Runner, optim: Optim, prefix: str) -> None:
        hub, parameters = runner.hub, optim.parameters()
        for name, members in {TOTAL: parameters, **group_by_module(runner.model, parameters, self.depth)}.items():
            gradients = [parameter.grad.detach() for parameter in members if parameter.grad is not None]
            if gradients:
                hub.update_scalar(
                    f"{prefix}grad_norm/{name}", runner.strategy.gradients.norm(gradients, self.norm_type)
                )
            if self.weights:
                hub.update_scalar(
                    f"{prefix}weight_norm/{name}",
                    runner.strategy.gradients.norm([member.detach() for member in members], self.norm_type),
                )


def group_by_module(model: nn.Module, parameters: Iterable[Tensor], depth: int) -> dict[str, list[Tensor]]:
    """Group the given parameters by their module at this depth. Leave out parameters that are not in the model."""
    wanted = {id(parameter) for parameter in parameters}
    groups: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if id(parameter) in wanted:
            module = ".".join(name.split(".")[:-1][:depth]) or name
            groups.setdefault(f"model.{TOTAL}" if module == TOTAL else module, []).append(parameter)
    return groups
