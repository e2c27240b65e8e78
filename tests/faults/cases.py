"""One bad input as a row of a table: its files, the command that reads them, and the expected outcome."""

from __future__ import annotations

import os
import re
import resource
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.faults import children
from tests.faults.project import MYNET, config, write

# The memory that a command may use beyond its memory at the start. A config that expands without limit exceeds it.
MEMORY = 1 << 30
SECONDS = 30

#: The file that every hostile input would create if it ran.
CANARY = "ran-code"

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
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Case:
    """One bad input.

    `says` is the whole message after `hookline: `. If torch or the system words the message, `mentions` has the parts
    that must be in it.
    """

    id: str
    code: int
    says: str = ""
    mentions: tuple[str, ...] = ()
    words: tuple[str, ...] = ("train", "config.yaml")
    config: str | bytes | None = field(default_factory=config)
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    prepare: Callable[[Path], object] = lambda project: None
    environment: Mapping[str, str] = field(default_factory=dict)
    #: True if a traceback is expected: an exception from user code keeps its traceback.
    traceback: bool = False


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case."""

    code: int
    output: str
    #: Files outside the run's folder that were created, changed or removed.
    touched: list[str]
    #: Forbidden actions of the process, as Python's audit events report them.
    seen: list[str]

    @property
    def message(self) -> str:
        """Return the error message: everything from the line that begins with `hookline: `."""
        before, found, after = self.output.partition("hookline: ")
        text = after.rstrip("\n") if found and (not before or before.endswith("\n")) else ""
        return re.sub(r"\((hookline/[a-z_/]+\.py):[0-9]+\)", r"(\1)", text)  # without line numbers, which change

    @property
    def ran_code(self) -> bool:
        """Return whether the input made the process do more than read it."""
        return bool(self.touched or self.seen)


def listed(*problems: str) -> str:
    """Return the message that refuses a config, with each problem as `line:column  key: what is wrong`."""
    count = "1 error" if len(problems) == 1 else f"{len(problems)} errors"
    return "\n".join([f"config.yaml: {count}", *(f"  config.yaml:{problem}" for problem in problems)])


def run(case: Case, root: Path) -> Outcome:
    """Run one case in its own folder."""
    project = root / "project"
    for folder in ("project", "elsewhere", "home", "tmp"):
        (root / folder).mkdir()
    write(project, "mynet.py", MYNET)
    if case.config is not None:
        write(project, "config.yaml", case.config)
    for name, content in case.files.items():
        write(project, name, content)
    case.prepare(project)
    log = root.with_name(root.name + ".seen")
    log.touch()
    before = _tree(root)
    # If matplotlib is installed, some libraries import it, and it writes a cache. That is no file of the run.
    caches = {"MPLCONFIGDIR": tempfile.gettempdir()}
    environment = {"HOME": str(root / "home"), "TMPDIR": str(root / "tmp"), **caches, **case.environment}
    with children.running(watched_command, case.words, str(project), environment, str(log)) as child:
        code = child.wait()
        output = child.output()
    after = _tree(root)
    touched = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return Outcome(code, output.replace(str(project), "{here}"), touched, log.read_text().splitlines())


def _tree(root: Path) -> dict[str, str]:
    """Return the hash of every file outside the run's own folder."""
    found = {}
    for folder, folders, names in os.walk(root):
        if Path(folder) == root / "project" and "runs" in folders:
            folders.remove("runs")
        for name in names:
            path = Path(folder, name)
            content = b"" if path.is_symlink() or not path.is_file() else path.read_bytes()
            found[str(path.relative_to(root))] = sha256(content).hexdigest()
    return found


def watched_command(words: tuple[str, ...], cwd: str, environment: dict[str, str], log: str) -> None:
    """Run the command with limited memory and time, and log all actions that only executed code would take."""
    tempfile.tempdir = None  # it was set when the server was started
    if sys.platform == "linux":
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    _watch(Path(cwd), os.open(log, os.O_WRONLY | os.O_APPEND))
    children.run_command(words, cwd, environment)


def _watch(project: Path, log: int) -> None:
    own = os.path.realpath(project / "runs")

    def is_outside(path: Any) -> bool:
        if not isinstance(path, (str, bytes)):
            return False
        text = os.fsdecode(path)
        if text == os.devnull or "\0" in text:
            return False
        real = os.path.realpath(text)
        return real != own and not real.startswith(own + os.sep)

    def log_forbidden(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _NEVER:
            forbidden = True
        elif event == "open":
            forbidden = bool((arguments[2] or 0) & _WRITING) and is_outside(arguments[0])
        else:
            forbidden = event in _CHANGES and any(is_outside(path) for path in arguments)
        if forbidden:
            os.write(log, f"{event} {arguments!r}\n".encode(errors="backslashreplace"))

    sys.addaudithook(log_forbidden)
