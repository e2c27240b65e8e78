"""Run a command with limited memory and time, and log what it must never do."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.faults import children

# The memory that a command may reserve beyond what it has at the start. A config that expands without limit exceeds it.
MEMORY = 1 << 30
SECONDS = 20

# Audit events that a config or a checkpoint must never cause.
_NEVER = {
    *("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "pty.spawn", "subprocess.Popen"),
    *("socket.connect", "socket.getaddrinfo", "urllib.Request", "webbrowser.open", "ctypes.dlopen"),
    *("pickle.find_class",),
}
_CHANGES = {
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod", "os.chown"),
    *("os.mkfifo", "os.utime", "shutil.rmtree", "shutil.move", "shutil.copyfile"),
}
# The changes above that happen at the target of a link, and not to the link itself.
_FOLLOWING = {"os.truncate", "os.chmod", "os.chown", "os.utime", "shutil.copyfile"}
_NOT_FOLLOWING = os.O_NOFOLLOW | os.O_EXCL
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# The log's last line: the memory that the process took beyond what it had at the start.
_PEAK = "peak "


def watched_command(
    words: tuple[str, ...], cwd: str, environment: dict[str, str], log: str, powerless: bool = False
) -> None:
    """Run the command with limited memory and time, and log all actions that only executed code would take.

    If it is `powerless`, modes of files hold even for root.
    """
    tempfile.tempdir = None  # it was set when the server was started
    if powerless:
        give_up_power()
    began = limit_resources()
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    watch(Path(cwd), descriptor)
    try:
        children.run_command(words, cwd, environment)
    finally:
        log_peak(descriptor, began)


def log_peak(log: int, began: int) -> None:
    """Log the memory that this process took beyond what it had at the start. This is the last line of a log."""
    os.write(log, f"{_PEAK}{peak_memory() - began}\n".encode())


def read_log(log: Path) -> tuple[list[str], int]:
    """Return the forbidden actions of a process, and the memory that it took; 0 if it was killed."""
    lines = log.read_text(errors="backslashreplace").splitlines()
    if lines and lines[-1].startswith(_PEAK):
        return lines[:-1], int(lines[-1].removeprefix(_PEAK))
    return lines, 0


def limit_resources(seconds: int = SECONDS) -> int:
    """Limit the memory and the CPU time of this process, and return the memory that it has now."""
    if sys.platform == "linux":
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    return peak_memory()


def peak_memory() -> int:
    """Return the largest amount of memory that this process has used at once, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def give_up_power() -> None:
    """Give up what root may do on Linux, so that the modes of files hold; other users have no such power."""
    if sys.platform == "linux" and os.geteuid() == 0:
        version = (ctypes.c_uint32 * 2)(0x20080522, 0)  # the layout of the next argument, and this process
        nothing = (ctypes.c_uint32 * 6)()
        if ctypes.CDLL(None, use_errno=True).capset(version, nothing):
            raise OSError(ctypes.get_errno(), "capset failed")


def watch(project: Path, log: int, stays_inside: bool = True) -> None:
    """Log all actions that only executed code would take; the run's own folder is `runs` in the project.

    Unless it `stays_inside`, a command may write to other folders, and it may start the workers of a loader.
    """
    own = os.path.realpath(project / "runs")

    def is_outside(path: Any, follows: bool) -> bool:
        if not isinstance(path, (str, bytes)):
            return False
        text = os.fsdecode(path)
        if text == os.devnull or "\0" in text:
            return False
        folder, name = os.path.split(os.path.join(os.getcwd(), text))
        real = os.path.join(resolved(folder), name)
        if follows and os.path.islink(real):
            real = os.path.realpath(real)
        return real != own and not real.startswith(own + os.sep)

    folders = {"/": "/"}

    def resolved(folder: str) -> str:
        """Return a folder without links. Each is resolved only once: a path may have thousands of levels."""
        names: list[str] = []
        while folder not in folders:
            folder, name = os.path.split(folder)
            names.append(name)
        real = folders[folder]
        for name in reversed(names):
            folder = os.path.join(folder, name)
            real = os.path.dirname(real) if name == ".." else os.path.join(real, name)
            real = folders[folder] = os.path.realpath(real) if os.path.islink(real) else real
        return real

    def log_forbidden(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _NEVER:
            forbidden = stays_inside or event != "os.fork"
        elif not stays_inside:
            forbidden = False
        elif event == "open":
            flags = arguments[2] or 0
            forbidden = bool(flags & _WRITING) and is_outside(arguments[0], not flags & _NOT_FOLLOWING)
        else:
            forbidden = event in _CHANGES and any(is_outside(path, event in _FOLLOWING) for path in arguments)
        if forbidden:
            os.write(log, f"{event} {arguments!r}\n".encode(errors="backslashreplace"))

    sys.addaudithook(log_forbidden)
