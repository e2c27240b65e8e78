"""FSDP2: every process has a part of each parameter, and gathers the whole of a unit when it is needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DataParallel, DistributedDataParallel

from hookline.common.checks import check_choice, check_int
from hookline.common.sharding import is_sharded
from hookline.errors import ConfigError, DistributedError
from hookline.strategies import sharded_steps
from hookline.strategies.base import unwrap
from hookline.strategies.processes import TIMEOUT, Processes
from hookline.strategies.sharded_files import ShardedCheckpoints
from hookline.strategies.sharded_gradients import ShardedGradients, groups_of
from hookline.strategies.units import WHO, find_units

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from hookline.run.requests import Requests

T = TypeVar("T")

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class FSDP(Processes):
    """Train one model whose parameters, gradients and optimizer states are sharded, with torch's `fully_shard`.

    Args:
        wrap: The class names of the modules that are units. A unit is gathered for its forward and backward pass, and
            freed afterwards. The whole model is always a unit, for what is in no other one.
        min_params: Instead of `wrap`, the least number of parameters of a unit. By default, modules with a million
            parameters are units.
        param_dtype: The dtype of gathered parameters, and of the computation: `bf16` or `fp32`. The optimizer updates
            the original ones.
        reduce_dtype: The dtype in which gradients are summed over processes.
        reshard_after_forward: If true, free a unit after its forward pass, and gather it again for its backward pass.
            By default, this is so for all units but the whole model.
        timeout: The seconds after which training ends if a process does not answer.
    """

    name = "fsdp"

    def __init__(
        self,
        wrap: Sequence[str] = (),
        min_params: int | None = None,
        param_dtype: str | None = None,
        reduce_dtype: str | None = None,
        reshard_after_forward: bool | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        if not isinstance(wrap, (list, tuple)) or not all(isinstance(name, str) for name in wrap):
            raise ConfigError(f"{WHO}: wrap must be a list of class names, such as [Block], not {wrap!r}")
        if min_params is not None:
            check_int(f"{WHO}: min_params", min_params, least=1)
            if wrap:
                raise ConfigError(f"{WHO}: use wrap or min_params, not both")
        for label, dtype in (("param_dtype", param_dtype), ("reduce_dtype", reduce_dtype)):
            if dtype == "fp16":
                raise ConfigError(
                    f"{WHO}: {label} cannot be fp16, because small gradients would become 0; use bf16, or precision: "
                    "fp16, which scales the loss"
                )
            if dtype is not None:
                check_choice(f"{WHO}: {label}", dtype, DTYPES)
        if reshard_after_forward not in (None, True, False):
            raise ConfigError(f"{WHO}: reshard_after_forward must be true or false, not {reshard_after_forward!r}")
        super().__init__(timeout, all_write=True)
        self.wrap, self.min_params = list(wrap), min_params
        self.param_dtype, self.reduce_dtype = param_dtype, reduce_dtype
        self.reshard_after_forward = reshard_after_forward
        #: The hook of the main process that is running, which must not call the model.
        self._alone = ""
        #: Held while the processes write together, or while a hook of the main process must not exchange anything.
        self._exchanging = threading.Lock()
        self.gradients = ShardedGradients(self.group)
        self.checkpoints = ShardedCheckpoints(self, self._exchanging)

    def start(self, requests: Requests, device: torch.device) -> None:
        """Join the group, which a launcher must have described. A config is checked without one."""
        if "WORLD_SIZE" not in os.environ and not distributed.is_initialized():
            raise ConfigError(
                f"{WHO} needs a group of processes, but WORLD_SIZE is not set; start with hookline train --nproc N, or "
                "with torchrun"
            )
        super().start(requests, device)

    # -- the model

    def prepare(self, model: nn.Module, optimizers: Iterable[Optimizer], device: torch.device) -> nn.Module:
        """Shard the model, unless it is sharded, and point the optimizers at the sharded parameters."""
        inner, optimizers = unwrap(model), list(optimizers)
        if isinstance(inner, FSDPModule):
            self._refuse_options_for_sharded(inner)
            sharded_steps.choose(optimizers)
            return model
        self._refuse(model, inner, optimizers)
        self.refuse_other_model(inner)
        options = self._options(inner)
        before = dict(inner.named_parameters())
        self._copy_from_main(inner)
        mesh = init_device_mesh(device.type, (self.world_size,))
        for unit in (*find_units(inner, self.wrap, self.min_params), inner):
            fully_shard(unit, mesh=mesh, **options)
        after = dict(inner.named_parameters())
        for optimizer in optimizers:
            sharded_steps.point(optimizer, {before[name]: after[name] for name in before})
        sharded_steps.choose(optimizers)
        inner.register_forward_pre_hook(self._before_forward, prepend=True)
        vars(inner)["_hookline_sharded"] = True
        return model

    def _refuse(self, model: nn.Module, inner: nn.Module, optimizers: list[Optimizer]) -> None:
        """Refuse models and optimizers that cannot be sharded."""
        if isinstance(model, (DistributedDataParallel, DataParallel)):
            raise ConfigError(f"{WHO} shards the model itself, so it must not be a {type(model).__name__}")
        parameters = dict(inner.named_parameters())
        for name, parameter in parameters.items():
            if is_sharded(parameter):
                raise ConfigError(f"{WHO}: {name} is already a DTensor, but the model was not given to fully_shard")
            if parameter.is_meta:
                raise ConfigError(f"{WHO}: {name} is on the device 'meta', so it has no data; create it on the CPU")
            if parameter.ndim == 0:
                raise ConfigError(f"{WHO} cannot shard {name}, which is a single number; give it the shape (1,)")
        known = {id(parameter) for parameter in parameters.values()}
        others = sum(id(each) not in known for o in optimizers for group in o.param_groups for each in group["params"])
        if others:
            raise ConfigError(
                f"{WHO}: an optimizer updates {others} parameters that are not in the model, so they would differ "
                "between processes; put them into the model"
            )

    def _options(self, model: nn.Module) -> dict[str, Any]:
        """Return the parameters of fully_shard. Refuse parameters that would do nothing for this model."""
        have = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
        used = {DTYPES[self.param_dtype]} if self.param_dtype is not None else have
        for label, name, now in (("param_dtype", self.param_dtype, have), ("reduce_dtype", self.reduce_dtype, used)):
            if name is not None and now == {DTYPES[name]}:
                raise ConfigError(f"{WHO}: {label} does nothing, because it is already {name}; remove it")
        if self.reshard_after_forward is False and not find_units(model, self.wrap, self.min_params):
            raise ConfigError(
                f"{WHO}: reshard_after_forward does nothing, because the whole model is one unit, which is kept until "
                "its backward pass anyway; remove it, or set wrap"
            )
        policy = MixedPrecisionPolicy(
            param_dtype=None if self.param_dtype is None else DTYPES[self.param_dtype],
            reduce_dtype=None if self.reduce_dtype is None else DTYPES[self.reduce_dtype],
        )
        reshard = {} if self.reshard_after_forward is None else {"reshard_after_forward": self.reshard_after_forward}
        return {"mp_policy": policy, **reshard}

    def _refuse_options_for_sharded(self, model: nn.Module) -> None:
        options = ("wrap", "min_params", "param_dtype", "reduce_dtype", "reshard_after_forward")
        given = [name for name in options if getattr(self, name) not in (None, [])]
        if given and "_hookline_sharded" not in vars(model):
            raise ConfigError(
                f"{WHO}: {', '.join(given)} does nothing, because the model is already sharded; remove it"
            )

    def _copy_from_main(self, model: nn.Module) -> None:
        """Give all processes the parameters and buffers of the main one."""
        for tensor in (*model.parameters(), *model.buffers()):
            distributed.broadcast(tensor.detach(), 0)

    def _refuse_alone(self) -> None:
        """Refuse to gather parameters in the main process alone, which would wait for the others."""
        if self._alone:
            raise DistributedError(
                f"{self._alone} runs only in the main process (ranks = 'main'), so it cannot call a model that is "
                "sharded over all of them; set ranks = 'all'"
            )

    def _before_forward(self, model: nn.Module, inputs: Any) -> None:
        """In training, give all processes the buffers of the main one, as DDP does."""
        self._refuse_alone()
        if model.training and torch.is_grad_enabled() and self.world_size > 1:
            for buffer in model.buffers():
                distributed.broadcast(buffer, 0)

    @contextmanager
    def alone(self, who: str) -> Iterator[None]:
        """Return a context in which an exchange with other processes is an error, for a hook of the main process."""
        self._alone = who
        # A save in the background needs the group. While it writes, only calls of the model are refused.
        is_free = self._exchanging.acquire(blocking=False)
        try:
            with super().alone(who) if is_free else nullcontext():
                yield
        finally:
            self._alone = ""
            if is_free:
                self._exchanging.release()

    @contextmanager
    def evaluating(self, wrapped: nn.Module) -> Iterator[nn.Module]:
        """Gather all parameters once, so that no process waits for another one, which may have fewer batches."""
        self._refuse_alone()
        groups, before = list(groups_of(wrapped)), []
        units = [module for module in wrapped.modules() if isinstance(module, FSDPModule)]
        for group in groups:
            before.append(group.post_forward_mesh_info)
            group.post_forward_mesh_info = None  # the forward pass does not free them
        for unit in units:
            unit.unshard()
        try:
            with super().evaluating(wrapped) as model:
                yield model
        finally:
            for group, mesh in zip(groups, before, strict=True):
                group.post_forward_mesh_info = mesh
            for unit in units:
                unit.reshard()
