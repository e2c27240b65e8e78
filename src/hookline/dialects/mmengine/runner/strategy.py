"""The strategies of a Runner: it wraps its model itself, and its samplers share the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn

from hookline.dialects.mmengine.errors import ConfigTypeError
from hookline.dialects.mmengine.model.wrappers import is_model_wrapper
from hookline.dialects.mmengine.model.wrappers.distributed import refuse_unused_step
from hookline.dialects.mmengine.registry import MODEL_WRAPPERS
from hookline.plan.scopes import NOTHING
from hookline.strategies import Single
from hookline.strategies.ddp import DDP
from hookline.strategies.gradients import CopiedGradients

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer

#: Wraps the model at the start of a session.
Wrap = Callable[[nn.Module], nn.Module]
#: Seconds after which training ends if a process does not answer, as in torch. A process may wait for the first one
#: while it computes metrics.
TIMEOUT = 1800.0


class WrapOnce:
    """Lets the Runner wrap a model at the start of its first session."""

    def __init__(self, wrap: Wrap) -> None:
        self._wrap = wrap
        self._wrapped: nn.Module | None = None

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return the wrapped model."""
        if model is not self._wrapped:
            self._wrapped = self._wrap(model)
        return self._wrapped


class OneProcess(Single):
    """Train in this process only."""

    def __init__(self, wrap: Wrap) -> None:
        super().__init__()
        self._wrapping = WrapOnce(wrap)

    def prepare(self, model: nn.Module, optimizers: Iterable[Optimizer], device: torch.device) -> nn.Module:
        """Let the Runner wrap the model."""
        return self._wrapping.prepare(model)


class Wrapped(DDP):
    """Train copies of a model in several processes, in a model wrapper."""

    def __init__(self, wrap: Wrap, timeout: float = TIMEOUT) -> None:
        super().__init__(timeout)
        self.gradients = SyncedByWrapper(self.group)
        self._wrapping = WrapOnce(wrap)

    def share(self, loader: Iterable[Any], pad: bool) -> Iterable[Any]:
        """Return the loader as it is: its sampler has already shared the data."""
        return loader

    def prepare(self, model: nn.Module, optimizers: Iterable[Optimizer], device: torch.device) -> nn.Module:
        """Let the Runner wrap the model."""
        return self._wrapping.prepare(model)

    @contextmanager
    def evaluating(self, wrapped: nn.Module) -> Iterator[nn.Module]:
        """Return the wrapper, whose `val_step` waits for no other process."""
        yield wrapped


class SyncedByWrapper(CopiedGradients):
    """The gradients of a model whose `optim_context` decides, before the forward pass, whether to sync."""

    sync_in_forward = False

    def syncing(self, model: nn.Module, sync: bool) -> AbstractContextManager[Any]:
        """Return an empty context."""
        return NOTHING


def wrap(model: nn.Module, config: Mapping[str, Any] | None, device: torch.device, unused: bool) -> nn.Module:
    """Return the model in the wrapper of `model_wrapper_cfg`."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        return model
    described = {"type": "MMDistributedDataParallel", **(config or {})}
    kind = described["type"]
    found = MODEL_WRAPPERS.get(kind) if isinstance(kind, str) else kind
    options: dict[str, Any] = {"module": model}
    if isinstance(found, type) and issubclass(found, nn.parallel.DistributedDataParallel) and device.type != "cpu":
        options["device_ids"] = [device.index]
    if config is None:
        options |= {"broadcast_buffers": False, "find_unused_parameters": unused}
    made: nn.Module = MODEL_WRAPPERS.build(described, default_args=options)
    refuse_unused_step(made, model)
    return made


def refuse_wrapped(model: nn.Module, config: Mapping[str, Any] | None) -> None:
    """Refuse a wrapper for a model that already is in one."""
    if config is not None and is_model_wrapper(model):
        raise ConfigTypeError(
            f"the model is already wrapped in a {type(model).__name__}, so model_wrapper_cfg must not be set"
        )
