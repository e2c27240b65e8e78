"""OptimWrapperDict, the wrappers of a model with several optimizers, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from hookline.dialects.mmengine.errors import ConfigKeyError, ConfigTypeError
from hookline.errors import HooklineError, did_you_mean
from hookline.optim.optim import Optim
from hookline.optim.optims import Optims

if TYPE_CHECKING:
    from torch import nn

    from hookline.dialects.mmengine.optim.optimizer.optimizer_wrapper import OptimWrapper


class CalledTogetherError(HooklineError, NotImplementedError):
    """A method was called for all optimizers that must be called for each of them separately."""


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Optims, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse the call: it must be made for each wrapper separately."""
        one = next(iter(self), "name")
        raise CalledTogetherError(
            f"{name} must be called for one optimizer at a time: optim_wrapper['{one}'].{name}(...)"
        )

    return refuse


class OptimWrapperDict(Optims):
    """Several OptimWrappers: `optim_wrapper["generator"].update_params(loss)`."""

    def __init__(self, **optim_wrapper_dict: OptimWrapper) -> None:
        for name, wrapper in optim_wrapper_dict.items():
            if not isinstance(wrapper, Optim):
                raise ConfigTypeError(f"OptimWrapperDict: '{name}' must be an OptimWrapper, not {wrapper!r}")
        super().__init__(optim_wrapper_dict)

    @property
    def optim_wrappers(self) -> dict[str, Any]:
        """Return the wrappers by name."""
        return dict(self)

    update_params = _refused("update_params")
    backward = _refused("backward")
    step = _refused("step")
    optim_context = _refused("optim_context")

    def zero_grad(self, **kwargs: Any) -> None:
        """Clear the gradients of all optimizers."""
        for wrapper in self.values():
            wrapper.optimizer.zero_grad(**kwargs)

    def initialize_count_status(self, model: nn.Module, cur_iter: int, max_iters: int) -> None:
        """Do nothing: with several optimizers, the model decides how often each one updates."""

    @property
    def param_groups(self) -> dict[str, list[dict[str, Any]]]:
        """Return the parameter groups of each wrapper."""
        return {name: wrapper.param_groups for name, wrapper in self.optim_wrappers.items()}

    def get_lr(self) -> dict[str, list[float]]:
        """Return the learning rates of each wrapper as `name.lr` and `name.base_lr`."""
        return {
            f"{name}.{key}": value
            for name, wrapper in self.optim_wrappers.items()
            for key, value in wrapper.get_lr().items()
        }

    def get_momentum(self) -> dict[str, list[float]]:
        """Return the momentum of each wrapper as `name.momentum`."""
        return {f"{name}.momentum": each.get_momentum()["momentum"] for name, each in self.optim_wrappers.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all wrappers by name."""
        return {name: wrapper.state_dict() for name, wrapper in self.optim_wrappers.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the states of the wrappers."""
        for name, state in state_dict.items():
            if name not in self:
                raise ConfigKeyError(f"the state is for an unknown optimizer '{name}'; {did_you_mean(name, self)}")
            self.optim_wrappers[name].load_state_dict(state)

    def __repr__(self) -> str:
        return "".join(f"name: {name}\n{wrapper!r}" for name, wrapper in self.items())
