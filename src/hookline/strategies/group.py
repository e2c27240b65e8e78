"""The group of processes: joining it, exchanging values, and telling the others about a failure.

A process that fails leaves the reason in the store and cuts its connections. The others then fail in their next
exchange, and find the reason in the store. This costs nothing per step.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from multiprocessing.util import Finalize
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from hookline.common.torch_private import default_store, world
from hookline.errors import DistributedError, described, exit_code_of
from hookline.strategies.alone import refuse_alone
from hookline.strategies.connections import allow_connections, ends_of, sockets
from hookline.strategies.watch import Locate, Watch

T = TypeVar("T")

#: Seconds until the reason for a lost connection is expected in the store.
PATIENCE = 5.0
#: Seconds in which all processes have to leave a loop.
MEETING = 30.0
#: Seconds that processes wait for the main one while it writes files.
FILES_TIMEOUT = 24 * 3600.0
#: Why the connections of this process were cut; empty if they were not.
_cut_because = ""
#: The connections of the group of all processes that `open_group` created; None if it did not create one.
_opened: set[int] | None = None
#: The groups to leave at exit. The workers of a loader are copies of this process: there, these references keep the
#: objects of torch alive, which cannot be deleted in a copy.
_groups: list[Group] = []


def open_group(backend: str, **options: Any) -> None:
    """Create the group of all processes, and remember its connections, so that a failure can cut them."""
    global _opened
    before = sockets()
    distributed.init_process_group(backend, **options)
    _opened = set(sockets()) - set(before)


@dataclass(frozen=True)
class Failure:
    """Why a process failed, as the other processes show it."""

    rank: int
    message: str
    exit_code: int = DistributedError.exit_code
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, rank: int, error: BaseException) -> Failure:
        """Describe an error of this process."""
        message = str(error) if isinstance(error, DistributedError) else described(error)
        return cls(rank, message, exit_code_of(error), list(getattr(error, "__notes__", [])))

    def as_error(self) -> DistributedError:
        """Return the error that another process ends with. It has the exit code of the failure."""
        error = DistributedError("\n  ".join([f"rank {self.rank} failed: {self.message}", *self.notes]))
        error.exit_code = self.exit_code
        error.relayed = True
        return error


@dataclass(frozen=True)
class Made:
    """A group that hookline has created, and its connections."""

    group: Any
    connections: set[int]


#: The groups that hookline has created, by purpose and timeout. All runs of a process use them.
_made: dict[tuple[str, float], Made] = {}


class Group:
    """The processes that train together. torchrun, accelerate and Slurm describe them in environment variables."""

    def __init__(self, timeout: float, all_write: bool = False) -> None:
        self.timeout = timeout
        self._all_write = all_write
        self.rank, self.world_size = from_environment()
        self._joined = self._is_cut = False
        self._store: Any = None
        self._meetings = 0
        self._connections: set[int] = set()
        self._watch: Watch | None = None

    def meet(self, what: str) -> None:
        """Wait in the store until this has happened in all processes. Name those where it has not."""
        self._meetings += 1
        keys = [f"meeting/{self._meetings}/{rank}" for rank in range(self.world_size)]
        self._store.set(keys[self.rank], "")
        end = time.monotonic() + MEETING
        while missing := [str(rank) for rank, key in enumerate(keys) if not self._store.check([key])]:
            if time.monotonic() > end:
                raise DistributedError(
                    f"{what} in rank {self.rank}, but not in rank {', '.join(missing)}; let all processes do it after "
                    "the same step, or call run.stop(reason) in one of them"
                )
            time.sleep(0.02)

    def join(self, device: torch.device) -> None:
        """Join the group, unless this has already happened, here or in the user's own code."""
        if _cut_because:
            raise DistributedError(
                f"this process was disconnected from the others after a failure ({_cut_because}); start all of them "
                "again"
            )
        if self._joined:
            return
        allow_connections(self.world_size)
        backend = "gloo" if device.type == "cpu" else f"cpu:gloo,{device.type}:nccl"
        limit = timedelta(seconds=self.timeout)
        try:
            if not distributed.is_initialized():
                alone: dict[str, Any] = {}
                if self.world_size == 1:  # no other process has to find the store
                    alone = {"store": distributed.HashStore(), "rank": 0, "world_size": 1}  # type: ignore[attr-defined]  # torch exports it, but not in __all__
                open_group(backend, timeout=limit, **alone)
            # Separate groups, because training must not share its connections with anything else.
            self.agreement = self._shared("agreement", self.timeout)
            self.files = self._shared("files", FILES_TIMEOUT)
            # All processes write sharded checkpoints, also in the background, while others use the groups above.
            self.writers = self._shared("writers", FILES_TIMEOUT) if self._all_write else None
        except (ValueError, RuntimeError, OSError) as error:
            raise DistributedError(
                f"rank {self.rank} of {self.world_size} cannot join the group at "
                f"{os.environ.get('MASTER_ADDR', '?')}:{os.environ.get('MASTER_PORT', '?')}: "
                f"{str(error).splitlines()[0]}"
            ) from error
        self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        c10d = distributed.distributed_c10d
        self._store = c10d.PrefixStore(f"hookline/{attempt}", default_store())
        self._connections |= self._find_links() if _opened is None else _opened
        self._joined = True
        # Processes that multiprocessing starts, as hookline.launch does, do not call the functions of atexit.
        Finalize(None, _leave_all, exitpriority=0)
        _groups.append(self)

    def _shared(self, purpose: str, timeout: float) -> Any:
        """Return a group of hookline's own with all processes: the one of an earlier run of this process, if any.

        Each group of gloo has threads that wake up again and again, and connections to all other processes.
        """
        made = _made.get((purpose, timeout))
        if made is None or made.group not in world().pg_map:  # somebody has destroyed it
            before = sockets()
            group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
            made = _made[purpose, timeout] = Made(group, set(sockets()) - set(before))
        self._connections |= made.connections
        return made.group

    def _find_links(self) -> set[int]:
        """Return the connections of a group that was already there: their other end belongs to one of its processes."""
        ends = {inode: ends_of(number) for inode, number in sockets().items()}
        everyone = self.gather([near for near, _ in ends.values() if near])
        others = {near for rank, found in enumerate(everyone) if rank != self.rank for near in found}
        return {inode for inode, (_, far) in ends.items() if far in others}

    def leave(self) -> None:
        """Leave the group, if hookline created it. Until all leave, others may read data that this process sent."""
        global _opened
        if self._joined and _opened is not None and distributed.is_initialized():
            self._wait_for_others()
            _made.clear()
            distributed.destroy_process_group()
            _opened = None
        self._joined = False
        if self in _groups:
            _groups.remove(self)

    def _wait_for_others(self) -> None:
        """Wait until all processes leave. After a failure, only the one whose store may have the reason waits."""
        end = time.monotonic() + PATIENCE
        with suppress(RuntimeError):  # the store may have gone with its process
            if not self._has_store:
                return
            self._store.add("leaving", 1)
            while not self._is_cut and self._store.add("leaving", 0) < self.world_size and time.monotonic() < end:
                time.sleep(0.01)
            if self.rank > 0:
                self._store.set(f"left/{self.rank}", "")  # the last use: rank 0 may now end, and the store with it
                return
            others = range(1, self.world_size)
            while time.monotonic() < end and any(
                not self._store.check([f"left/{rank}"]) for rank in others if self._is_there(rank)
            ):
                time.sleep(0.01)

    def _is_there(self, rank: int) -> bool:
        """Return whether a process is there, as far as is known. Processes of other machines count as there."""
        return self._watch is None or not self._watch.is_dead(rank)

    @contextmanager
    def watched(self, locate: Locate) -> Iterator[None]:
        """Watch over the processes while the context lasts."""
        if not self._joined or self.world_size == 1:
            yield
            return
        self._watch = Watch(self, self._store.clone(), locate)
        with self._watch.running():
            yield

    # -- values

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, by rank."""
        refuse_alone()
        found: list[Any] = [None] * self.world_size
        distributed.all_gather_object(found, value, group=self.agreement)
        return found

    def gather_on_main(self, value: T) -> list[T]:
        """Return the values of all processes, by rank, in rank 0; an empty list in the others."""
        refuse_alone()
        found: list[Any] = [None] * self.world_size if self.rank == 0 else []
        distributed.gather_object(value, found if self.rank == 0 else None, dst=0, group=self.agreement)
        return found

    def from_main(self, value: T) -> T:
        """Return the value of rank 0 in all processes, however long it takes to get there, as a save may do."""
        refuse_alone()
        found: list[Any] = [value]
        distributed.broadcast_object_list(found, 0, group=self.files)
        return found[0]  # type: ignore[no-any-return]  # the value of rank 0

    def gather_writers(self, value: T) -> list[T]:
        """Return the values of all processes while they write a checkpoint together."""
        found: list[Any] = [None] * self.world_size
        distributed.all_gather_object(found, value, group=self.writers)
        return found

    def reduce(self, value: Tensor, operation: Any) -> Tensor:
        """Return the sum or the maximum of a tensor over all processes."""
        refuse_alone()
        reduced = value.detach().cpu().clone()
        distributed.all_reduce(reduced, operation, group=self.agreement)
        return reduced.to(value.device)

    # -- failures

    def report(self, failure: Failure) -> None:
        """Leave the reason of a failure in the store, unless there is one, and let the others notice it."""
        if not self._joined:
            return
        with suppress(RuntimeError):  # the store may have gone with its process
            if self._has_store:
                self._store.compare_set("failure", "", json.dumps(asdict(failure)))
        self.cut()

    def failure(self, patience: float = 0.0) -> Failure | None:
        """Return the failure of another process. Wait for it if there is none yet."""
        end = time.monotonic() + patience
        while self._has_store:
            with suppress(RuntimeError):
                if self._store.check(["failure"]):
                    found = Failure(**json.loads(self._store.get("failure")))
                    return found if found.rank != self.rank else None
            if time.monotonic() >= end or not all(map(self._is_there, range(self.world_size))):
                return None
            time.sleep(0.05)
        return None

    def explain(self, error: BaseException) -> BaseException:
        """Return the root-cause error: the other process's, if this one is only a consequence.

        An error of this process itself is reported to the others.
        """
        if not self._joined or not isinstance(error, Exception) or getattr(error, "was_reported", False):
            return error
        lost = is_lost_connection(error)
        if lost and self._watch is not None:
            self._watch.is_failing = True
        if lost and self._has_store:
            with suppress(RuntimeError):
                self._store.set(f"alive/{self.rank}", "")
        failure = self.failure(PATIENCE if lost else 0.0)
        if failure is not None:
            found: BaseException = failure.as_error()
            found.__cause__ = error
            self.cut()
        else:
            found = error
            if lost:
                found = DistributedError(f"{self._describe_gone()}\n  seen by rank {self.rank}")
                found.__cause__ = error
            self.report(Failure.of(self.rank, found))
        global _cut_because
        if self.world_size > 1:
            _cut_because = str(found).splitlines()[0] if str(found) else type(found).__name__
        found.was_reported = True  # type: ignore[attr-defined]  # any exception accepts new attributes
        return found

    def _describe_gone(self) -> str:
        """Describe the processes that have not noticed the failure, as the watch knows them."""
        gone = self._find_gone()
        if self._watch is not None:
            known = list(filter(None, map(self._watch.describe, gone or self._watch.hanging)))
            if known:
                return "\n  ".join(known)
        who = f"rank {', '.join(map(str, gone))}" if gone else "another process"
        return f"{who} does not answer and has left no reason: it was killed, or it hangs"

    def _find_gone(self) -> list[int]:
        """Return the processes that have not noticed the failure, because they are not there or hang."""
        if not self._has_store:
            return [0]
        try:
            return [rank for rank in range(self.world_size) if not self._store.check([f"alive/{rank}"])]
        except RuntimeError:  # the store has gone with its process
            return [] if self._watch is not None and self._watch.launcher_has_store else [0]

    @property
    def _has_store(self) -> bool:
        """Return whether this process has joined, and the process that has the store answers."""
        return self._joined and not (self._watch is not None and self._watch.misses_store)

    def cut(self) -> None:
        """Close the connections to the other processes. Whoever waits in an exchange, here or there, fails at once."""
        self._is_cut = True
        for inode, number in sockets().items():
            if inode in self._connections:
                with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
                    ports = connection.getpeername()[1], connection.getsockname()[1]
                    if int(os.environ.get("MASTER_PORT", -1)) not in ports:  # the store still has the reason
                        connection.shutdown(socket.SHUT_RDWR)


def _leave_all() -> None:
    """Leave all groups, at exit."""
    for group in list(_groups):
        group.leave()


def from_environment() -> tuple[int, int]:
    """Return the rank and the number of processes that the environment variables name."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    found = []
    for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")):
        text = os.environ.get(name, default)
        if not text.isdecimal():
            raise DistributedError(f"the environment variable {name} must be a number, not {text!r}")
        found.append(int(text))
    rank, world_size = found
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if world_size > 1 and missing:
        raise DistributedError(
            f"this process is one of {world_size} (WORLD_SIZE), but {', '.join(missing)} is not set; start the "
            "processes with hookline train --nproc, or with torchrun"
        )
    if rank >= world_size:
        raise DistributedError(f"RANK is {rank}, but WORLD_SIZE is {world_size}; ranks begin at 0")
    return rank, world_size


def is_lost_connection(error: BaseException) -> bool:
    """Return whether an error comes from the exchange with other processes, not from this one."""
    kinds = (distributed.DistError, ConnectionError)
    texts = ("gloo", "NCCL", "Connection closed by peer", "Timed out waiting", "Connection reset", "pair closure")
    return isinstance(error, kinds) or (isinstance(error, RuntimeError) and any(text in str(error) for text in texts))
