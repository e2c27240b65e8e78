"""One bad input as a row of a table: its files, the command that reads them, and the expected outcome."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from tests.faults import children
from tests.faults.project import MYNET, config, write
from tests.faults.raw import find_raw
from tests.faults.watching import read_log, watched_command

#: The file that every hostile input would create if it ran.
CANARY = "ran-code"
#: Far more seconds than any input needs. A command that takes longer hangs.
HANGS_AFTER = 20.0


@dataclass(frozen=True)
class Case:
    """One bad input.

    `says` is the whole message after `hookline: `. If torch or the system words the message, `mentions` has the parts
    that must be in it.
    """

    id: str
    #: None if the command may use the input or refuse it, as long as it does either properly.
    code: int | None
    says: str = ""
    mentions: tuple[str, ...] = ()
    words: tuple[str, ...] = ("train", "config.yaml")
    config: str | bytes | None = field(default_factory=config)
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    prepare: Callable[[Path], object] = lambda project: None
    #: Undoes what would keep the folder from being removed.
    tidy: Callable[[Path], object] = lambda project: None
    environment: Mapping[str, str] = field(default_factory=dict)
    #: True if a traceback is expected: an exception from user code keeps its traceback.
    traceback: bool = False
    #: The command that must succeed if the first one does, because it uses what the first one left.
    then: tuple[str, ...] = ()
    #: True if the modes of files must hold even for root.
    powerless: bool = False


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case."""

    code: int
    output: str
    #: Files outside the run's folder that were created, changed or removed.
    touched: list[str]
    #: Forbidden actions of the process, as Python's audit events report them.
    seen: list[str]
    #: Everything that no user should ever see: a hang, too much memory, a traceback of ours, control characters.
    raw: list[str]
    #: The exit code of the command that uses what this one left; None if it was not started.
    code_then: int | None = None

    @property
    def message(self) -> str:
        """Return the error message: everything from the line that begins with `hookline: `.

        The search for a NaN that follows it repeats the run, and has tests of its own.
        """
        before, found, after = self.output.partition("hookline: ")
        after = after.partition("finding out where this began")[0]
        text = after.rstrip("\n") if found and (not before or before.endswith("\n")) else ""
        return re.sub(r"\((hookline/[a-z_/]+\.py):[0-9]+\)", r"(\1)", text)  # without line numbers, which change

    @property
    def ran_code(self) -> bool:
        """Return whether the input made the process do more than read it."""
        return bool(self.touched or self.seen)

    @property
    def silent(self) -> bool:
        """Return whether the command reported success, although its input is bad or its result cannot be used."""
        return self.code == 0 and self.code_then != 0


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
    before = _tree(root)
    try:
        outcome = _run(case, case.words, root, before)
        if case.then and outcome.code == 0:
            then = _run(case, case.then, root, before)
            output, raw = outcome.output + then.output, outcome.raw + then.raw
            outcome = Outcome(0, output, then.touched, outcome.seen + then.seen, raw, then.code)
    finally:
        case.tidy(project)
    return outcome


def _run(case: Case, words: tuple[str, ...], root: Path, before: dict[str, str]) -> Outcome:
    project, log = root / "project", root.with_name(root.name + ".seen")
    log.write_bytes(b"")
    # If matplotlib is installed, some libraries import it, and it writes a cache. That is no file of the run.
    caches = {"MPLCONFIGDIR": tempfile.gettempdir()}
    environment = {"HOME": str(root / "home"), "TMPDIR": str(root / "tmp"), **caches, **case.environment}
    arguments = (words, str(project), environment, str(log), case.powerless)
    with children.running(watched_command, *arguments) as child:
        ended = child.wait_busy(HANGS_AFTER)
        code, hung = (-signal.SIGKILL, True) if ended is None else (ended, False)
        printed = child.printed()
    after = _tree(root)
    touched = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    seen, peak = read_log(log)
    output = printed.decode(errors="backslashreplace").replace(str(project), "{here}")
    shown = printed + b"".join(path.read_bytes() for path in project.glob("runs/*/run.log") if path.is_file())
    raw = find_raw(code, shown, case.traceback, peak, HANGS_AFTER if hung else None)
    return Outcome(code, output, touched, seen, raw)


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
