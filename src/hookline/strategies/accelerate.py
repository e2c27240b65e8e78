"""Accelerate: an `accelerate.Accelerator` wraps the model. All else is as with any other strategy of several processes.

hookline shares the data, steps the optimizers and saves, so a checkpoint is the same file that a single process writes.
accelerate's own loaders, optimizers and schedulers are not used.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from hookline.common.torch_private import compiled_from
from hookline.errors import ConfigError, did_you_mean
from hookline.strategies.base import unwrap
from hookline.strategies.gradients import NOTHING, CopiedGradients
from hookline.strategies.processes import TIMEOUT, Processes

if TYPE_CHECKING:
    from accelerate import Accelerator  # type: ignore[import-untyped]
    from torch import nn
    from torch.optim import Optimizer

    from hookline.run.requests import Requests

log = logging.getLogger("hookline")

#: The names of precisions: accelerate's, and ours.
PRECISIONS = {"no": "fp32", "bf16": "bf16", "fp16": "fp16"}

_DATA = "hookline shares the data; set the batch_size of the loader"
_SHARDING = "such a model trains with the strategy 'fsdp'"
#: Options of an Accelerator that would have no effect here, and what to do instead.
ELSEWHERE = {
    "gradient_accumulation_steps": "set accumulate in the optim",
    "gradient_accumulation_plugin": "set accumulate in the optim",
    "step_scheduler_with_optimizer": "set in the optim when a scheduler steps",
    "cpu": "set device: cpu",
    "device_placement": "set the device of the run",
    "split_batches": _DATA,
    "dataloader_config": _DATA,
    "rng_types": "set the seed of the run",
    "deepspeed_plugin": _SHARDING,
    "deepspeed_plugins": _SHARDING,
    "fsdp_plugin": _SHARDING,
    "megatron_lm_plugin": _SHARDING,
    "torch_tp_plugin": _SHARDING,
    "parallelism_config": _SHARDING,
}
#: The variables that `accelerate launch`, or an Accelerator with a plugin, sets for an engine that shards the model.
ENGINES = {
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "a parallelism config",
}


class Accelerate(Processes):
    """Train copies of a model in one or several processes, with an `accelerate.Accelerator`.

    Args:
        accelerator: An Accelerator. By default, one is created at the start of the run.
        timeout: The seconds after which training ends if a process does not answer.
        options: The parameters of that Accelerator, such as `mixed_precision`.
    """

    name = "accelerate"

    def __init__(self, accelerator: Accelerator | None = None, timeout: float = TIMEOUT, **options: Any) -> None:
        _refuse_missing()
        _refuse_engines()
        if accelerator is not None:
            _check_given(accelerator, options)
        else:
            _check_options(options)
            _find_processes()
        super().__init__(timeout)
        self.gradients = AcceleratedGradients(self)
        #: The Accelerator; None until the run starts, if it was not given.
        self.accelerator = accelerator
        self._options = options

    # -- device and precision

    def pick_device(self, name: str | torch.device) -> torch.device:
        """Return the device of the Accelerator for this process."""
        if self.accelerator is None:
            return super().pick_device("cpu" if name == "auto" and _flag("ACCELERATE_USE_CPU") else name)
        device: torch.device = self.accelerator.device
        if device.type == "cpu":
            device = torch.device("cpu")  # accelerate calls it cpu:0
        if name != "auto" and super().pick_device(name) != device:
            raise ConfigError(f"the device is '{name}', but the Accelerator has {device}; set device: auto")
        return device

    def pick_precision(self, name: str) -> str:
        """Return the precision of the Accelerator, unless only the run has one."""
        if self.accelerator is not None:
            theirs, may_change = self.accelerator.mixed_precision, False
        else:
            chosen = self._options.get("mixed_precision")
            theirs = chosen or os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
            may_change = chosen is None and theirs == "no"
        if theirs not in PRECISIONS:
            raise ConfigError(f"the mixed_precision of the Accelerator must be no, bf16 or fp16, not {theirs!r}")
        found = name if may_change else PRECISIONS[theirs]
        if name not in ("fp32", found):
            raise ConfigError(
                f"precision is '{name}', but the Accelerator has mixed_precision '{theirs}'; set only one of them"
            )
        self._precision = found
        return found

    def new_scaler(self, device: torch.device) -> torch.amp.GradScaler:
        """Return a scaler for the loss, with the parameters that the Accelerator has for it."""
        handler = None if self.accelerator is None else self.accelerator.scaler_handler
        return torch.amp.GradScaler(device.type, **({} if handler is None else handler.to_kwargs()))

    # -- data and model

    def share(self, loader: Iterable[Any], pad: bool) -> Iterable[Any]:
        """Return the loader of this process's share of the data."""
        from accelerate.data_loader import DataLoaderStateMixin  # type: ignore[import-untyped]

        if isinstance(loader, DataLoaderStateMixin):
            raise ConfigError(
                "the loader was prepared by accelerate, but hookline shares the data itself, so that a run can be "
                "resumed at any batch; pass the DataLoader that you have prepared"
            )
        return super().share(loader, pad)

    def start(self, requests: Requests, device: torch.device) -> None:
        """Join the group, and create the Accelerator in it."""
        super().start(requests, device)
        if self.accelerator is None:
            self.accelerator = self._create(device)

    def prepare(self, model: nn.Module, optimizers: Iterable[Optimizer], device: torch.device) -> nn.Module:
        """Move the model, and let the Accelerator wrap it if it has something to train."""
        from accelerate.optimizer import AcceleratedOptimizer  # type: ignore[import-untyped]

        if any(isinstance(optimizer, AcceleratedOptimizer) for optimizer in optimizers):
            raise ConfigError(
                "the optimizer was prepared by accelerate, which would scale and skip steps a second time; pass the "
                "torch optimizer itself"
            )
        self.refuse_other_model(unwrap(model))
        unwrap(model).to(device)
        if self.accelerator is None or not any(parameter.requires_grad for parameter in model.parameters()):
            return model
        self.gradients.note_wrapped(model)
        wrapped: nn.Module = self.accelerator.prepare_model(model)
        return wrapped

    def without_wrapper(self, wrapped: nn.Module) -> nn.Module:
        """Return the model that an evaluation calls."""
        compiled = compiled_from(wrapped)  # accelerate compiles the model after wrapping it
        inner = wrapped if compiled is None else compiled
        return inner.module if isinstance(inner, DistributedDataParallel) else wrapped

    def _create(self, device: torch.device) -> Accelerator:
        from accelerate import Accelerator

        precisions = {ours: theirs for theirs, ours in PRECISIONS.items()}
        options = self._options | {"mixed_precision": precisions[self._precision], "cpu": device.type == "cpu"}
        try:
            found = Accelerator(**options)
        except (ImportError, TypeError, ValueError, AssertionError) as error:
            raise ConfigError(f"the strategy 'accelerate': {error}") from error
        _check_given(found, {})
        if (found.num_processes, found.device.type) != (self.world_size, device.type):
            raise ConfigError(
                f"the Accelerator has {found.num_processes} processes and the device {found.device}, but the run has "
                f"{self.world_size} and {device}; create the Accelerator yourself, and pass it as strategy=accelerator"
            )
        return found

    #: The precision of the run, as `pick_precision` found it.
    _precision = "fp32"


class AcceleratedGradients(CopiedGradients):
    """The gradients of a model that an Accelerator has wrapped."""

    def __init__(self, strategy: Accelerate) -> None:
        super().__init__(strategy.group)
        self._strategy = strategy

    def syncing(self, model: nn.Module, sync: bool) -> AbstractContextManager[Any]:
        """Return the context of one forward pass; without sync, the gradients stay in this process."""
        accelerator = self._strategy.accelerator
        return NOTHING if sync or accelerator is None else accelerator.no_sync(model)


def _refuse_missing() -> None:
    try:
        import accelerate  # noqa: F401  # only to see whether it is there
    except ImportError as error:
        raise ConfigError(
            "the strategy 'accelerate' needs accelerate, which is not installed: pip install 'hookline[accelerate]'"
        ) from error


def _refuse_engines() -> None:
    """Refuse an engine that replaces the parameters, or that steps the optimizer itself."""
    for name, engine in ENGINES.items():
        if _flag(name):
            raise ConfigError(
                f"accelerate is set up for {engine} ({name}), which the strategy 'accelerate' does not support: that "
                "would step the optimizer itself; to shard a model, start with torchrun and use the "
                "strategy 'fsdp'"
            )


def _check_options(options: dict[str, Any]) -> None:
    from accelerate import Accelerator

    known = [name for name in inspect.signature(Accelerator).parameters if name not in ELSEWHERE]
    for name in options:
        if name in ELSEWHERE:
            raise ConfigError(f"the strategy 'accelerate' does not take {name}: {ELSEWHERE[name]}")
        if name not in known:
            raise ConfigError(
                f"the strategy 'accelerate' has no option '{name}'; {did_you_mean(name, ['timeout', *known])}"
            )


def _check_given(accelerator: Any, options: dict[str, Any]) -> None:
    from accelerate import Accelerator

    if not isinstance(accelerator, Accelerator):
        raise ConfigError(f"accelerator must be an accelerate.Accelerator, not a {type(accelerator).__name__}")
    if options:
        raise ConfigError(
            f"the strategy 'accelerate' got an Accelerator, so {', '.join(options)} must be set there instead"
        )
    kind = str(accelerator.distributed_type.value)
    if kind != "NO" and not kind.startswith("MULTI_"):
        raise ConfigError(f"the strategy 'accelerate' does not support an Accelerator of the type {kind}; {_SHARDING}")
    steps = accelerator.gradient_accumulation_steps
    if steps != 1:
        raise ConfigError(
            f"the Accelerator has gradient_accumulation_steps={steps}, which has no effect here; leave it out, and set "
            f"accumulate={steps} in the optim"
        )


def _find_processes() -> None:
    """Give the processes that MPI has started their usual variables, as an Accelerator would do later."""
    from accelerate.utils.environment import get_cpu_distributed_information  # type: ignore[import-untyped]

    found = get_cpu_distributed_information()
    if "WORLD_SIZE" in os.environ:
        return
    if found.world_size > 1:
        os.environ["WORLD_SIZE"] = str(found.world_size)
        os.environ["RANK"], os.environ["LOCAL_RANK"] = str(found.rank), str(found.local_rank)
    elif _flag("ACCELERATE_USE_CPU") and "MASTER_PORT" in os.environ:  # set only for more than one process
        log.warning(
            "accelerate launch has started one process, although more were asked for: on the CPU it starts several "
            "only with MPI; use --multi_gpu --num_processes N with device: cpu, or torchrun"
        )


def _flag(name: str) -> bool:
    return os.environ.get(name, "false").lower() in ("true", "1", "yes", "y", "t", "on")
