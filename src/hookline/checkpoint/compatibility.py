"""Comparison of a checkpoint with a run: all mismatches are listed before anything is loaded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hookline.common.escape import escaped
from hookline.common.torch_private import set_versions, versions_of
from hookline.errors import StorageError

if TYPE_CHECKING:
    from torch import nn


def with_versions(entries: Mapping[str, Any], state: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """Return entries of a model's state with the versions of its modules, which torch keeps as an attribute.

    A module whose layout has changed converts entries of older versions when it is loaded. Without the versions, it
    would also convert entries that are up to date.
    """
    kept = OrderedDict(entries)
    if (versions := versions_of(state)) is not None:
        set_versions(kept, versions)
    return kept


def misfits(model: nn.Module, state: Mapping[str, Any]) -> list[str]:
    """Return the entries of a model's state that are missing, surplus or of another shape."""
    expected = model.state_dict()
    problems = [f"missing: {escaped(name)} {tuple(expected[name].shape)}" for name in expected if name not in state]
    problems += [f"surplus: {escaped(name)}" for name in state if name not in expected]
    return problems + other_shapes(expected, state)


def other_shapes(own: Mapping[str, Any], state: Mapping[str, Any]) -> list[str]:
    """Return the entries that a model and a checkpoint have with different shapes."""
    return [
        f"{escaped(name)}: the model has {shape_of(own[name])}, the checkpoint {shape_of(state[name])}"
        for name in own
        if name in state and shape_of(state[name]) != shape_of(own[name])
    ]


@dataclass(frozen=True)
class Converted:
    """Entries of a model's state that a load converts to another dtype."""

    names: list[str]
    saved: str
    own: str
    #: True if the model cannot hold the numbers: they are rounded, or lose their imaginary parts, for example.
    is_lossy: bool

    def __str__(self) -> str:
        more = f" and {len(self.names) - 1} more" if len(self.names) > 1 else ""
        return f"{escaped(self.names[0])}{more}"


def converted(own: Mapping[str, Any], state: Mapping[str, Any]) -> list[Converted]:
    """Return the entries that have other dtypes in a model than in a checkpoint, grouped by dtypes."""
    pairs: dict[tuple[torch.dtype, torch.dtype], list[str]] = {}
    for name, value in own.items():
        saved, now = getattr(state.get(name), "dtype", None), getattr(value, "dtype", None)
        if saved is not None and now not in (None, saved) and shape_of(state[name]) == shape_of(value):
            pairs.setdefault((saved, now), []).append(name)
    return [
        Converted(names, _name_of(saved), _name_of(now), is_lossy=not _holds(saved, now))
        for (saved, now), names in pairs.items()
    ]


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _holds(saved: torch.dtype, own: torch.dtype) -> bool:
    """Return whether a dtype has all numbers of another one of the same kind: float32 has the numbers of bfloat16."""
    if saved.is_floating_point != own.is_floating_point and not own.is_complex:
        return False
    try:
        return torch.promote_types(saved, own) == own
    except RuntimeError:  # of quantized numbers, and of floats of 8 bits
        return False


def fit_lengths(model: nn.Module, state: Mapping[str, Any], within: str = "") -> list[str]:
    """Resize parameters and buffers to the lengths in a checkpoint, if only their first dimension differs.

    This is for models whose points are added and removed during training. Parameters stay the same objects, so an
    optimizer keeps them. Their values are undefined until the state is loaded. Only names that begin with `within` are
    considered. Return the names that were changed.
    """
    changed = []
    for name, own in [*model.named_parameters(), *model.named_buffers()]:
        saved = state.get(name)
        if not name.startswith(within) or not isinstance(saved, Tensor) or saved.shape == own.shape:
            continue
        if saved.ndim == own.ndim > 0 and saved.shape[1:] == own.shape[1:]:
            own.data = own.data.new_empty(saved.shape)
            own.grad = None
            changed.append(name)
    return changed


def separate_elements(model: nn.Module) -> None:
    """Give buffers that were made with `expand` memory for every element: torch cannot load values into them."""
    for buffer in model.buffers():
        if buffer.layout is torch.strided and any(
            length > 1 and not step for length, step in zip(buffer.shape, buffer.stride(), strict=True)
        ):
            buffer.data = buffer.data.contiguous()


def refuse_lacking(model: nn.Module, state: Mapping[str, Any], path: str) -> None:
    """Refuse weights that do not cover the whole model: the evaluation would be of another model."""
    lacking = [problem for problem in misfits(model, state) if not problem.startswith("surplus")]
    if lacking:
        raise StorageError(f"{path} does not fit the model, so it cannot be evaluated:\n  " + "\n  ".join(lacking))


def optimizer_misfits(who: str, own: Sequence[Sequence[Tensor]], saved: Mapping[str, Any]) -> list[str]:
    """Return the entries of an optimizer's state that are for other groups, or for parameters of another shape.

    `own` are the parameters in each group of this run.
    """
    groups = saved["param_groups"]
    sizes = [len(group) for group in own], [len(group["params"]) for group in groups]
    if sizes[0] != sizes[1]:
        return [f"{who}: this run has groups of {sizes[0]} parameters, the checkpoint of {sizes[1]}"]
    found = []
    owned = [parameter for group in own for parameter in group]
    parameters = dict(zip((i for group in groups for i in group["params"]), owned, strict=True))
    for index, state in saved["state"].items():
        if index not in parameters:
            found.append(f"{who}: the checkpoint has a state for parameter {index}, which is in none of its groups")
            continue
        for key, value in state.items():
            shape = parameters[index].shape
            if getattr(value, "ndim", None) == len(shape) and _differ(value.shape, shape):
                found.append(
                    f"{who}: {key} of parameter {index} is {tuple(value.shape)}, but the parameter is {tuple(shape)}"
                )
    return found


def _differ(saved: Sequence[int], own: Sequence[int]) -> bool:
    """Return whether the shapes differ, apart from averages over a dimension, as in Adafactor's row_var and col_var."""
    return any(length not in (1, size) for length, size in zip(saved, own, strict=True))


def describe_share(saved: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Explain which parts stay exact if another number of processes resumes a run, and which do not."""
    samples, old = now.get("batch_size"), saved.get("batch_size")
    if samples is None or old is None:
        data = "the loader decides which samples each process sees"
    elif samples == old:
        data = f"every step has the same {samples} samples"
    else:
        data = f"every step has {samples} samples instead of {old}"
    return f"{data}; sums may differ in their last bits, and random numbers that the model draws are others"


def processes(number: int) -> str:
    """Return `1 process`, or `2 processes`."""
    return f"{number} process{'es' * (number != 1)}"


def shape_of(value: Any) -> Any:
    """Return the shape of a tensor, with its kind if torch cannot copy it to an ordinary one; or any other type."""
    if isinstance(value, Tensor) and (value.layout is not torch.strided or value.is_quantized):
        return f"{value.dtype if value.is_quantized else value.layout} {tuple(value.shape)}"
    return tuple(value.shape) if hasattr(value, "shape") else type(value).__name__
