"""Model wrappers for several processes: one for the whole model, and one for models with several optimizers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hookline.dialects.exports import export_defined
from hookline.dialects.mmengine.dist import broadcast
from hookline.dialects.mmengine.errors import ConfigTypeError
from hookline.dialects.mmengine.model.base_model import BaseModel
from hookline.dialects.mmengine.model.utils import detect_anomalous_params
from hookline.dialects.mmengine.not_included import not_included, stands_for

#: Newer versions of torch have another name for `broadcast_buffers`.
RENAMED = "forward_sync_buffers" in inspect.signature(DistributedDataParallel.__init__).parameters


class MMDistributedDataParallel(DistributedDataParallel):
    """A model whose gradients are averaged over all processes, with the steps that the loops call.

    `train_step` calls `forward` of the model. A model with its own `train_step` needs
    MMSeparateDistributedDataParallel, or a subclass of this wrapper with a `train_step` of its own.

    Args:
        module: The model.
        detect_anomalous_params: Log the parameters that no loss depends on, in every iteration. This takes time.
        **kwargs: Arguments of torch's DistributedDataParallel.
    """

    def __init__(self, module: nn.Module, detect_anomalous_params: bool = False, **kwargs: Any) -> None:
        if "broadcast_buffers" in kwargs and RENAMED:
            kwargs["forward_sync_buffers"] = kwargs.pop("broadcast_buffers")
        super().__init__(module=module, **kwargs)
        self.detect_anomalous_params = detect_anomalous_params

    def train_step(self, data: Any, optim_wrapper: Any) -> dict[str, Tensor]:
        """Compute the losses of a batch, update the parameters, and return the values to log."""
        model: Any = self.module
        with optim_wrapper.optim_context(self):
            losses = self._run_forward(model.data_preprocessor(data, True), mode="loss")
        loss, log_vars = model.parse_losses(losses)
        optim_wrapper.update_params(loss)
        if self.detect_anomalous_params:
            detect_anomalous_params(loss, model=self)
        return log_vars  # type: ignore[no-any-return]  # of the user's model

    def val_step(self, data: Any) -> Any:
        """Return the predictions for a validation batch, without waiting for other processes."""
        return self.module.val_step(data)

    def test_step(self, data: Any) -> Any:
        """Return the predictions for a test batch, without waiting for other processes."""
        return self.module.test_step(data)

    def _run_forward(self, data: Any, mode: str) -> Any:
        if isinstance(data, (list, tuple)):
            return self(*data, mode=mode)
        if isinstance(data, dict):
            return self(**data, mode=mode)
        raise ConfigTypeError(
            f"the data_preprocessor of {type(self.module).__name__} must return a dict, list or tuple for forward, not "
            f"a {type(data).__name__}"
        )


class MMSeparateDistributedDataParallel(DistributedDataParallel):
    """A model whose parts are wrapped one by one, for models with several optimizers, such as a GAN.

    During `train_step` of the model, each of its parts with something to train is a MMDistributedDataParallel.
    Everywhere else, such as in checkpoints, the model is as it was.

    Args:
        module: The model, with its own `train_step`.
        broadcast_buffers: Copy the buffers of the first process to the others before every forward pass.
        find_unused_parameters: Find the parameters that a loss does not depend on.
        **kwargs: Arguments of MMDistributedDataParallel.
    """

    def __init__(
        self, module: nn.Module, broadcast_buffers: bool = False, find_unused_parameters: bool = False, **kwargs: Any
    ) -> None:
        nn.Module.__init__(self)  # the model as a whole is not wrapped
        self.module: Any = module
        options = {"broadcast_buffers": broadcast_buffers, "find_unused_parameters": find_unused_parameters, **kwargs}
        wrapped = {}
        for name, part in module.named_children():
            if any(parameter.requires_grad for parameter in part.parameters()):
                wrapped[name] = MMDistributedDataParallel(part, **options)
            else:
                for value in part.state_dict().values():
                    broadcast(value)
        #: The wrapped parts by name. They are in a dict, so that they are no modules of this one.
        self.parts = wrapped

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        return self.module(*args, **kwargs)

    def train_step(self, data: Any, optim_wrapper: Any) -> dict[str, Tensor]:
        """Let the model compute its losses and update its parts."""
        own = {name: self.module._modules[name] for name in self.parts}
        self.module._modules.update(self.parts)
        try:
            return self.module.train_step(data, optim_wrapper)  # type: ignore[no-any-return]  # of the user's model
        finally:
            self.module._modules.update(own)

    def val_step(self, data: Any) -> Any:
        """Return the predictions for a validation batch."""
        return self.module.val_step(data)

    def test_step(self, data: Any) -> Any:
        """Return the predictions for a test batch."""
        return self.module.test_step(data)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Keep the gradients of all parts in this process."""
        with ExitStack() as stack:
            for part in self.parts.values():
                stack.enter_context(part.no_sync())
            yield

    def train(self, mode: bool = True) -> MMSeparateDistributedDataParallel:
        """Set the mode of the model."""
        self.training = mode
        self.module.train(mode)
        return self


def refuse_unused_step(wrapper: nn.Module, model: nn.Module) -> None:
    """Refuse a wrapper that cannot train, or whose `train_step` would never call the model's."""
    step: Any = getattr(type(wrapper), "train_step", None)
    if step is None:
        raise ConfigTypeError(
            f"the model wrapper {type(wrapper).__name__} has no train_step; use MMDistributedDataParallel or a subclass"
        )
    own = getattr(type(model), "train_step", None)
    if step is MMDistributedDataParallel.train_step and own is not BaseModel.train_step:
        raise ConfigTypeError(
            f"{type(model).__name__} has its own train_step, which MMDistributedDataParallel never calls; set "
            "model_wrapper_cfg=dict(type='MMSeparateDistributedDataParallel'), or register a wrapper with a train_step "
            "in MODEL_WRAPPERS and name it there"
        )


stands_for(__name__, "model.wrappers.fully_sharded_distributed", "model.wrappers.seperate_distributed")
not_included(globals(), "MMFullyShardedDataParallel")
export_defined(globals())
