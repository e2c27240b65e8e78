"""Run many random inputs, and report those that execute code, hang, end raw, or are accepted although they are wrong.

An input is a function of a seed and a number: `--seed 0 --only 1234` makes the same input again. A warm process that
has imported torch forks itself for every input, so that an input takes as long as its command. If edits can be left
out, a finding becomes smaller. It is written to a folder of its own: the files, the command and the output.
"""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import combinations, count
from pathlib import Path
from typing import Any, NoReturn

import torch

from tests.faults import children
from tests.faults.cases import CANARY
from tests.faults.project import write
from tests.faults.raw import MEMORY, find_raw
from tests.faults.watching import limit_resources, peak_memory, watch

# An input that takes longer hangs. It is far more than a command needs, even if other processes use the machine.
HANGS_AFTER = 15.0
AT_ONCE = 2
# The number of processes that an input may start.
PROCESSES = 8
LOG = "findings.jsonl"


@dataclass(frozen=True)
class Recipe:
    """How an input is made: a good base, a few edits, each with a seed, and the command that reads the result."""

    base: str
    edits: tuple[tuple[str, int], ...]
    command: str


@dataclass(frozen=True)
class Input:
    """The files of a project, and the words of the command that reads them."""

    files: Mapping[str, bytes]
    words: tuple[str, ...]
    #: Why the command must not succeed; empty if it may.
    must_fail: str = ""


@dataclass(frozen=True)
class Target:
    """Something to be fuzzed: how its inputs are made."""

    name: str
    draw: Callable[[random.Random], Recipe]
    make: Callable[[Recipe], Input]
    #: True if a command must not write outside the run's folder. A config may name another folder.
    stays_inside: bool
    #: The memory that a command may take.
    memory: int = MEMORY


@dataclass(frozen=True)
class Ended:
    """The end of a command."""

    code: int
    shown: bytes
    memory: int
    hung: bool
    seen: list[str]


@dataclass(frozen=True)
class Finding:
    """An input that did what no input should do."""

    number: int
    problem: str
    #: The same for inputs with the same cause.
    key: str
    recipe: Recipe

    def __str__(self) -> str:
        edits = ", ".join(name for name, _ in self.recipe.edits)
        return (
            f"input {self.number} ({self.recipe.base}, {self.recipe.command}: {edits}): {self.problem}\n    {self.key}"
        )


@dataclass
class Result:
    """What a fuzzer did: the number of inputs, and one finding of every cause, in the order of their numbers."""

    inputs: int
    findings: list[Finding]


def fuzz(
    target: Target,
    *,
    seed: int,
    seconds: float | None = None,
    inputs: int | None = None,
    only: int | None = None,
    folder: Path | None = None,
) -> Result:
    """Run inputs until the time is over, or a number of them, or only one. Write the findings to a folder."""
    shares: list[Any] = [[only]] if only is not None else [_Share(worker, inputs) for worker in range(AT_ONCE)]
    # Only a fault of the fuzzer itself takes longer.
    limit = (seconds or 0.0) + HANGS_AFTER * (10 + (inputs or 0))
    with tempfile.TemporaryDirectory(prefix="hookline-fuzz-") as name:
        logs = [Path(name, str(worker)) for worker in range(len(shares))]
        started = []
        try:
            for share, log in zip(shares, logs, strict=True):
                log.mkdir()
                started.append(children.start(_work, target, seed, share, seconds, str(log)))
            for child in started:
                code = child.wait(limit)
                assert code == 0, f"exit code {code}: {child.output()}"
        finally:
            for child in started:
                child.close()
        return _collect(target, logs, folder)


def _collect(target: Target, logs: list[Path], folder: Path | None) -> Result:
    """Return the findings of all workers, one of every cause, and copy their files."""
    lines = [json.loads(line) | {"log": log} for log in logs for line in (log / LOG).read_text().splitlines()]
    found: dict[str, Finding] = {}
    for line in sorted((line for line in lines if "key" in line), key=lambda line: int(line["number"])):
        if line["key"] in found:
            continue
        recipe = Recipe(line["recipe"]["base"], tuple(map(tuple, line["recipe"]["edits"])), line["recipe"]["command"])
        found[line["key"]] = Finding(line["number"], line["problem"], line["key"], recipe)
        if folder is not None:
            slug = re.sub(r"[^a-z0-9]+", "-", line["key"].lower()).strip("-")[:80]
            shutil.copytree(line["log"] / str(line["number"]), folder / f"{target.name}-{line['number']}-{slug}")
    return Result(sum(line.get("inputs", 0) for line in lines), list(found.values()))


class _Share:
    """The numbers of the inputs of one worker. It can be sent to a process, unlike an iterator."""

    def __init__(self, worker: int, inputs: int | None) -> None:
        self._numbers = range(worker, sys.maxsize if inputs is None else inputs, AT_ONCE)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)


def draw(target: Target, seed: int, number: int) -> Recipe:
    """Return the recipe of an input."""
    return target.draw(random.Random(f"{target.name} {seed} {number}"))


# -- in the warm process


def _work(target: Target, seed: int, numbers: Any, seconds: float | None, folder: str) -> None:
    """Run a share of the inputs. Log the findings as lines of JSON, and write each to a folder."""
    torch.set_num_threads(1)
    import torchmetrics  # noqa: F401  # configs may name its metrics, and importing it starts processes

    began, known, done = time.monotonic(), set[str](), 0
    with (
        open(Path(folder, LOG), "w") as log,
        tempfile.TemporaryDirectory(prefix="hookline-fuzzed-", dir=_memory_folder()) as name,
    ):
        for number in numbers:
            if seconds is not None and time.monotonic() - began > seconds:
                break
            done += 1
            recipe = draw(target, seed, number)
            problem, key, output = _try(target, recipe, Path(name))
            if problem and key not in known:
                known.add(key)
                recipe = _smaller(target, recipe, key, Path(name))
                finding = Finding(number, problem, key, recipe)
                print(json.dumps(asdict(finding)), file=log, flush=True)
                _write(target, finding, output, Path(folder, str(number)))
        print(json.dumps({"inputs": done}), file=log)


def _memory_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _smaller(target: Target, recipe: Recipe, key: str, root: Path) -> Recipe:
    """Return the recipe with the fewest edits that still has the same problem."""
    for size in range(1, len(recipe.edits)):
        for edits in combinations(recipe.edits, size):
            smaller = replace(recipe, edits=edits)
            if _try(target, smaller, root)[1] == key:
                return smaller
    return recipe


def _try(target: Target, recipe: Recipe, root: Path) -> tuple[str, str, str]:
    """Run one input in an empty folder. Return the problem, the key of its cause, and the output."""
    given = target.make(recipe)
    try:
        ended = run_input(given, root, target.stays_inside)
        touched = sorted(str(path) for path in root.rglob(CANARY))
    finally:
        for entry in root.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    output = ended.shown.decode(errors="backslashreplace")
    if ended.seen or touched:
        return "it executed code", f"code: {', '.join(ended.seen[:1] or touched)}", output
    raw = find_raw(
        ended.code, ended.shown, False, ended.memory if ended.memory > target.memory else 0, _hung_for(ended.hung)
    )
    if raw:
        return "; ".join(raw), _cause(raw, output), output
    if ended.code == 0 and given.must_fail:
        return f"it was accepted, although {given.must_fail}", f"accepted: {given.must_fail}", output
    return "", "", output


def _hung_for(hung: bool) -> float | None:
    return HANGS_AFTER if hung else None


def _cause(raw: list[str], output: str) -> str:
    """Return what inputs with the same cause have in common: the error, and the places where it was raised."""
    frames = re.findall(r'^ +File "([^"]+)", line \d+, in (\S+)', output, re.MULTILINE)
    if not frames or not any("Traceback" in each for each in raw):
        places = re.sub(r"0x[0-9a-f]+|[0-9]+", "0", output.strip().splitlines()[-1][:60]) if output.strip() else ""
        return f"{raw[0]}: {places}" if "control" in raw[0] or "line" in raw[0] else raw[0]
    errors = re.findall(
        r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Iteration))\b", output, re.MULTILINE
    )
    own = [f"{Path(file).parent.name}/{Path(file).name}:{name}" for file, name in frames if "/src/hookline/" in file]
    last = f"{Path(frames[-1][0]).name}:{frames[-1][1]}"
    return f"{errors[-1] if errors else 'error'} at {own[-1] if own else '?'}, raised in {last}"


def _fork(fork: Callable[[], int], counted: Iterator[int]) -> int:
    """Fork, but not without end: an input may ask for any number of loader workers."""
    if next(counted) >= PROCESSES:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return fork()


# -- one input


def run_input(given: Input, root: Path, stays_inside: bool) -> Ended:
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
        _command(given.words, project, log, printed, stays_inside)
    status = _wait(child)
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
    *seen, peak = [*log.read_text(errors="backslashreplace").splitlines(), "0"] if hung or code < 0 else _lines(log)
    return Ended(code, shown, int(peak), hung, seen)


def _lines(log: Path) -> list[str]:
    lines = log.read_text(errors="backslashreplace").splitlines()
    return lines if lines and lines[-1].isdigit() else [*lines, "0"]


def _wait(child: int) -> int | None:
    """Return how a process ended; None if it does not end in time."""
    deadline, pause = time.monotonic() + HANGS_AFTER, 0.001
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)
    return None


def _command(words: tuple[str, ...], project: Path, log: Path, printed: Path, stays_inside: bool) -> NoReturn:
    """Run a command as a process of its own; called in the fork."""
    code = 1
    try:
        os.setpgid(0, 0)
        descriptor = os.open(printed, os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        began = limit_resources(int(HANGS_AFTER))
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
        os.write(descriptor, f"{max(peak_memory() - began, 0)}\n".encode())
    finally:
        os._exit(code)


def _write(target: Target, finding: Finding, output: str, folder: Path) -> None:
    """Write a finding to a folder: its files, its command, and the output of the first input with this problem."""
    given = target.make(finding.recipe)
    for name, content in given.files.items():
        write(folder, name, content)
    words = " ".join(repr(word)[:2000] for word in given.words)
    edits = "\n".join(f"  {name} (seed {seed})" for name, seed in finding.recipe.edits)
    about = f"{finding.problem}\n{finding.key}\n\nbase: {finding.recipe.base}\nedits:\n{edits}\n\nhookline {words}\n"
    write(folder, "FINDING.txt", (about + f"\n{output}").encode(errors="backslashreplace"))
