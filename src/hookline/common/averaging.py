"""Averages of a model's weights during training, stored separately from the model.

    average = ExponentialMovingAverage(momentum=0.01)
    for batch in batches:
        train_step(model, batch)
        average.update(model)
    with average.swapped(model):
        evaluate(model)

For a custom average, subclass `WeightAverage` and define `weight`: how much each step counts. Importing this module
does not import torch, so a hook can be created and its parameters checked without torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import is_
from typing import TYPE_CHECKING, Any

from hookline.common.checks import check_int, is_count, is_finite
from hookline.common.escape import escaped
from hookline.common.numbers import as_repr
from hookline.common.sharding import is_sharded, local_part, part_like
from hookline.common.torch_private import buffers_of, foreach, modules_of, parameters_of, unsaved_buffers_of
from hookline.errors import ConfigError, StorageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    # The module that a tensor belongs to, and its name there. The tensor itself may change: a model that assigns to a
    # buffer puts a new tensor there at every step.
    Place = tuple[nn.Module, str]
    Pairs = list[tuple[Tensor, Tensor]]


class WeightAverage:
    """An average of a model's floating-point parameters. A subclass defines how much each step counts.

    Parameters with fewer than 32 bits are averaged in 32 bits, so that a small momentum still has an effect. Tied
    parameters are averaged once. A parameter that is added later starts with its current value. Without
    `update_buffers`, buffers are not averaged, and the model's current ones are used.

    Cost: a second copy of the parameters in memory. An update walks over the modules and runs one multi-tensor
    operation, without waiting for the device.

    Args:
        interval: Average the first step and every `interval`-th step after it.
        update_buffers: Also average the floating-point buffers that the model saves. Integer ones are never averaged.
    """

    def __init__(self, interval: int = 1, update_buffers: bool = False) -> None:
        check_int("interval", interval, least=1)
        self.interval = interval
        self.update_buffers = update_buffers
        self.reset()

    def reset(self) -> None:
        """Start from scratch: the next step is the first."""
        #: Number of steps so far.
        self.steps = 0
        self._held: dict[Place, Tensor] = {}
        # The contents of the model when the groups were built.
        self._modules: list[nn.Module] = []
        self._seen: list[Any] = []
        self._groups: list[tuple[list[Tensor], list[Tensor]]] = []
        self._raw: Pairs = []

    def weight(self) -> float:
        """Return how much the current step counts in the average, from 0 to 1. `self.steps` steps came before it."""
        raise NotImplementedError(f"{type(self).__name__} must define weight(), which returns how much a step counts")

    def update(self, model: nn.Module) -> None:
        """Add the model's weights after a step to the average. The first call copies the weights."""
        import torch

        if self.steps % self.interval == 0:
            with torch.no_grad():
                self._follow(model)
                if self.steps:
                    weight = self.weight()
                    for held, live in self._groups:
                        dtype = held[0].dtype
                        same = live if dtype == live[0].dtype else [tensor.to(dtype) for tensor in live]
                        if dtype == torch.float64:
                            self.blend(held, same, weight)
                        else:  # the same formula in one operation: no extra memory, and one rounding fewer
                            foreach("lerp_")(held, same, weight)
        self.steps += 1

    def blend(self, held: list[Tensor], live: list[Tensor], weight: float) -> None:
        """Update `held` in place with e = (1 - weight) e + weight x, bit-exactly as written."""
        foreach("mul_")(held, 1 - weight)
        foreach("add_")(held, foreach("mul")(live, weight))

    def _follow(self, model: nn.Module) -> None:
        """Make sure that every tensor of the model has an average, even after the model has changed."""
        seen = _contents(self._modules, self.update_buffers)
        if seen and self._modules[0] is model and len(seen) == len(self._seen) and all(map(is_, seen, self._seen)):
            return
        tensors = find_tensors(model, self.update_buffers)
        self._held = {
            place: self._held[place].to(live.device, _held_type(live.dtype)) if self._fits(place, live) else _copy(live)
            for place, live in tensors.items()
        }
        self._modules = list(model.modules())
        self._seen = _contents(self._modules, self.update_buffers)
        groups: dict[tuple[torch.device, torch.dtype], tuple[list[Tensor], list[Tensor]]] = {}
        for held, live in zip(self._held.values(), tensors.values(), strict=True):
            group = groups.setdefault((live.device, live.dtype), ([], []))
            group[0].append(local_part(held))
            group[1].append(local_part(live))
        self._groups = list(groups.values())

    def _fits(self, place: Place, tensor: Tensor) -> bool:
        return place in self._held and self._held[place].shape == tensor.shape

    def refresh(self) -> None:
        """Inspect the model again at the next step. Call this after it moved to another device or dtype."""
        self._modules = []

    # -- swapping

    @contextmanager
    def swapped(self, model: nn.Module) -> Iterator[None]:
        """Give the model the averaged weights inside the `with` block. Its own weights always return afterwards.

        Tensors are exchanged, not copied. Before the first step there is nothing to swap. Inside another such block,
        the model has the averaged weights already.
        """
        if self._raw:
            yield
            return
        tensors = find_tensors(model, self.update_buffers).items()
        self._raw = _exchange([(tensor, self._held[place]) for place, tensor in tensors if self._fits(place, tensor)])
        try:
            yield
        finally:
            _exchange(self._raw)
            self._raw = []

    @contextmanager
    def unswapped(self) -> Iterator[None]:
        """Give the model its own weights back for a while. Use this inside `swapped`."""
        averaged, self._raw = _exchange(self._raw), []
        try:
            yield
        finally:
            self._raw = _exchange(averaged)

    # -- saving and loading

    def state_dict(self, model: nn.Module) -> dict[str, Any]:
        """Return `averaged`, a complete state dict of the model, and `steps`. Memory is shared with the average."""
        return {"averaged": self._averaged(model), "steps": self.steps}

    def _averaged(self, model: nn.Module) -> dict[str, Tensor]:
        import torch

        tensors = find_tensors(model, self.update_buffers).items()
        held = {id(tensor): self._held[place] for place, tensor in tensors if self._fits(place, tensor)}
        state = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
        return state | {name: held[id(tensor)] for name, tensor in _named(model) if id(tensor) in held}

    def load_state_dict(self, state: Mapping[str, Any], model: nn.Module, strict: bool = True) -> list[str]:
        """Restore the state that `state_dict` returned, and return a list of mismatches with the model.

        If `strict`, refuse any mismatch. Otherwise, tensors that do not match start from the model's current weights.
        """
        entries = state if isinstance(state, Mapping) else {}
        if not isinstance(entries.get("averaged"), Mapping) or not is_count(entries.get("steps")):
            raise StorageError("this is not the state of a weight average, which has 'averaged' and 'steps'")
        saved, current = state["averaged"], self._averaged(model)
        problems = [f"missing: {escaped(name)} {tuple(current[name].shape)}" for name in current if name not in saved]
        problems += [f"surplus: {escaped(name)}" for name in saved if name not in current]
        shapes = {name: getattr(saved[name], "shape", type(saved[name]).__name__) for name in current if name in saved}
        other = [name for name, shape in shapes.items() if shape != current[name].shape]
        problems += [
            f"{escaped(name)}: the model has {tuple(current[name].shape)}, saved "
            f"{shapes[name] if isinstance(shapes[name], str) else tuple(shapes[name])}"
            for name in other
        ]
        if strict and problems:
            raise StorageError("the averaged weights do not fit the model:\n  " + "\n  ".join(problems))
        self.reset()
        self.steps = state["steps"]
        fitting = {id(tensor): saved[name] for name, tensor in _named(model) if name in saved and name not in other}
        for place, tensor in find_tensors(model, self.update_buffers).items() if self.steps else ():
            self._held[place] = _copy(tensor, fitting.get(id(tensor)))
        return problems


class ExponentialMovingAverage(WeightAverage):
    """An exponential moving average: e = (1 - momentum) e + momentum x.

    Args:
        momentum: The weight of each new step, above 0 and at most 1.
        interval: Average the first step and every `interval`-th step after it.
        update_buffers: Also average floating-point buffers. Integer buffers are never averaged.
    """

    def __init__(self, momentum: float = 0.0002, interval: int = 1, update_buffers: bool = False) -> None:
        super().__init__(interval, update_buffers)
        if not is_finite(momentum) or not 0 < momentum <= 1:
            raise ConfigError(f"momentum must be above 0 and at most 1, not {as_repr(momentum)}")
        self.momentum = momentum

    def weight(self) -> float:
        """Return `momentum`, the same for every step."""
        return self.momentum


class MomentumAnnealingEMA(ExponentialMovingAverage):
    """An exponential moving average that forgets faster at the beginning.

    The momentum is gamma / (gamma + steps), but never below `momentum`.

    Args:
        momentum: The lower limit of the momentum.
        gamma: How slowly the momentum falls.
        interval: Average the first step and every `interval`-th step after it.
        update_buffers: Also average floating-point buffers. Integer buffers are never averaged.
    """

    def __init__(
        self, momentum: float = 0.0002, gamma: float = 100, interval: int = 1, update_buffers: bool = False
    ) -> None:
        super().__init__(momentum, interval, update_buffers)
        if not is_finite(gamma) or gamma <= 0:
            raise ConfigError(f"gamma must be above 0, not {as_repr(gamma)}")
        self.gamma = gamma

    def weight(self) -> float:
        """Return a value that falls from step to step, down to `momentum`."""
        return max(self.momentum, self.gamma / (self.gamma + self.steps))


class StochasticWeightAverage(WeightAverage):
    """The plain mean of all averaged steps.

    Args:
        interval: Average the first step and every `interval`-th step after it.
        update_buffers: Also average floating-point buffers. Integer buffers are never averaged.
    """

    def weight(self) -> float:
        """Return 1 / n at the n-th averaged step, so that all steps count equally."""
        return 1 / (self.steps // self.interval + 1)

    def blend(self, held: list[Tensor], live: list[Tensor], weight: float) -> None:
        """Update `held` in place with the running mean: e = e + (x - e) / n."""
        differences = foreach("sub")(live, held)
        foreach("div_")(differences, self.steps // self.interval + 1)
        foreach("add_")(held, differences)


def find_tensors(model: nn.Module, buffers: bool) -> dict[Place, Tensor]:
    """Return the model's tensors that can be averaged, each once, by the place where it first appears."""
    tensors: dict[Place, Tensor] = {}
    seen: set[int] = set()
    for module in model.modules():
        mine = parameters_of(module)
        if buffers:
            not_saved = unsaved_buffers_of(module)
            mine = mine | {name: each for name, each in buffers_of(module).items() if name not in not_saved}
        for name, tensor in mine.items():
            if tensor is not None and id(tensor) not in seen and (tensor.is_floating_point() or tensor.is_complex()):
                seen.add(id(tensor))
                tensors[module, name] = tensor
    return tensors


def _contents(modules: list[nn.Module], buffers: bool) -> list[Any]:
    """Return all parameters, submodules and buffers, to detect added, removed and replaced ones.

    This runs at every step, so it must be cheap.
    """
    held: list[Any] = []
    for module in modules:
        held += parameters_of(module).values()
        held += modules_of(module).values()
        if buffers:
            held += buffers_of(module).values()
    return held


def _named(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Return all tensors of a model with their names. Tied tensors appear once per name."""
    return [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]


def _held_type(dtype: torch.dtype) -> torch.dtype:
    import torch

    return torch.float32 if dtype.itemsize < 4 else dtype


def _copy(tensor: Tensor, value: Tensor | None = None) -> Tensor:
    """Return a new tensor for the average, with the same memory layout, filled from `value` or from the tensor."""
    import torch

    new = torch.empty_like(tensor, dtype=_held_type(tensor.dtype), requires_grad=False)
    return new.copy_(tensor.detach() if value is None else part_like(value, tensor))


def _exchange(pairs: Pairs) -> Pairs:
    """Put other data into tensors, and return the pairs that undo it."""
    previous = [(tensor, tensor.data.clone() if is_sharded(tensor) else tensor.data) for tensor, _ in pairs]
    # An evaluation may have gathered the weights, but not their average.
    whole = [(t, d.full_tensor() if is_sharded(d) and not is_sharded(t) else d) for t, d in pairs]  # type: ignore[attr-defined]  # a DTensor
    ready = [data.to(tensor.device, tensor.dtype) for tensor, data in whole]  # if this fails, nothing has changed
    for (tensor, _), data in zip(pairs, ready, strict=True):
        if is_sharded(tensor):  # the strategy keeps the memory of the part, so its values are copied
            local_part(tensor).copy_(local_part(data))
        else:
            tensor.data = data
    return previous
