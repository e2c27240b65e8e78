"""ActivationStatsHook: statistics of activations and gradients, per module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hookline.common.checks import check_int
from hookline.common.sharding import local_part
from hookline.common.watching import tensors_in
from hookline.errors import ConfigError
from hookline.plan.milestones import Milestone
from hookline.plan.modules import Watch
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from torch import Tensor

    from hookline.runner.runner import Runner

#: The statistics that the scale of a loss multiplies.
SCALED = ("mean", "std", "absmax", "norm")


class ActivationStatsHook(Hook):
    """Records statistics of activations and of their gradients, per module.

    Every `interval` iterations, it records the scalars `train/activations/<module>/<statistic>` for the tensors that a
    module returns, and `train/gradients/<module>/<statistic>` for the gradients of these tensors:

    - `mean`, `std`, `absmax` (the largest absolute value) and `norm` (the 2-norm)
    - `zeros`, the share of values that are exactly 0
    - `nonfinite`, the number of values that are NaN or infinite

    Further calls of a module in the same iteration are recorded as `<module>/call_1`, and further tensors that it
    returns as `<module>/output_1`. The model itself is called `model`. Only floating-point tensors count.

    Gradients belong to the loss of the micro-batch, divided by `accumulate`. The scale of fp16 is removed, unless there
    are several optims. With several processes, a record has the means over the processes.

    Cost: nothing but one comparison in other iterations. A recorded tensor takes seven operations on its device,
    without waiting for it. Training computes the same bits as without this hook.

    Example:
        from hookline.hooks import ActivationStatsHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[ActivationStatsHook("*", interval=2)]).train()

    YAML:
        custom_hooks:
          - {type: ActivationStatsHook, modules: "*", interval: 3}

    Args:
        modules: The modules to look at: a pattern such as `layers.*`, or a list of patterns. `*` also matches dots.
        interval: Record every `interval` iterations.
        activations: Record the tensors that the modules return.
        gradients: Record the gradients of these tensors.
    """

    role = "observer"
    draws_random_numbers = False

    def __init__(
        self, modules: str | list[str], interval: int = 50, activations: bool = True, gradients: bool = True
    ) -> None:
        check_int("ActivationStatsHook: interval", interval, least=1)
        if not (activations or gradients):
            raise ConfigError("ActivationStatsHook: nothing is recorded without activations and gradients; set one")
        self.modules = modules
        self.interval = interval
        self.activations = activations
        self.gradients = gradients

    def must_reach(self, runner: Runner) -> list[Milestone]:
        """Return the first record."""
        return [Milestone("interval", self.interval, self.interval, "iteration", "nothing is recorded")]

    def watches(self) -> Iterator[Watch]:
        """Return the watches of the modules."""
        if self.activations:
            yield Watch(self.modules, "forward", self._record_activations, self.interval)
        if self.gradients:
            yield Watch(self.modules, "backward", self._record_gradient, self.interval)

    def _record_activations(self, runner: Runner, name: str, call: int, outputs: Any) -> None:
        for output, tensor in enumerate(tensors_in(outputs)):
            _record(runner, "activations", _label(name, call, output), tensor)

    def _record_gradient(self, runner: Runner, name: str, call: int, output: int, gradient: Tensor) -> None:
        _record(runner, "gradients", _label(name, call, output), gradient, _scale(runner, gradient))


def _label(name: str, call: int, output: int) -> str:
    return (name or "model") + f"/call_{call}" * bool(call) + f"/output_{output}" * bool(output)


def _record(runner: Runner, kind: str, label: str, tensor: Tensor, scale: Tensor | None = None) -> None:
    part = local_part(tensor)
    if part.is_floating_point() and part.numel():
        numbers = statistics(part)
        if scale is not None:
            numbers |= {name: numbers[name] / scale for name in SCALED}
        runner.hub.update_scalars(numbers, prefix=f"train/{kind}/{label}/")


def statistics(tensor: Tensor) -> dict[str, Tensor]:
    """Return the statistics of a tensor as tensors with one element, on its device."""
    import torch

    values = tensor.detach()
    if values.dtype.itemsize < 4:  # a sum of halves would overflow
        values = values.float()
    norm = torch.linalg.vector_norm
    return {
        "mean": values.mean(),
        "std": values.std(correction=0),
        "absmax": norm(values, float("inf")),
        "norm": norm(values),
        "zeros": (values == 0).float().mean(),
        "nonfinite": values.isfinite().logical_not_().float().sum(),
    }


def _scale(runner: Runner, gradient: Tensor) -> Tensor | None:
    """Return the scale of the loss in fp16; None without one. It stays on the device."""
    import torch

    scaler = runner.optims.sole.scaler if len(runner.optims) == 1 else None
    return None if scaler is None else scaler.scale(gradient.new_ones((), dtype=torch.float32))
