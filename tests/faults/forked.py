"""One input in a fork of this process: with limited time, memory and processes, and with an eye on what it does."""

from __future__ import annotations

import errno
import faulthandler
import math
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import NoReturn

from tests.faults import children
from tests.faults.project import write
from tests.faults.watching import limit_resources, log_peak, read_log, watch

# An input that takes longer hangs. It is far more than a command needs, even if other processes use the machine.
HANGS_AFTER = 15.0
# The number of processes that an input may start.
PROCESSES = 8


@dataclass(frozen=True)
class Input:
    """The files of a project, and the words of the command that reads them."""

    files: Mapping[str, bytes]
    words: tuple[str, ...]
    #: Why the command must not succeed; empty if it may.
    must_fail: str = ""


@dataclass(frozen=True)
class Ended:
    """The end of a command."""

    code: int
    shown: bytes
    memory: int
    hung: bool
    seen: list[str]


def run_input(given: Input, root: Path, stays_inside: bool, seconds: float = HANGS_AFTER) -> Ended:
    """Run the command of an input in a fork of this process, with limited time and memory."""
    project, log, printed = root / "project", root / "seen", root / "printed"
    project.mkdir()
    for name, content in given.files.items():
        write(project, name, content)
    for path in (log, printed):
        path.touch()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _command(given.words, project, log, printed, stays_inside, seconds)
    status = _wait(child, seconds)
    hung = status is None
    if hung:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # the workers of its loaders
    code = os.waitstatus_to_exitcode(status or 0)
    shown = printed.read_bytes() + b"".join(
        path.read_bytes() for path in project.glob("runs/*/run.log") if path.is_file()
    )
    seen, memory = read_log(log)
    return Ended(code, shown, memory, hung, seen)


def _wait(child: int, seconds: float) -> int | None:
    """Return how a process ended; None if it does not end in time."""
    deadline, pause = time.monotonic() + seconds, 0.001
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)
    return None


def _command(
    words: tuple[str, ...], project: Path, log: Path, printed: Path, stays_inside: bool, seconds: float
) -> NoReturn:
    """Run a command as a process of its own; called in the fork."""
    code = 1
    try:
        os.setpgid(0, 0)
        descriptor = os.open(printed, os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        began = limit_resources(2 * math.ceil(seconds))
        faulthandler.enable(2)
        faulthandler.dump_traceback_later(0.9 * seconds, file=2)  # where it hangs
        os.fork = partial(_fork, os.fork, count())
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
        watch(project, descriptor, stays_inside)
        environment = {"HOME": str(project), "TMPDIR": str(project / "runs"), "MPLCONFIGDIR": str(project / "runs")}
        tempfile.tempdir = None
        try:
            children.run_command(words, str(project), environment)
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        except BaseException:
            traceback.print_exc()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        log_peak(descriptor, began)
    finally:
        os._exit(code)


def _fork(fork: Callable[[], int], counted: Iterator[int]) -> int:
    """Fork, but not without end: an input may ask for any number of loader workers."""
    if next(counted) >= PROCESSES:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return fork()
