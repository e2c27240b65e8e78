"""Several processes that train together: the common base of DDP, FSDP2 and Accelerate."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, distributed, nn

from hookline.common import launched
from hookline.common.checks import check_number
from hookline.common.durations import clock
from hookline.common.torch_private import buffers_of, unsaved_buffers_of
from hookline.data.sources import shared
from hookline.errors import ConfigError
from hookline.strategies.agreement import Agreement
from hookline.strategies.alone import without_collectives
from hookline.strategies.base import Strategy, pick_device, unwrap
from hookline.strategies.differences import refuse_difference
from hookline.strategies.gradients import CopiedGradients
from hookline.strategies.group import Failure, Group
from hookline.strategies.means import Means

if TYPE_CHECKING:
    from hookline.run.requests import Requests
    from hookline.strategies.watch import Locate

T = TypeVar("T")

log = logging.getLogger("hookline")

#: Seconds after which an exchange fails if a process does not take part.
TIMEOUT = 300.0


class Processes(Strategy):
    """A strategy for several processes.

    Args:
        timeout: The seconds after which training ends if a process does not answer.
        all_write: True if all processes write checkpoints together.
    """

    def __init__(self, timeout: float = TIMEOUT, all_write: bool = False) -> None:
        super().__init__()
        check_number(f"the strategy '{self.name}': timeout", timeout, above=0)
        self.group = Group(timeout, all_write)
        self.gradients = CopiedGradients(self.group)
        self.agreement = Agreement(self.group)
        self._means = Means(self.group)

    @property
    def rank(self) -> int:
        """Return the number of this process; 0 is the main one."""
        return self.group.rank

    @property
    def world_size(self) -> int:
        """Return the number of processes that train together."""
        return self.group.world_size

    @property
    def acts_alone(self) -> bool:
        """Return whether this process may save alone, without asking others to take part."""
        return self.world_size == 1

    def pick_device(self, name: str | torch.device) -> torch.device:
        """Return the device of this process: the one with its local rank, unless the name has an index."""
        device = pick_device(name)
        if device.type == "cpu" or device.index is not None:
            return device
        local, count = local_rank(self.rank), torch.accelerator.device_count()
        if local >= count:
            raise ConfigError(
                f"rank {self.rank} needs its own {device.type} device, but this machine has only {count}; start at "
                f"most {count} processes here, or set device: cpu"
            )
        return torch.device(device.type, local)

    def start(self, requests: Requests, device: torch.device) -> None:
        """Join the group, and share the requests."""
        super().start(requests, device)
        if "RANK" not in os.environ and not distributed.is_initialized():
            log.warning(
                "the strategy '%s' trains in one process, because no launcher has started several; use hookline train "
                "--nproc N, or torchrun",
                self.name,
            )
        self.group.join(device)
        self._compare_with_grace()
        requests.share(self.rank)

    def _compare_with_grace(self) -> None:
        """Warn if processes that wait for one that hangs would be killed after a signal before they can say so."""
        grace, timeout = launched.grace(), self.group.timeout
        if self.is_main and grace is not None and timeout != TIMEOUT and timeout >= grace:
            log.warning(
                "the timeout of the processes (%g s) is not shorter than the time to end after a signal (--grace %g): "
                "if a process hangs then, all are killed without a message; use a shorter timeout or a longer --grace",
                timeout,
                grace,
            )

    def watched(self, locate: Locate) -> AbstractContextManager[Any]:
        """Return the context of a session, in which processes that hang are named."""
        return self.group.watched(locate)

    def share(self, loader: Iterable[Any], pad: bool) -> Iterable[Any]:
        """Return the loader of this process's share of the data."""
        return shared(loader, self.rank, self.world_size, pad)

    def shutdown(self) -> None:
        """Leave the group."""
        self.group.leave()

    # -- the model

    @contextmanager
    def evaluating(self, wrapped: nn.Module) -> Iterator[nn.Module]:
        """Evaluate with the buffers of the main process, which are saved: every process has seen other batches.

        The model is called without its wrapper, which would wait for processes that may have fewer batches.
        """
        model = self.without_wrapper(wrapped)
        several = self.world_size > 1 and distributed.is_initialized()  # it is not in a hook of the main process
        buffers = list(saved_buffers(unwrap(model))) if several else []
        kept = getattr(wrapped, "broadcast_buffers", True)  # training copies the main process's buffers as well
        own = [] if kept else [buffer.clone() for buffer in buffers]
        for buffer in buffers:
            distributed.broadcast(buffer.detach(), 0)
        try:
            yield model
        finally:
            for buffer, value in zip(buffers, own, strict=False):
                buffer.copy_(value)

    def refuse_other_model(self, model: nn.Module) -> None:
        """Refuse a model with other parameters than in the main process. torch's own errors name no parameter."""
        described = "\n".join(f"{name} {tuple(each.shape)}" for name, each in model.named_parameters())
        first = self.group.from_main(described)
        if self.any(first != described):
            for rank, theirs in enumerate(self.gather(described)):
                refuse_difference("the model", first, theirs, rank)

    def without_wrapper(self, wrapped: nn.Module) -> nn.Module:
        """Return the model that an evaluation calls."""
        return wrapped

    # -- agreement

    def agree(self, requests: Requests, now: bool = False) -> None:
        """Make the requests the same in all processes."""
        if now:
            self._means.settle()
        (self.agreement.now if now else self.agreement.tick)(requests)

    def agree_in_evaluation(self, requests: Requests, ended: bool = False) -> bool:
        """Let a signal take effect in all processes after the same batch of an evaluation."""
        return self.agreement.in_evaluation(requests, ended)

    def any(self, flag: bool) -> bool:
        """Return whether this is true in any process."""
        return bool(self.group.reduce(torch.tensor([flag], dtype=torch.int32), distributed.ReduceOp.MAX).item())

    def agree_on_first(self, text: str) -> str:
        """Return the first text that is not empty, by rank, with its rank if it is another one."""
        if not self.any(bool(text)):
            return ""
        for rank, found in enumerate(self.group.gather(text)):
            if found:
                return found if rank == self.rank else f"rank {rank}: {found}"
        return ""

    def on_main(self, function: Callable[[], T]) -> T:
        """Call a function only in the main process, and return its result (or raise its error) in all processes.

        The function may take long. A process that does not come here at all is noticed after the timeout.
        """
        self.any(False)
        result: Any = None
        error: BaseException | None = None
        if self.is_main:
            try:
                result = function()
            except Exception as raised:  # it is raised again below, after the others know of it
                error = raised
        failure = None if error is None else Failure.of(self.rank, error)
        failure, result = self.group.from_main((failure, result))
        if error is not None:
            raise error
        if failure is not None:
            raise failure.as_error()
        return result  # type: ignore[no-any-return]  # the main process's value

    def alone(self, who: str) -> AbstractContextManager[Any]:
        """Return a context in which an exchange with other processes is an error, for a hook of the main process."""
        return without_collectives(who)

    def meet(self, what: str) -> None:
        """Wait until this has happened in all processes, without an exchange: the others may be in another one."""
        self.group.meet(what)

    def barrier(self) -> None:
        """Wait for all processes."""
        self.any(False)

    def explain(self, error: BaseException) -> BaseException:
        """Return the root-cause error: the other process's, if this one is only a consequence."""
        return self.group.explain(error)

    # -- numbers

    def reduce_sum(self, value: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes."""
        began = clock()
        try:
            return self.group.reduce(value, distributed.ReduceOp.SUM)
        finally:
            self.seconds_summing += clock() - began

    def average(
        self,
        numbers: dict[str, float],
        use: Callable[[dict[str, float]], None],
        wait: Callable[[], None] = lambda: None,
    ) -> None:
        """Call `use` with the mean of each number over the processes that have it, now or at `settle`."""
        self._means.add(numbers, partial(super().average, use=use), wait)

    def settle(self, alone: bool = False) -> None:
        """Average the numbers that wait for it."""
        (self._means.settle_alone if alone else self._means.settle)()

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, by rank."""
        return self.group.gather(value)

    def gather_on_main(self, value: T) -> list[T]:
        """Return the values of all processes, by rank, in the main process; an empty list in the others."""
        return self.group.gather_on_main(value)


def saved_buffers(model: nn.Module) -> Iterator[Tensor]:
    """Yield the buffers of a model that a checkpoint contains."""
    for module in model.modules():
        for name, buffer in buffers_of(module).items():
            if buffer is not None and name not in unsaved_buffers_of(module):
                yield buffer


def local_rank(rank: int) -> int:
    """Return the number of this process on its machine."""
    return int(os.environ.get("LOCAL_RANK", rank))
