"""KILL: runs that are killed at random moments and resumed, compared with one that was never killed, state by state."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.children import TIMEOUT, running
from tests.faults.runs import digests, train

KINDS = ("workers", "persistent", "beside", "plain")


class Kills:
    """What was seen: how many kills, how many resumes whose state was that of the unbroken run, and what was not."""

    def __init__(self) -> None:
        self.kills = 0
        self.identical = 0
        self.failures: list[str] = []


def reference(folder: Path, kind: str) -> dict[str, str]:
    """The digests of a run that nobody kills."""
    with running(train, str(folder), kind) as child:
        code = child.wait()
        assert code == 0, child.output()
    return dict(digests(folder))


def kill_and_resume(folder: Path, kind: str, times: int, seed: int) -> Kills:
    """Kill a run so many times, after a random number of iterations and a random fraction of one; resume it each time.

    How long to wait is counted in what the run does, so that the speed of the machine plays no part. A kill counts when
    the run had come to an iteration, and a resume when it has.
    """
    chance, seen, number = random.Random(seed), Kills(), 0
    expected = reference(folder / "reference", kind)
    run = _Killed(folder / "run-0", kind, expected, seen)
    while seen.kills < times:
        if run.live(chance.randint(0, 14), chance.random() * 0.02):
            number += 1
            run = _Killed(folder / f"run-{number}", kind, expected, seen)
    run.live(None, 0.0)
    return seen


class _Killed:
    """A run that is killed and resumed."""

    def __init__(self, folder: Path, kind: str, expected: dict[str, str], seen: Kills) -> None:
        self.folder, self.kind, self.expected, self.seen = folder, kind, expected, seen
        self.owes_resume = False
        folder.mkdir()

    def live(self, iterations: int | None, fraction: float) -> bool:
        """One start, killed after so many iterations, or never; whether the run came to its end."""
        before = len(digests(self.folder))
        with running(train, str(self.folder), self.kind) as child:
            if iterations is not None:
                wanted = before + iterations
                assert wait_until(lambda: len(digests(self.folder)) >= wanted or child.has_ended()), child.output()
                time.sleep(fraction)
                child.kill(signal.SIGKILL)
            code, output = child.wait(), child.output()
        found = digests(self.folder)[before:]
        wrong = [where for where, state in found if self.expected[where] != state]
        if code not in (0, -signal.SIGKILL):
            self.seen.failures.append(f"{self.folder}: exit code {code}: {output}")
        elif wrong:
            states = dict(found)[wrong[0]].split(","), self.expected[wrong[0]].split(",")
            parts = [ours.partition("=")[0] for ours, theirs in zip(*states, strict=True) if ours != theirs]
            self.seen.failures.append(
                f"{self.folder}: at iteration {wrong[0]}, resumed at {found[0][0]}, these parts are not those of the "
                f"unbroken run: {', '.join(parts)}"
            )
        elif found and self.owes_resume:
            self.seen.identical += 1
        if found:
            self.owes_resume = code != 0
            self.seen.kills += code != 0
        return code == 0 or bool(self.seen.failures)


def wait_until(condition: Callable[[], bool]) -> bool:
    """Whether something has come about, within a time that no machine needs."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True
