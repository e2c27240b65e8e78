"""The agent that starts, watches and restarts the processes of this machine: torch's, with other rules for the end."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest, SignalException
from torch.distributed.elastic.multiprocessing.api import SubprocessContext

from hookline.common import launched
from hookline.common.ports import find_free_port
from hookline.errors import DistributedError
from hookline.launching.failures import FINAL, KILLED, STOPPED, Failure, first_of, signal_name
from hookline.launching.rendezvous import SILENT, BoundedRendezvous, within
from hookline.launching.signals import LAST, NOTICE, PERIOD, Signals
from hookline.strategies import stacks

if TYPE_CHECKING:
    from torch.distributed.elastic.agent.server.api import WorkerGroup, WorkerSpec

    from hookline.launching.options import Options


class Files(DefaultLogsSpecs):
    """The files that torch gives to each process of an attempt, and our own variables for it."""

    def __init__(self, folder: str) -> None:
        super().__init__(log_dir=folder)
        self.variables: dict[str, str] = {}
        #: The error and the mark of each process of the attempt, by local rank.
        self.errors: dict[int, Path] = {}
        self.marks: dict[int, Path] = {}

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Create the files of an attempt, and complete the variables of its processes."""
        files = super().reify(envs)
        self.errors = {rank: Path(file) for rank, file in files.error_files.items()}
        self.marks = {rank: file.with_name("started") for rank, file in self.errors.items()}
        for rank, variables in envs.items():
            variables |= {**self.variables, launched.STARTED: str(self.marks[rank])}
        return files


class Agent(LocalElasticAgent):
    """torch's agent for one machine, which differs in three rules.

    torch's own agent ends all processes as soon as one fails, restarts after every failure, and raises an exception
    wherever it happens to be when a signal comes. So a config error is tried again and again, processes that would
    explain the failure of another one cannot, and a second Ctrl-C leaves processes behind. Here, the others may end by
    themselves; only a failure of training is restarted; and a signal is passed on, and waited for.
    """

    def __init__(self, spec: WorkerSpec, files: Files, options: Options, say: Callable[[str], None]) -> None:
        super().__init__(spec, files)
        self.options, self.files, self.say = options, files, say
        #: The failures of the current attempt, by local rank.
        self.failures: dict[int, Failure] = {}
        self.signals = Signals(self._send, options.grace)
        self.rendezvous = BoundedRendezvous(spec.rdzv_handler, lambda: bool(self.signals.first))
        spec.rdzv_handler = self.rendezvous
        self._began = self._starting = False
        self._looked = 0.0

    # -- starting

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        if not self.options.several_nodes:  # torch would take a port that any connection may get before it is used
            worker_group.spec.master_port = find_free_port()
        super()._rendezvous(worker_group)

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self._began = self._began or any(mark.exists() for mark in self.files.marks.values())
        self.files.variables[launched.RESUME] = str(int(self._began_anywhere(worker_group)))
        self.failures, self._looked = {}, time.time()
        self._starting = True
        try:
            return super()._start_workers(worker_group)  # type: ignore[no-any-return]  # a decorator of torch hides it
        except SignalException as error:  # torch's handler was in place; processes without a parent end by themselves
            raise SystemExit(128 + error.sigval) from None
        finally:
            self._starting = False
            self.signals.handle()
            if self.signals.first:
                self._send(self.signals.first)

    def _began_anywhere(self, group: WorkerGroup) -> bool:
        """Return whether training began on any machine before, so that one that joins later resumes as well."""
        assert group.store is not None
        keys = [f"hookline/began/{rank}" for rank in range(group.group_world_size)]
        group.store.set(keys[group.group_rank], str(int(self._began)))
        return b"1" in within(SILENT, partial(group.store.multi_get, keys))

    # -- watching

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        running = self._look()
        if self.failures or self.signals.first:
            self._let_end()
            if self.failures and not self._restarts():
                self._remaining_restarts = 0
        elif running:  # torch would look again, and act on a failure that came since by its own rules
            return RunResult(state=WorkerState.HEALTHY)
        return super()._monitor_workers(worker_group)  # type: ignore[no-any-return]  # a decorator of torch hides it

    def _look(self) -> bool:
        """Keep the failures since the last look, and return whether a process is still running."""
        now, running = time.time(), False
        for rank, process in self._processes():
            code = process.poll()
            running = running or code is None
            if code and rank not in self.failures:
                worker = self._worker_group.workers[rank]
                when, text, relayed = self._error_of(rank)
                self.failures[rank] = Failure(worker.global_rank, code, when, text, relayed)
        self._looked = now
        return running

    def _error_of(self, rank: int) -> tuple[float, str, bool]:
        """Return when a process failed, the error that it left, and whether it is the error of another process.

        Without one, it was alive at the last look.
        """
        file = self.files.errors[rank]
        with suppress(OSError, ValueError, KeyError, TypeError):  # there is none, or a kill interrupted its writing
            message, when = json.loads(file.read_text(encoding="utf-8"))["message"], file.stat().st_mtime
            if isinstance(message, str):
                return when, message, False
            return when, message["extraInfo"]["py_callstack"], bool(message["extraInfo"].get("relayed"))
        return self._looked, "", False

    def _let_end(self) -> None:
        """Wait until all processes have ended. End the ones that take too long."""
        soon = time.monotonic() + min(NOTICE, self.options.grace)
        while self._look() and time.monotonic() < (self.signals.deadline if self.signals.first else soon):
            time.sleep(PERIOD)
        late = {rank: process for rank, process in self._processes() if process.poll() is None}
        if not late:
            return
        for process in late.values():
            if stacks.state(process.pid) == "T":
                process.kill()  # it is stopped, so no other signal would reach it
        assert self._pcontext is not None
        self._pcontext.close(signal.SIGTERM, timeout=int(LAST))
        for rank, process in late.items() if self.signals.first else ():
            text = f"it did not end after {signal_name(self.signals.first)}, and was killed"
            if process.poll() != KILLED:
                self._look()
            else:  # it never ended, so it comes before all that reacted to the signal
                worker = self._worker_group.workers[rank]
                self.failures[rank] = Failure(worker.global_rank, KILLED, 0.0, text)

    def _restarts(self) -> bool:
        """Return whether the processes are started again, and show the failure that came first."""
        first = first_of(self.failures.values())
        mark = next(self.files.marks[rank] for rank, failure in self.failures.items() if failure is first)
        left = self._remaining_restarts
        if self.signals.first and first.exit_code == 128 + self.signals.first:
            return False
        same = sum(each.code == first.code for each in self.failures.values())
        self.say(first.of_all() if first.code in STOPPED and same > 1 else str(first))
        if self.signals.first or not self.options.max_restarts:
            return False
        if why := self._why_final(first, mark):
            self.say(f"not restarted: {why}")
        elif not left:
            self.say(f"not restarted: --max-restarts {self.options.max_restarts} is used up")
        else:
            count = f"{self.options.max_restarts - left + 1} of {self.options.max_restarts}"
            self.say(f"restarting all processes (restart {count})")
        return not why

    def _why_final(self, first: Failure, mark: Path) -> str:
        """Return why a restart would not help; empty if it may. A process that was killed is always restarted."""
        if first.code < 0 or (first.code == DistributedError.exit_code and self.options.several_nodes):
            return ""  # the cause of an error about other processes may be on another machine
        if first.code in FINAL:
            return f"exit code {first.code} is final"
        if not mark.exists():
            return "training had not begun, so it would fail again"
        return "training had ended" if mark.read_text(encoding="utf-8") == launched.ENDED else ""

    # -- signals

    def _send(self, number: int) -> None:
        """Send a signal to all processes. Processes that they started themselves are left to them."""
        running = [process for _, process in self._processes() if process.poll() is None]
        for process in running:
            process.send_signal(number)
        if not running and not self._starting:
            raise SystemExit(128 + number)  # the other machines have not come yet, or are not done yet

    def _processes(self) -> list[tuple[int, Any]]:
        context = self._pcontext
        if not isinstance(context, SubprocessContext):
            return []  # not started yet
        return [(rank, handler.proc) for rank, handler in context.subprocess_handlers.items()]
