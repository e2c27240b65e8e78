"""Run many random inputs, and report those that execute code, hang, end raw, or are accepted although they are wrong.

An input is a function of a seed and a number: `--seed 0 --only 1234` makes the same input again. A warm process that
has imported torch forks itself for every input, so that an input takes as long as its command. If edits can be left
out, a finding becomes smaller. It is written to a folder of its own: the files, the command and the output.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from tests.faults import children
from tests.faults.cases import CANARY
from tests.faults.forked import HANGS_AFTER, Input, run_input
from tests.faults.project import write
from tests.faults.raw import MEMORY, find_raw

AT_ONCE = 2
LOG = "findings.jsonl"


@dataclass(frozen=True)
class Recipe:
    """How an input is made: a good base, a few edits, each with a seed, and the command that reads the result."""

    base: str
    edits: tuple[tuple[str, int], ...]
    command: str


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
    #: A command that takes longer hangs.
    seconds: float = HANGS_AFTER


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
            shutil.copytree(
                line["log"] / str(line["number"]), folder / f"{target.name}-{line['number']}-{slug}", dirs_exist_ok=True
            )
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
        ended = run_input(given, root, target.stays_inside, target.seconds)
        touched = sorted(str(path) for path in root.rglob(CANARY))
    finally:
        for entry in root.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    output = ended.shown.decode(errors="backslashreplace")
    if ended.seen or touched:
        return "it executed code", f"code: {', '.join(ended.seen[:1] or touched)}", output
    memory = ended.memory if ended.memory > target.memory else 0
    raw = find_raw(ended.code, ended.shown, _is_raised_by_user(output), memory, target.seconds if ended.hung else None)
    if raw:
        return "; ".join(raw), _cause(raw, output), output
    if ended.code == 0 and given.must_fail:
        return f"it was accepted, although {given.must_fail}", f"accepted: {given.must_fail}", output
    return "", "", output


def _is_raised_by_user(output: str) -> bool:
    """Return whether code of the project raised the error, or was called with arguments that it does not take.

    Such an error keeps its traceback, with a note about the step, the metric or the loader.
    """
    frames = re.findall(r'^ +File "([^"]+)", line', output, re.MULTILINE)
    note = re.search(r"^in the (step|metric|\w+, at batch)\b", output, re.MULTILINE)
    called = re.search(
        r"^TypeError: .*\b(positional argument|keyword argument|not callable|not iterable)", output, re.MULTILINE
    )
    return bool(note and frames and (frames[-1].endswith("/mynet.py") or called))


def _cause(raw: list[str], output: str) -> str:
    """Return what inputs with the same cause have in common: the error, and the places where it was raised."""
    if "control character" in raw[0] or "part of a text" in raw[0]:
        last = output.strip().splitlines()[-1][:60]
        return f"{raw[0]}: {re.sub('[0-9]+', '0', last)}"
    if frames := re.findall(r'^ +File "([^"]+)", line \d+, in (\S+)', output, re.MULTILINE):
        errors = re.findall(r"^(\w[\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Iteration))\b", output, re.MULTILINE)
        what, raised = errors[-1] if errors else "error", frames[-1]
    else:  # of `faulthandler`, which begins with the last call
        frames = re.findall(r'^ +File "([^"]+)", line \d+ in (\S+)', output, re.MULTILINE)[::-1]
        # How much memory it took varies a little.
        what, raised = re.sub("[0-9]+ MB", "some MB", raw[0]), frames[-1] if frames else ("?", "?")
    own = [frame for frame in frames if "/src/hookline/" in frame[0]]
    return f"{what} at {_place(own[-1]) if own else '?'}, raised in {_place(raised)}"


def _place(frame: tuple[str, str]) -> str:
    path = Path(frame[0])
    return f"{path.parent.name}/{path.name}:{frame[1]}"


def _write(target: Target, finding: Finding, output: str, folder: Path) -> None:
    """Write a finding to a folder: its files, its command, and the output of the first input with this problem."""
    given = target.make(finding.recipe)
    for name, content in given.files.items():
        write(folder, name, content)
    words = " ".join(repr(word)[:2000] for word in given.words)
    edits = "\n".join(f"  {name} (seed {seed})" for name, seed in finding.recipe.edits)
    about = f"{finding.problem}\n{finding.key}\n\nbase: {finding.recipe.base}\nedits:\n{edits}\n\nhookline {words}\n"
    write(folder, "FINDING.txt", (about + f"\n{output}").encode(errors="backslashreplace"))
