"""Strategy: the one place that knows how a run is distributed over processes and devices.

The loop, the hooks, checkpoints and writers ask the strategy. None of them tests the number of processes. A strategy is
one file: it subclasses `Strategy` and overrides the methods that differ from a single process, the default here.

    device          the device of the model
    prepare         move and wrap the model at the start of a session; point the optimizers at its parameters
    agreement       `agree` on requests, `agree_on_first`, `on_main`, `barrier`, `explain` a failure
    numbers         `reduce_sum`, `average`, `settle`, `gather`, `gather_on_main`
    gradients       a `Gradients`: sync, drop, measure
    checkpoints     a `Checkpoints`: who writes, and how to write, verify, read and load one
    shutdown        leave the group
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from hookline.common.torch_private import compiled_from
from hookline.errors import ConfigError
from hookline.record.history import Extreme, Weighted
from hookline.strategies.gradients import NOTHING, Gradients

if TYPE_CHECKING:
    from pathlib import Path

    from torch.optim import Optimizer

    from hookline.checkpoint.seal import Note
    from hookline.run.requests import Requests
    from hookline.strategies.watch import Locate

T = TypeVar("T")

log = logging.getLogger("hookline")


class Strategy:
    """The distribution of a run over processes. This base class is for one process."""

    #: The name in a config.
    name: ClassVar[str] = ""

    def __init__(self) -> None:
        #: The seconds that this process has spent in `reduce_sum`, where it waits for the others.
        self.seconds_summing = 0.0
        self.gradients = Gradients()
        self.checkpoints = Checkpoints(self)

    # -- who and where

    @property
    def rank(self) -> int:
        """Return the number of this process; 0 is the main one."""
        return 0

    @property
    def world_size(self) -> int:
        """Return the number of processes that train together."""
        return 1

    @property
    def is_main(self) -> bool:
        """Return whether this process writes, shows and saves."""
        return self.rank == 0

    @property
    def acts_alone(self) -> bool:
        """Return whether this process may save alone, without asking others to take part."""
        return True

    def pick_device(self, name: str | torch.device) -> torch.device:
        """Return the device of this process. `auto` is the accelerator of the machine, or else the CPU."""
        return pick_device(name)

    def pick_precision(self, name: str) -> str:
        """Return the precision of the run."""
        return name

    def new_scaler(self, device: torch.device) -> torch.amp.GradScaler:
        """Return a scaler for the loss of a run in fp16."""
        return torch.amp.GradScaler(device.type)

    def start(self, requests: Requests, device: torch.device) -> None:
        """Get the processes together at the start of a session."""
        tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")  # only srun sets it
        if self.world_size == 1 and "WORLD_SIZE" not in os.environ and tasks not in ("", "1"):
            log.warning(
                "this process is task %s of %s that srun has started, but it trains alone, as each of them does. To "
                "train together, start one task per machine, and let it start the processes: srun "
                "--ntasks-per-node=1 hookline train ... --nproc N",
                os.environ.get("SLURM_PROCID", "?"),
                tasks,
            )

    def watched(self, locate: Locate) -> AbstractContextManager[Any]:
        """Return the context of a session, in which processes that hang are named. `locate` says where the loop is."""
        return NOTHING

    def share(self, loader: Iterable[Any], pad: bool) -> Iterable[Any]:
        """Return the loader of this process's share of the data. If `pad`, all processes get as many batches."""
        return loader

    # -- the model

    def prepare(self, model: nn.Module, optimizers: Iterable[Optimizer], device: torch.device) -> nn.Module:
        """Get the model ready at the start of a session, and return the model that the step calls.

        `model` is the user's model: the module itself, or a compiled or wrapped one. A strategy that replaces
        parameters (as sharding does) points the optimizers at the new ones, by name. Preparing twice is harmless.
        """
        unwrap(model).to(device)
        return model

    def evaluating(self, wrapped: nn.Module) -> AbstractContextManager[nn.Module]:
        """Return a context with the model that an evaluation calls, for any number of batches in each process."""
        return nullcontext(wrapped)

    # -- agreement

    def agree(self, requests: Requests, now: bool = False) -> None:
        """Make the requests the same in all processes, before any of them is handled.

        This is called after every iteration. A request of one process may be delivered some iterations later,
        unless `now`.
        """

    def agree_in_evaluation(self, requests: Requests, ended: bool = False) -> bool:
        """Let a signal take effect in all processes after the same batch of an evaluation.

        This is called after every batch, and, with `ended`, until it returns False: no process has more batches.
        """
        return False

    def any(self, flag: bool) -> bool:
        """Return whether this is true in any process. All processes wait for each other here."""
        return flag

    def agree_on_first(self, text: str) -> str:
        """Return the first text that is not empty, of all processes."""
        return text

    def alone(self, who: str) -> AbstractContextManager[Any]:
        """Return a context in which an exchange with other processes is an error, for a hook of the main process."""
        return NOTHING

    def explain(self, error: BaseException) -> BaseException:
        """Return the root-cause error: the other process's, if this one is only a consequence."""
        return error

    def on_main(self, function: Callable[[], T]) -> T:
        """Call a function only in the main process, and return its result (or raise its error) in all processes."""
        return function()

    def meet(self, what: str) -> None:
        """Wait until this has happened in all processes. Raise an error if some of them do not do it."""

    def barrier(self) -> None:
        """Wait for all processes."""

    # -- numbers

    def reduce_sum(self, value: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes."""
        return value

    def average(
        self,
        numbers: dict[str, float],
        use: Callable[[dict[str, float]], None],
        wait: Callable[[], None] = lambda: None,
    ) -> None:
        """Call `use` with the mean of each number over the processes that have it, now or at `settle`.

        A weighted number counts by its weight, and of extremes the result is one. All processes call this at the same
        iterations. `wait` is called first if `use` is called later.
        """
        special = (Weighted, Extreme)
        use({name: float(number) if isinstance(number, special) else number for name, number in numbers.items()})

    def settle(self, alone: bool = False) -> None:
        """Average the numbers that wait for it. All processes call this at the same iteration, unless `alone`."""

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, by rank."""
        return [value]

    def gather_on_main(self, value: T) -> list[T]:
        """Return the values of all processes, by rank, in the main process; an empty list in the others."""
        return [value]

    # -- the end

    def shutdown(self) -> None:
        """Leave the group of processes."""


class Checkpoints:
    """The checkpoints of a run whose processes have the whole model."""

    #: The ending of the names of checkpoints.
    suffix: ClassVar[str] = ".pth"
    #: True if a process has only a part of the weights, so that one alone cannot save them.
    are_sharded: ClassVar[bool] = False

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    # -- writing

    @property
    def written_here(self) -> bool:
        """Return whether this process writes checkpoints, or a part of them."""
        return self._strategy.is_main

    def separate(self, checkpoint: dict[str, Any]) -> dict[str, Any]:
        """Return a checkpoint as tensors and plain data. Sharded tensors get a separate place."""
        return checkpoint

    def on_writers(self, function: Callable[[], T]) -> T:
        """Call a function in the processes that write, and return the main one's result in all processes."""
        return self._strategy.on_main(function)

    def together(self, function: Callable[[], T]) -> list[T]:
        """Call a function in a process that writes, and return the results of all of these.

        If it fails in one of them, it fails in all.
        """
        return [function()]

    def write(self, checkpoint: dict[str, Any], path: Path, note: Note) -> str:
        """Write a checkpoint completely or not at all, in all processes that write, and return its SHA-256."""
        from hookline.checkpoint import store

        return store.write(checkpoint, path, note)

    def verify(self, path: Path) -> None:
        """Read back what `write` wrote, and refuse it if the bytes differ."""
        from hookline.checkpoint import store

        store.verify(path)

    # -- reading

    def read(self, path: Path, *, sealed: bool, verified: bool = False) -> dict[str, Any]:
        """Read a checkpoint, or as much of it as this process needs; see `store.read`."""
        from hookline.checkpoint import store

        return store.read(path, sealed=sealed, verified=verified)

    def load_model(self, model: nn.Module, state: Mapping[str, Any], strict: bool = True) -> None:
        """Load the whole state of a model, which was checked to fit. If not `strict`, it may be a part of one."""
        model.load_state_dict(state, strict=strict)

    def load_optimizer(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        """Load the whole state of an optimizer, which was checked to fit."""
        optimizer.load_state_dict(state)


def unwrap(model: nn.Module) -> nn.Module:
    """Return the user's own module, without the wrappers of torch.compile, DDP or DataParallel."""
    while True:
        if isinstance(model, (DistributedDataParallel, DataParallel)):
            model = model.module
        elif isinstance(inner := compiled_from(model), nn.Module):
            model = inner
        else:
            return model


def pick_device(name: str | torch.device) -> torch.device:
    """Return the device of this name, if it can train. `auto` is the accelerator of the machine, or else the CPU."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if name == "auto":
        return accelerator if accelerator is not None else torch.device("cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"unknown device {name!r}: {str(error).splitlines()[0]}") from None
    count = torch.accelerator.device_count() if accelerator is not None and accelerator.type == device.type else 0
    if device.type != "cpu" and (device.index or 0) >= count:
        what = accelerator.type if accelerator is not None else "cpu"
        has = ", ".join(f"{what}:{index}" for index in range(count)) or what
        why = (
            "holds no data, so it cannot train"
            if device.type == "meta"
            else "is not available with this torch on this machine"
        )
        raise ConfigError(f"the device '{name}' {why}; available: {has}")
    return device
