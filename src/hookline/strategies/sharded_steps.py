"""Optimizers of sharded parameters: pointing them at the parameters, loading their states, and steps that torch has.

Some steps of torch have no rule for sharded parameters: with torch 2.13, the fused ones of SGD and Adagrad, and all of
Adafactor and Rprop. A list of these would be wrong for the next version. So each optimizer of torch makes one step with
a small sharded parameter before training.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hookline.common.sharding import is_sharded, part_like
from hookline.common.torch_private import drop_step_hooks
from hookline.errors import ConfigError
from hookline.strategies.units import WHO

if TYPE_CHECKING:
    from torch.optim import Optimizer

log = logging.getLogger("hookline")

#: The options of a parameter group that choose between steps with the same result.
KINDS_OF_STEP = ("fused", "foreach")


def point(optimizer: Optimizer, sharded: Mapping[Tensor, Tensor]) -> None:
    """Put the sharded parameters into the groups of an optimizer, in place, with the state that it has."""
    for group in optimizer.param_groups:
        group["params"] = [sharded[parameter] for parameter in group["params"]]
    for old in list(optimizer.state):
        optimizer.state[sharded[old]] = _state_like(optimizer.state.pop(old), sharded[old])


def load(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Load a whole state, or one of which this process reads its part. The kind of step stays as it was chosen."""
    owned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    indices = [index for group in state["param_groups"] for index in group["params"]]
    states = {
        index: _state_like(state["state"][index], parameter)
        for index, parameter in zip(indices, owned, strict=True)
        if index in state["state"]
    }
    groups = [
        {**saved, **{name: group[name] for name in KINDS_OF_STEP if name in group}}
        for saved, group in zip(state["param_groups"], optimizer.param_groups, strict=True)
    ]
    optimizer.load_state_dict({**state, "state": states, "param_groups": groups})


def choose(optimizers: Iterable[Optimizer]) -> None:
    """Choose a kind of step that torch has for sharded parameters. Refuse an optimizer that has none."""
    for optimizer in optimizers:
        if type(optimizer).__module__.startswith("torch."):  # a step of others may have effects beyond the parameters
            for group in optimizer.param_groups:
                _choose(optimizer, group)


def _choose(optimizer: Optimizer, group: dict[str, Any]) -> None:
    """Give a parameter group the first kind of step that works: its own one, or else a slower one."""
    like = next(filter(is_sharded, group["params"]), None)
    if like is None:
        return
    first: Exception | None = None
    for options in _kinds_of_step(group):
        error = _try(optimizer, {**group, **options}, like)
        if error is None:
            if options:
                log.info("%s has no fused step for sharded parameters, so it uses another", type(optimizer).__name__)
                group.update(options)
                if hasattr(optimizer, "_step_supports_amp_scaling"):  # only a fused step unscales gradients itself
                    optimizer._step_supports_amp_scaling = False
            return
        first = first or error
    raise ConfigError(
        f"{WHO}: {type(optimizer).__name__} cannot update sharded parameters with torch {torch.__version__}: "
        f"{str(first).splitlines()[0]}\n  use another optimizer, such as AdamW, or the strategy 'ddp'"
    ) from first


def _kinds_of_step(group: Mapping[str, Any]) -> Iterator[dict[str, bool]]:
    """Yield changes of the options that lead to other kinds of step, fastest first."""
    yield {}
    if group.get("fused"):
        yield {"fused": False, "foreach": True}
    if group.get("fused") or group.get("foreach"):
        yield {name: False for name in KINDS_OF_STEP if name in group}


def _try(optimizer: Optimizer, group: dict[str, Any], like: Any) -> Exception | None:
    """Return the error of a step with a small parameter that is sharded like another one; None if there is none."""
    from torch.distributed.tensor import DTensor

    def small(value: float) -> Any:
        local = torch.full((1, 2), value, dtype=like.dtype, device=like.device)
        return DTensor.from_local(local, like.device_mesh, like.placements, run_check=False)

    parameter = small(0.0).requires_grad_()
    parameter.grad = small(1.0)
    copy: Any = object.__new__(type(optimizer))
    vars(copy).update(vars(optimizer))
    vars(copy).pop("step", None)  # schedulers wrap it, to count steps
    drop_step_hooks(copy)
    copy.param_groups = [{**group, "params": [parameter]}]
    copy.state = defaultdict(dict)
    if like in optimizer.state:
        copy.state[parameter] = {
            key: small(0.0) if getattr(value, "shape", None) == like.shape else _copied(value)
            for key, value in optimizer.state[like].items()
        }
    try:
        type(optimizer).step(copy)
    except RuntimeError as error:
        return error
    except Exception:
        log.debug("%s could not be tried", type(optimizer).__name__, exc_info=True)
    return None


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _state_like(state: Mapping[str, Any], parameter: Tensor) -> dict[str, Any]:
    """Return the state of a parameter, in which tensors of its shape are sharded like the parameter."""
    return {
        key: part_like(value, parameter if getattr(value, "shape", None) == parameter.shape else None)
        for key, value in state.items()
    }
