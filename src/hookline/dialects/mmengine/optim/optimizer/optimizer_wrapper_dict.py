"""OptimWrapperDict: several wrappers by name, as a model with several optimizers gets them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn

from hookline.dialects.mmengine.errors import ConfigKeyError, ConfigTypeError
from hookline.engine.optim import Optim
from hookline.engine.optims import Optims
from hookline.errors import HooklineError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hookline.dialects.mmengine.optim.optimizer.optimizer_wrapper import OptimWrapper


class CalledTogetherError(HooklineError, NotImplementedError):
    """Something was asked of all optimizers that each makes for itself."""


class OptimWrapperDict(Optims):
    """Several OptimWrappers: `optim_wrapper["generator"].update_params(loss)`."""

    def __init__(self, **optim_wrapper_dict: OptimWrapper) -> None:
        for name, wrapper in optim_wrapper_dict.items():
            if not isinstance(wrapper, Optim):
                raise ConfigTypeError(f"'{name}' in an OptimWrapperDict is an OptimWrapper, not {wrapper!r}")
        super().__init__(optim_wrapper_dict)

    @property
    def optim_wrappers(self) -> dict[str, Any]:
        """The wrappers by name."""
        return dict(self)

    def _each_by_itself(self, what: str) -> NoReturn:
        one = next(iter(self), "name")
        raise CalledTogetherError(f"{what} is called for one optimizer at a time: optim_wrapper['{one}'].{what}(...)")

    def update_params(self, loss: Tensor, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: each updates by itself."""
        self._each_by_itself("update_params")

    def backward(self, loss: Tensor, **kwargs: Any) -> NoReturn:
        """Refused: each by itself."""
        self._each_by_itself("backward")

    def step(self, **kwargs: Any) -> NoReturn:
        """Refused: each by itself."""
        self._each_by_itself("step")

    def optim_context(self, model: nn.Module) -> AbstractContextManager[Any]:
        """Refused: each by itself."""
        self._each_by_itself("optim_context")

    def zero_grad(self, **kwargs: Any) -> None:
        """Forget the gradients of all."""
        for wrapper in self.values():
            wrapper.optimizer.zero_grad(**kwargs)

    def initialize_count_status(self, model: nn.Module, cur_iter: int, max_iters: int) -> None:
        """Nothing: how often each of several updates is the model's affair."""

    @property
    def param_groups(self) -> dict[str, list[dict[str, Any]]]:
        """The groups of each."""
        return {name: wrapper.param_groups for name, wrapper in self.optim_wrappers.items()}

    def get_lr(self) -> dict[str, list[float]]:
        """The learning rates of each, as `name.lr` and `name.base_lr`."""
        return {
            f"{name}.{key}": value
            for name, wrapper in self.optim_wrappers.items()
            for key, value in wrapper.get_lr().items()
        }

    def get_momentum(self) -> dict[str, list[float]]:
        """The momentum of each, as `name.momentum`."""
        return {f"{name}.momentum": each.get_momentum()["momentum"] for name, each in self.optim_wrappers.items()}

    def state_dict(self) -> dict[str, Any]:
        """The states by name."""
        return {name: wrapper.state_dict() for name, wrapper in self.optim_wrappers.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take them back."""
        for name, state in state_dict.items():
            if name not in self:
                raise ConfigKeyError(f"there is a state of '{name}', and no such optimizer; {did_you_mean(name, self)}")
            self.optim_wrappers[name].load_state_dict(state)

    def __repr__(self) -> str:
        return "".join(f"name: {name}\n{wrapper!r}" for name, wrapper in self.items())
