"""Several processes that train together: the common base of DDP, FSDP2 and Accelerate."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, distributed, nn

from hookline.common import launched
from hookline.common.checks import check_number
from hookline.data.sources import shared
from hookline.errors import ConfigError
from hookline.strategies.agreement import Agreement
from hookline.strategies.base import Strategy, pick_device
from hookline.strategies.group import Failure, Group, without_collectives
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
        check_number(f"the strategy '{self.name}': timeout", timeout, above=0)
        self.group = Group(timeout, all_write)
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

    # -- gradients

    def sync_gradients(self, model: nn.Module) -> None:
        """Average the gradients over the processes. Gradients that are already the same everywhere do not change."""
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        used = torch.tensor([parameter.grad is not None for parameter in trained], dtype=torch.int32)
        for parameter, anywhere in zip(
            trained, self.group.reduce(used, distributed.ReduceOp.MAX).tolist(), strict=True
        ):
            if anywhere:  # all processes exchange the same ones, although some may not have used them
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                distributed.all_reduce(parameter.grad)
                parameter.grad /= self.world_size

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
        failure, result = self.group.gather_slowly((failure, result))[0]
        if error is not None:
            raise error
        if failure is not None:
            raise failure.as_error()
        return result  # type: ignore[no-any-return]  # the main process's value

    def alone(self, who: str) -> AbstractContextManager[Any]:
        """Return a context in which an exchange with other processes is an error, for a hook of the main process."""
        return without_collectives(who)

    def barrier(self) -> None:
        """Wait for all processes."""
        self.any(False)

    def explain(self, error: BaseException) -> BaseException:
        """Return the root-cause error: the other process's, if this one is only a consequence."""
        return self.group.explain(error)

    # -- numbers

    def reduce_sum(self, value: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes."""
        return self.group.reduce(value, distributed.ReduceOp.SUM)

    def total(self, numbers: list[int]) -> list[int]:
        """Return the sum of each number over all processes."""
        return self.reduce_sum(torch.tensor(numbers)).tolist()

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


def local_rank(rank: int) -> int:
    """Return the number of this process on its machine."""
    return int(os.environ.get("LOCAL_RANK", rank))
