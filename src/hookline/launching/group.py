"""The processes of one call of `hookline.launch`: started, waited for, and ended together."""

from __future__ import annotations

import contextvars
import faulthandler
import math
import os
import pickle
import signal
import sys
import textwrap
import threading
import time
import traceback
import warnings
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from hookline.common import launched
from hookline.common.ports import find_free_port
from hookline.errors import DistributedError, HooklineError, blame, exit_code_of
from hookline.launching.failures import Failure, first_of, signal_name
from hookline.launching.signals import LAST, NOTICE, PERIOD, Signals
from hookline.run.signals import was_reported

#: The seconds that the processes may take to save and end after Ctrl-C.
GRACE = 60.0


class Answer(NamedTuple):
    """The last message of a process: its pickled result, or its pickled error and the text of the traceback."""

    value: bytes
    text: str = ""
    code: int = 0
    when: float = 0.0
    #: Whether another process raised the error, and this process only ended because of it.
    relayed: bool = False


class Worker:
    """A process, as its launcher sees it."""

    def __init__(self, rank: int, process: Any, connection: Connection) -> None:
        self.rank, self.process, self.connection = rank, process, connection
        self.answer: Answer | None = None
        self.failure: Failure | None = None
        self.ended = self.silent = False
        #: Whether it took too long, so that the launcher ends it. Its end is then not a separate failure.
        self.late = False
        self._looked = time.time()

    def look(self) -> None:
        """Read the answer of the process, if it has sent one, and find out whether it has ended."""
        now, code = time.time(), self.process.exitcode
        if not self.silent and self.connection.poll():
            self.silent = True
            try:
                self.answer = pickle.loads(self.connection.recv_bytes())
            except (EOFError, OSError):  # it ended without an answer
                return
        self.ended = code is not None
        if self.failure is None and not self.late:
            if self.answer is not None and self.answer.text:
                answer = self.answer
                self.failure = Failure(self.rank, answer.code, answer.when, answer.text, answer.relayed)
            elif self.ended and self.answer is None:
                self.failure = Failure(self.rank, code or 1, self._looked)
        self._looked = now

    def error(self, count: int) -> BaseException:
        """Return the error of the process, as the launcher raises it."""
        assert self.failure is not None
        if self.answer is None:
            code = self.process.exitcode
            how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
            failed = DistributedError(f"rank {self.rank} of {count} {how} before its function returned")
            failed.exit_code = code if code > 0 else DistributedError.exit_code
            return failed
        text = self.answer.text.rstrip()
        error: BaseException
        if self.answer.value:
            error = pickle.loads(self.answer.value)
        else:  # its type cannot be pickled
            error = DistributedError(text.rpartition("\n")[2])
            error.exit_code = self.answer.code
        blame(error, f"in rank {self.rank} of {count}, started by hookline.launch:\n" + textwrap.indent(text, "  "))
        return error


class Group:
    """The processes of one call of `launch`."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.workers: list[Worker] = []
        self.signals = Signals(self._send, GRACE)

    def run(self, context: Any, call: tuple[Any, ...]) -> list[Any]:
        """Call a function in all processes, and return the results; raise the error that came first."""
        over = threading.Event()
        with self.signals.forwarded():
            try:
                self._start(context, call, over)
                if self.signals.first:  # it came before all of them were there
                    self._send(self.signals.first)
                self._wait()
            finally:
                for worker in self.workers:
                    worker.process.kill()
                    worker.process.join()
                over.set()
        self._raise()
        return [pickle.loads(worker.answer.value) for worker in self.workers if worker.answer is not None]

    def _start(self, context: Any, call: tuple[Any, ...], over: threading.Event) -> None:
        """Start the processes from a separate thread, which lives until all is over.

        A copy of the current thread hangs in the first operation that uses several threads, if this one has used them:
        OpenMP waits for threads that were not copied. A copy of a new thread has its own threads. On Linux, the
        processes end with the thread that started them.
        """
        started, errors = threading.Event(), list[BaseException]()

        def start() -> None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # about copies of a process with threads
                    self._start_all(context, call)
            except BaseException as error:
                errors.append(error)
            finally:
                started.set()
            over.wait()

        # With the context, a notebook knows which cell the output of the processes belongs to.
        threading.Thread(target=contextvars.copy_context().run, args=(start,), daemon=True).start()
        started.wait()
        if errors:
            raise errors[0]

    def _start_all(self, context: Any, call: tuple[Any, ...]) -> None:
        port = find_free_port("127.0.0.1")
        copied = context.get_start_method() == "fork"
        if copied:  # a timer's thread is not copied, and whoever sets or cancels a timer in a copy waits for it forever
            faulthandler.cancel_dump_traceback_later()
        for rank in range(self.count):
            receiver, sender = context.Pipe(duplex=False)
            arguments = (rank, self.count, port, os.getpid(), self.signals if copied else None, sender, call)
            process = context.Process(target=work, args=arguments, name=f"hookline-rank-{rank}")
            process.start()
            sender.close()
            self.workers.append(Worker(rank, process, receiver))

    def _wait(self) -> None:
        """Wait until all processes have ended. End the ones that take too long after a failure or a signal."""
        soon = math.inf
        while running := [worker for worker in self.workers if not worker.ended]:
            wait([worker.connection for worker in running if not worker.silent], PERIOD)
            for worker in running:
                worker.look()
            failed = any(worker.failure for worker in self.workers)
            if failed and soon == math.inf:
                soon = time.monotonic() + NOTICE
            if time.monotonic() < (self.signals.deadline if self.signals.first else soon):
                continue
            for worker in running:
                (worker.process.kill if worker.late else worker.process.terminate)()
                worker.late = True
            self.signals.deadline = soon = time.monotonic() + LAST

    def _raise(self) -> None:
        """Raise the error that came first, or the signal that asked for the end."""
        number = self.signals.first
        failures = [worker.failure for worker in self.workers if worker.failure is not None]
        if number:
            failures = [failure for failure in failures if failure.exit_code != 128 + number]
        if failures:
            raise self.workers[first_of(failures).rank].error(self.count)
        if number:
            ending = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
            for rank in (worker.rank for worker in self.workers if worker.late):
                ending.add_note(f"rank {rank} of {self.count} did not end after {signal_name(number)}, and was ended")
            raise ending

    def _send(self, number: int) -> None:
        for worker in self.workers:
            if worker.process.exitcode is None:
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(worker.process.pid, number)


def work(
    rank: int, count: int, port: int, parent: int, signals: Signals | None, answers: Connection, call: tuple[Any, ...]
) -> None:
    """Call the function in a new process, and send its result or its error to the launcher."""
    if signals is not None:  # this process is a copy of the launcher
        signals.restore()
        signal.set_wakeup_fd(-1)
    if sys.platform != "win32":
        os.setpgid(0, 0)  # a terminal sends Ctrl-C only to the launcher, which passes it on
    launched.end_with(parent)
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_PORT": port}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in ranks.items()}}
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = "1"
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1)
    answers.send_bytes(pickle.dumps(answer_of(*call)))


def answer_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer:
    """Call a function, and return its result, or any error that it raises."""
    try:
        result = function(*args, **kwargs)
        try:
            return Answer(pickle.dumps(result))
        except Exception as error:
            blame(error, "the result of the function cannot be pickled; return plain values, or tensors on the CPU")
            raise
    except SystemExit as end:
        if was_reported(end):  # a run has ended after a signal, which came to any of the processes
            end.exit_code = end.code  # type: ignore[attr-defined]  # any exception accepts new attributes
            return _failed(end, end)
        early = HooklineError(f"the function called sys.exit({end.code!r}) before it returned")
        early.exit_code = end.code if isinstance(end.code, int) and end.code else 1
        return _failed(early, end)
    except BaseException as error:
        return _failed(error, error)


def _failed(error: BaseException, cause: BaseException) -> Answer:
    trace = cause.__traceback__.tb_next if cause.__traceback__ is not None else None  # without the call in answer_of
    text = "".join(traceback.format_exception(error.with_traceback(trace)))
    try:
        value = pickle.dumps(error)
        pickle.loads(value)
    except Exception:  # for example, a class inside a function, or one that needs other arguments
        value = b""
    return Answer(value, text, exit_code_of(error), time.time(), getattr(error, "relayed", False))
