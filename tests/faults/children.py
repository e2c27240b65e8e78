"""Functions and commands in processes of their own, each a few milliseconds away instead of an import of torch.

    child = start(train_until_killed, folder)
    child.kill(signal.SIGKILL)
    child.wait(10)                                   -> -9
    command("train", "config.yaml", cwd=folder)      -> (exit code, all it printed)

A server that has imported torch and hookline, and has no threads, is asked to fork itself. The process of the tests is
never forked: it has threads. What is started is a top-level function that the child can import by its name.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

# All that the command line imports before it trains, so that no child does it again.
PRELOADED = (
    *(
        "torch",
        "numpy",
        "hookline",
        "hookline.cli",
        "hookline.engine.runner",
        "hookline.testing",
        "hookline.cli.summary",
    ),
    *(
        "hookline.config.assembly",
        "rich.console",
        "rich.table",
        "rich.progress",
        "torch.utils.data",
        "torch._dynamo",
        "tests.faults.warm",
    ),
)

# Far above what any child needs, so that a slow machine never decides; a child that hangs is killed then.
TIMEOUT = 60.0

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(list(PRELOADED))
# Starting one child looks after the others, and an exit code can be read only once: one thread at a time.
_LOCK = threading.Lock()
_ALIVE: set[Child] = set()


class Child:
    """A process that was started, and everything that it starts in turn."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        handle, self._file = tempfile.mkstemp(prefix="hookline-child-", suffix=".log")
        os.close(handle)
        self._process = _CONTEXT.Process(target=_run, args=(self._file, function, arguments))
        with _LOCK:
            self._process.start()
        _ALIVE.add(self)

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its process group."""
        assert self._process.pid is not None
        return self._process.pid

    def wait(self, timeout: float = TIMEOUT) -> int:
        """Its exit code, or minus the signal that ended it; TimeoutError when it does not end in time."""
        if not wait_for([self._process.sentinel], timeout):
            raise TimeoutError(f"the child {self.pid} did not end within {timeout} s; it printed:\n{self.output()}")
        with _LOCK:
            code = self._process.exitcode
        assert code is not None
        return code

    def has_ended(self) -> bool:
        """Whether it is gone."""
        return bool(wait_for([self._process.sentinel], 0))

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal, if it is still there."""
        with _LOCK:
            if self._process.exitcode is None:
                os.kill(self.pid, number)

    def output(self) -> str:
        """What it and its own children have printed so far, stdout and stderr as they came."""
        return Path(self._file).read_text(encoding="utf-8", errors="backslashreplace")

    def close(self) -> None:
        """Make sure that nothing of it is left: neither the process, nor what it started, nor its output."""
        if self not in _ALIVE:
            return
        _ALIVE.discard(self)
        self.kill()
        with suppress(ProcessLookupError):  # nothing that it started is left
            os.killpg(self.pid, signal.SIGKILL)
        self._process.join(TIMEOUT)
        os.unlink(self._file)


def start(function: Callable[..., Any], *arguments: Any) -> Child:
    """Call a top-level function in a fresh process, which goes on by itself until `close` or `close_all`."""
    return Child(function, arguments)


@contextmanager
def running(function: Callable[..., Any], *arguments: Any) -> Iterator[Child]:
    """The same, for as long as a `with` lasts."""
    child = start(function, *arguments)
    try:
        yield child
    finally:
        child.close()


def close_all() -> None:
    """End every child that is left; a fixture does this after every test."""
    for child in list(_ALIVE):
        child.close()


def command(
    *words: str, cwd: Path, timeout: float = TIMEOUT, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """`hookline words...` in a folder: its exit code, and all that it printed."""
    with running(run_command, words, str(cwd), dict(environment or {})) as child:
        return child.wait(timeout), child.output()


def run_command(words: tuple[str, ...], cwd: str, environment: dict[str, str]) -> None:
    """What a child does for `command`."""
    os.chdir(cwd)
    os.environ |= environment
    sys.path += [folder for folder in environment.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.argv = ["hookline", *words]
    sys.dont_write_bytecode = True
    from hookline.cli import main

    main()


def _run(file: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.setpgid(0, 0)  # so that what it starts can be ended with it
    # As in any fresh process: a loader's workers are started the way that Python starts them here.
    multiprocessing.set_start_method(None, force=True)  # None is the default
    nothing = os.open(os.devnull, os.O_RDONLY)
    printed = os.open(file, os.O_WRONLY | os.O_APPEND)
    os.dup2(nothing, 0)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    for stream in (sys.stdout, sys.stderr):  # the server's own may have the encoding of another place
        stream.reconfigure(encoding="utf-8", line_buffering=True)  # type: ignore[union-attr]  # a text file, here
    function(*arguments)
