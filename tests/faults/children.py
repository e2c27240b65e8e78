"""Run functions and commands in child processes that start within milliseconds, because they need not import torch.

    child = start(train_until_killed, folder)
    child.kill(signal.SIGKILL)
    child.wait(10)                                   -> -9
    command("train", "config.yaml", cwd=folder)      -> (exit code, printed output)

A server process has imported torch and hookline and has no threads. It forks itself for each child. The test process
has threads, so it is never forked. A child runs a top-level function that it can import by name.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

import psutil

# The modules that the command line imports before it trains, so that no child has to import them again.
PRELOADED = (
    *("torch", "numpy", "hookline", "hookline.cli", "hookline.runner.runner", "hookline.testing"),
    *("hookline.config.assembly", "rich.console", "rich.table", "rich.progress", "torch.utils.data", "torch._dynamo"),
    "tests.faults.warm",
)

# Far more than any child needs, so that a slow machine makes no difference. A hanging child is killed then.
TIMEOUT = 60.0
# How much longer than it computes a child may take before it counts as hanging: others use the machine, too.
PATIENCE = 6

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(list(PRELOADED))
# Starting a child also collects the exit codes of others, and each can be read only once. So only one thread may do it.
_LOCK = threading.Lock()
_ALIVE: set[Child] = set()


class Child:
    """A started process, with all processes that it starts itself."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        handle, self._file = tempfile.mkstemp(prefix="hookline-child-", suffix=".log")
        os.close(handle)
        self._process = _CONTEXT.Process(target=_run, args=(self._file, function, arguments))
        with _LOCK:
            self._process.start()
        _ALIVE.add(self)

    @property
    def pid(self) -> int:
        """Return its process id, which is also the id of its process group."""
        assert self._process.pid is not None
        return self._process.pid

    def wait(self, timeout: float = TIMEOUT) -> int:
        """Return its exit code, or minus the signal that ended it. Raise TimeoutError if it does not end in time."""
        if not wait_for([self._process.sentinel], timeout):
            raise TimeoutError(f"the child {self.pid} did not end within {timeout} s; it printed:\n{self.output()}")
        with _LOCK:
            code = self._process.exitcode
        assert code is not None
        return code

    def wait_busy(self, seconds: float) -> int | None:
        """Return its exit code, or None if it hangs: it has computed for this time, or has not ended for far longer.

        A busy machine gives it less time to compute, so the clock alone says nothing.
        """
        end = time.monotonic() + PATIENCE * seconds
        while not wait_for([self._process.sentinel], 0.2):
            if time.monotonic() > end or self.seconds() > seconds:
                return None
        return self.wait()

    def seconds(self) -> float:
        """Return the time that it and its children have computed; 0 if it has ended."""
        found = 0.0
        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            for each in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):
                    found += sum(each.cpu_times()[:4])  # its own, and of children that have ended
        return found

    def has_ended(self) -> bool:
        """Return whether it has ended."""
        return bool(wait_for([self._process.sentinel], 0))

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal, if it is still running."""
        with _LOCK:
            if self._process.exitcode is None:
                os.kill(self.pid, number)

    def output(self) -> str:
        """Return what it and its own children have printed so far, with stdout and stderr mixed."""
        return self.printed().decode(errors="backslashreplace")

    def printed(self) -> bytes:
        """Return the bytes of its output so far."""
        return Path(self._file).read_bytes()

    def close(self) -> None:
        """End the process and all processes that it started, and remove its output."""
        if self not in _ALIVE:
            return
        _ALIVE.discard(self)
        self.kill()
        with suppress(ProcessLookupError):  # no process of its group is left
            os.killpg(self.pid, signal.SIGKILL)
        self._process.join(TIMEOUT)
        os.unlink(self._file)


def start(function: Callable[..., Any], *arguments: Any) -> Child:
    """Call a top-level function in a new process, which runs until it ends or until `close` or `close_all`."""
    return Child(function, arguments)


@contextmanager
def running(function: Callable[..., Any], *arguments: Any) -> Iterator[Child]:
    """Call a top-level function in a new process for the duration of a `with` block."""
    child = start(function, *arguments)
    try:
        yield child
    finally:
        child.close()


def close_all() -> None:
    """End all remaining children; a fixture calls this after every test."""
    for child in list(_ALIVE):
        child.close()


def command(
    *words: str, cwd: Path, timeout: float = TIMEOUT, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run `hookline words...` in a folder, and return its exit code and its output."""
    with running(run_command, words, str(cwd), dict(environment or {})) as child:
        return child.wait(timeout), child.output()


def run_command(words: tuple[str, ...], cwd: str, environment: dict[str, str]) -> None:
    """Run the command line; called in a child."""
    os.chdir(cwd)
    os.environ |= environment
    sys.path += [folder for folder in environment.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.argv = ["hookline", *words]
    sys.dont_write_bytecode = True
    from hookline.cli import main

    main()


def _run(file: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)  # the server may have been started by a test with a group
    os.setpgid(0, 0)  # so that the processes that it starts can be ended with it
    # As in any new process, a loader's workers are started with Python's default method.
    multiprocessing.set_start_method(None, force=True)  # None is the default
    nothing = os.open(os.devnull, os.O_RDONLY)
    printed = os.open(file, os.O_WRONLY | os.O_APPEND)
    os.dup2(nothing, 0)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    for stream in (sys.stdout, sys.stderr):  # the server's streams may have another encoding
        stream.reconfigure(encoding="utf-8", line_buffering=True)  # type: ignore[union-attr]  # a text file, here
    function(*arguments)
