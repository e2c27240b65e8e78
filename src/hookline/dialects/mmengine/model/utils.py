"""Helper functions for models."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from hookline.dialects.exports import export_defined
from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.logging import print_log
from hookline.dialects.mmengine.not_included import not_included, stands_for


def stack_batch(tensor_list: list[Tensor], pad_size_divisor: int = 1, pad_value: float = 0) -> Tensor:
    """Stack tensors into one, padded to the same size at the end of each dimension except the first.

    >>> stack_batch([torch.zeros(1, 2, 3), torch.zeros(1, 3, 2)], pad_size_divisor=2).shape
    torch.Size([2, 1, 4, 4])
    """
    if not isinstance(tensor_list, list) or not tensor_list:
        raise ConfigTypeError(f"stack_batch expects a list with at least one tensor, not {type(tensor_list).__name__}")
    if len({(each.ndim, each.shape[0]) for each in tensor_list}) > 1:
        raise ConfigValueError(
            "stack_batch expects tensors with the same number of dimensions and channels, not the shapes "
            + ", ".join(str(tuple(each.shape)) for each in tensor_list)
        )
    sizes = [max(each.shape[axis] for each in tensor_list) for axis in range(1, tensor_list[0].ndim)]
    sizes = [-(-size // pad_size_divisor) * pad_size_divisor for size in sizes]
    padded = []
    for each in tensor_list:
        missing = [size - each.shape[axis + 1] for axis, size in enumerate(sizes)]
        padded.append(pad(each, [part for size in reversed(missing) for part in (0, size)], value=pad_value))
    return torch.stack(padded)


def merge_dict(*args: dict[str, Any]) -> dict[str, Any]:
    """Merge several dicts into a new one. Later entries win."""
    merged: dict[str, Any] = {}
    for each in args:
        merged.update(each)
    return merged


def detect_anomalous_params(loss: Tensor, model: nn.Module) -> None:
    """Log an error for each parameter of a model that a loss does not depend on."""
    nodes: list[Any] = [loss.grad_fn]
    seen, used = set(nodes), set()
    while nodes:
        node = nodes.pop()
        if hasattr(node, "variable"):
            used.add(node.variable)
        more = {each for each, _ in getattr(node, "next_functions", ())} - seen
        seen |= more
        nodes += more
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter not in used:
            print_log(
                f"the loss does not depend on {name}, with the shape {tuple(parameter.shape)}",
                logger="current",
                level=logging.ERROR,
            )


def convert_sync_batchnorm(module: nn.Module, implementation: str = "torch") -> nn.Module:
    """Replace all batch norms by ones that compute their statistics over all processes."""
    if implementation != "torch":
        raise ConfigValueError(f"sync_bn must be 'torch', not {implementation!r}")
    converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]  # torch's
    return converted


class _BatchNormXd(nn.modules.batchnorm._BatchNorm):
    """A batch norm for inputs of any number of dimensions."""

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept all inputs."""


def revert_sync_batchnorm(module: nn.Module) -> nn.Module:
    """Replace all batch norms over several processes by ordinary ones, which also work on a CPU.

    >>> net = convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(2)))
    >>> revert_sync_batchnorm(net)(torch.zeros(3, 2)).shape
    torch.Size([3, 2])
    """
    for name, child in module.named_children():
        module.add_module(name, revert_sync_batchnorm(child))
    if not isinstance(module, nn.SyncBatchNorm):
        return module
    made = _BatchNormXd(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats)
    if module.affine:
        made.weight, made.bias = module.weight, module.bias
    made.running_mean, made.running_var = module.running_mean, module.running_var
    made.num_batches_tracked = module.num_batches_tracked
    return made.train(module.training)


stands_for(__name__, "model.efficient_conv_bn_eval")
not_included(
    globals(),
    *("efficient_conv_bn_eval_control", "efficient_conv_bn_eval_forward", "efficient_conv_bn_eval_graph_transform"),
    *("turn_on_efficient_conv_bn_eval", "turn_on_efficient_conv_bn_eval_for_single_model"),
)
export_defined(globals())
