"""Averages of a model's weights over training, kept beside the model.

    average = ExponentialMovingAverage(momentum=0.01)
    for batch in batches:
        train_step(model, batch)
        average.update(model)
    with average.swapped(model):
        evaluate(model)

An average of one's own says in `weight` how much a step counts; all else is here. Importing this module does not import
torch, so that a hook can be made, and its parameters checked, without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import is_
from typing import TYPE_CHECKING, Any

from hookline.common.checks import check_int
from hookline.errors import ConfigError, StorageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    # The module that a tensor belongs to, and its name there. Tensors come and go at their place: a model that assigns
    # to a buffer puts a new one there at every step.
    Place = tuple[nn.Module, str]
    Pairs = list[tuple[Tensor, Tensor]]


class WeightAverage:
    """An average of the floating-point parameters of a model; a subclass says how much each step counts.

    Parameters of less than 32 bits are averaged in 32, where a small momentum still has an effect. Tied parameters are
    one. One that is added later starts with its own value. Buffers are the model's own, unless `update_buffers`.

    Cost: the memory of the parameters once more; an update is a walk over the modules and one multi-tensor operation,
    and does not wait for the device.

    Args:
        interval: Average the first step and every so many after it.
        update_buffers: Average floating-point buffers too (those that the model saves); integer ones stay the model's.
    """

    def __init__(self, interval: int = 1, update_buffers: bool = False) -> None:
        check_int("interval", interval, least=1)
        self.interval = interval
        self.update_buffers = update_buffers
        self.reset()

    def reset(self) -> None:
        """Begin anew: the next step is the first."""
        #: Steps so far.
        self.steps = 0
        self._held: dict[Place, Tensor] = {}
        # What the model consisted of when the groups were made.
        self._modules: list[nn.Module] = []
        self._seen: list[Any] = []
        self._groups: list[tuple[list[Tensor], list[Tensor]]] = []
        self._raw: Pairs = []

    def weight(self) -> float:
        """How much of the model's weights goes into the average at this step, after `self.steps` others: 0 to 1."""
        raise NotImplementedError(f"{type(self).__name__} has no weight() that says how much a step counts")

    def update(self, model: nn.Module) -> None:
        """Take in the weights after a step; the first ones are copied."""
        import torch

        if self.steps % self.interval == 0:
            with torch.no_grad():
                self._follow(model)
                if self.steps:
                    weight = self.weight()
                    for held, live in self._groups:
                        dtype = held[0].dtype
                        same = live if dtype == live[0].dtype else [each.to(dtype) for each in live]
                        if dtype == torch.float64:
                            self.blend(held, same, weight)
                        else:  # the same in one operation, which needs no memory and rounds once less
                            torch._foreach_lerp_(held, same, weight)
        self.steps += 1

    def blend(self, held: list[Tensor], live: list[Tensor], weight: float) -> None:
        """The formula as it is written, to the last bit: e = (1 - weight) e + weight x."""
        import torch

        torch._foreach_mul_(held, 1 - weight)
        torch._foreach_add_(held, torch._foreach_mul(live, weight))

    def _follow(self, model: nn.Module) -> None:
        """Hold an average for every tensor that the model has now."""
        seen = _contents(self._modules, self.update_buffers)
        if seen and self._modules[0] is model and len(seen) == len(self._seen) and all(map(is_, seen, self._seen)):
            return
        found = places(model, self.update_buffers)
        self._held = {
            place: self._held[place].to(each.device, _held_type(each.dtype)) if self._fits(place, each) else _copy(each)
            for place, each in found.items()
        }
        self._modules = list(model.modules())
        self._seen = _contents(self._modules, self.update_buffers)
        groups: dict[tuple[torch.device, torch.dtype], tuple[list[Tensor], list[Tensor]]] = {}
        for held, each in zip(self._held.values(), found.values(), strict=True):
            group = groups.setdefault((each.device, each.dtype), ([], []))
            group[0].append(held)
            group[1].append(each)
        self._groups = list(groups.values())

    def _fits(self, place: Place, tensor: Tensor) -> bool:
        return place in self._held and self._held[place].shape == tensor.shape

    def refresh(self) -> None:
        """Look at the model anew at the next step: it was moved to another device, or to another type."""
        self._modules = []

    # -- using it

    @contextmanager
    def swapped(self, model: nn.Module) -> Iterator[None]:
        """The model has the averaged weights inside, and its own again behind, whatever happens.

        Tensors change hands and nothing is copied. Before the first step there is nothing to swap.
        """
        assert not self._raw, "the weights are swapped already"
        found = places(model, self.update_buffers).items()
        self._raw = _give([(each, self._held[place]) for place, each in found if self._fits(place, each)])
        try:
            yield
        finally:
            _give(self._raw)
            self._raw = []

    @contextmanager
    def unswapped(self) -> Iterator[None]:
        """Inside `swapped`: the model's own weights again."""
        averaged = _give(self._raw)
        try:
            yield
        finally:
            _give(averaged)

    # -- saving it

    def state_dict(self, model: nn.Module) -> dict[str, Any]:
        """`averaged`, which is a whole state dict of the model, and `steps`. It shares memory with the average."""
        return {"averaged": self._averaged(model), "steps": self.steps}

    def _averaged(self, model: nn.Module) -> dict[str, Tensor]:
        import torch

        found = places(model, self.update_buffers).items()
        held = {id(each): self._held[place] for place, each in found if self._fits(place, each)}
        state = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
        return state | {name: held[id(each)] for name, each in _named(model) if id(each) in held}

    def load_state_dict(self, state: Mapping[str, Any], model: nn.Module, strict: bool = True) -> list[str]:
        """Take back what `state_dict` gave, and give what of it does not fit the model; if strict, refuse that.

        What does not fit starts from the weights that the model has now.
        """
        if not isinstance(state.get("averaged"), Mapping) or not isinstance(state.get("steps"), int):
            raise StorageError("the state of an average has 'averaged' and 'steps'; this one is of something else")
        saved, own = state["averaged"], self._averaged(model)
        problems = [f"missing: {name} {tuple(own[name].shape)}" for name in own if name not in saved]
        problems += [f"surplus: {name}" for name in saved if name not in own]
        other = [name for name in own if name in saved and saved[name].shape != own[name].shape]
        problems += [
            f"{name}: the model has {tuple(own[name].shape)}, saved {tuple(saved[name].shape)}" for name in other
        ]
        if strict and problems:
            raise StorageError("the averaged weights do not fit the model:\n  " + "\n  ".join(problems))
        self.reset()
        self.steps = state["steps"]
        fitting = {id(each): saved[name] for name, each in _named(model) if name in saved and name not in other}
        for place, each in places(model, self.update_buffers).items() if self.steps else ():
            self._held[place] = _copy(each, fitting.get(id(each)))
        return problems


class ExponentialMovingAverage(WeightAverage):
    """The newest step counts `momentum`: e = (1 - momentum) e + momentum x.

    Args:
        momentum: How much a step counts, above 0 and at most 1.
        interval: Average the first step and every so many after it.
        update_buffers: Average floating-point buffers too; integer ones stay the model's.
    """

    def __init__(self, momentum: float = 0.0002, interval: int = 1, update_buffers: bool = False) -> None:
        super().__init__(interval, update_buffers)
        if not _is_number(momentum) or not 0 < momentum <= 1:
            raise ConfigError(f"momentum must be above 0 and at most 1, not {momentum!r}")
        self.momentum = momentum

    def weight(self) -> float:
        """Always the same."""
        return self.momentum


class MomentumAnnealingEMA(ExponentialMovingAverage):
    """An exponential moving average that forgets faster in the beginning: the momentum is gamma / (gamma + steps), and
    never below `momentum`.

    Args:
        momentum: The least that a step counts.
        gamma: How slowly the momentum falls.
        interval: Average the first step and every so many after it.
        update_buffers: Average floating-point buffers too; integer ones stay the model's.
    """

    def __init__(
        self, momentum: float = 0.0002, gamma: float = 100, interval: int = 1, update_buffers: bool = False
    ) -> None:
        super().__init__(momentum, interval, update_buffers)
        if not _is_number(gamma) or not 0 < gamma < float("inf"):
            raise ConfigError(f"gamma must be above 0, not {gamma!r}")
        self.gamma = gamma

    def weight(self) -> float:
        """Less from step to step, down to `momentum`."""
        return max(self.momentum, self.gamma / (self.gamma + self.steps))


class StochasticWeightAverage(WeightAverage):
    """The plain mean of all steps that are averaged.

    Args:
        interval: Average the first step and every so many after it.
        update_buffers: Average floating-point buffers too; integer ones stay the model's.
    """

    def weight(self) -> float:
        """As much as each of those before."""
        return 1 / (self.steps // self.interval + 1)

    def blend(self, held: list[Tensor], live: list[Tensor], weight: float) -> None:
        """A running mean: e = e + (x - e) / n."""
        import torch

        steps = torch._foreach_sub(live, held)
        torch._foreach_div_(steps, self.steps // self.interval + 1)
        torch._foreach_add_(held, steps)


def places(model: nn.Module, buffers: bool) -> dict[Place, Tensor]:
    """The tensors of a model that can be averaged, each once, by the place where it is met first."""
    found: dict[Place, Tensor] = {}
    met: set[int] = set()
    for module in model.modules():
        mine: dict[str, Any] = module._parameters
        if buffers:
            passing = module._non_persistent_buffers_set
            mine = mine | {name: each for name, each in module._buffers.items() if name not in passing}
        for name, tensor in mine.items():
            if tensor is not None and id(tensor) not in met and (tensor.is_floating_point() or tensor.is_complex()):
                met.add(id(tensor))
                found[module, name] = tensor
    return found


def _contents(modules: list[nn.Module], buffers: bool) -> list[Any]:
    """All that modules hold: the same as before, if nothing was added, removed or replaced. Asked at every step."""
    held: list[Any] = []
    for module in modules:
        held += module._parameters.values()
        held += module._modules.values()
        if buffers:
            held += module._buffers.values()
    return held


def _named(model: nn.Module) -> list[tuple[str, Tensor]]:
    """All tensors of a model with all their names; tied ones have several."""
    return [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]


def _held_type(dtype: torch.dtype) -> torch.dtype:
    import torch

    return torch.float32 if dtype.itemsize < 4 else dtype


def _copy(tensor: Tensor, value: Tensor | None = None) -> Tensor:
    """A tensor to average in, as it lies in memory, with its value or another one."""
    import torch

    new = torch.empty_like(tensor, dtype=_held_type(tensor.dtype), requires_grad=False)
    return new.copy_(tensor.detach() if value is None else value)


def _give(pairs: Pairs) -> Pairs:
    """Put other data into tensors; gives what undoes it."""
    undoing = [(tensor, tensor.data) for tensor, _ in pairs]
    ready = [data.to(tensor.device, tensor.dtype) for tensor, data in pairs]  # if this fails, nothing has changed
    for (tensor, _), data in zip(pairs, ready, strict=True):
        tensor.data = data
    return undoing


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
