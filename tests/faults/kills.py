"""KILL: kill runs at random moments, resume them, and compare every state with that of an uninterrupted run."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.children import TIMEOUT, running
from tests.faults.kinds import KINDS as BY_NAME
from tests.faults.runs import digests, train

KINDS = tuple(BY_NAME)
#: The shapes of loops of the user: with a window, and with its own validation.
OWN_LOOPS = ("flat", "epochs", "uneven", "reports")


class Kills:
    """The numbers of kills and of bit-exact resumes, and the failures."""

    def __init__(self) -> None:
        self.kills = 0
        self.identical = 0
        self.failures: list[str] = []


def reference(folder: Path, kind: str) -> dict[str, str]:
    """Return the digests of an uninterrupted run."""
    with running(train, str(folder), kind) as child:
        code = child.wait()
        assert code == 0, child.output()
    return dict(digests(folder))


def kill_and_resume(folder: Path, kind: str, times: int, seed: int) -> Kills:
    """Kill a run `times` times, after a random number of iterations plus a random fraction of one; resume it each time.

    The waiting time is counted in iterations, so that the speed of the machine does not matter. A kill or a resume
    counts only if the run has reached an iteration.
    """
    chance, seen, number = random.Random(seed), Kills(), 0
    try:
        expected = reference(folder / "reference", kind)
    except AssertionError as error:
        seen.kills = times
        seen.failures.append(f"{kind}: the uninterrupted run failed: {_last_lines(str(error))}")
        return seen
    run = _Killed(folder / "run-0", kind, expected, seen)
    while seen.kills < times:
        if run.start(chance.randint(0, 14), chance.random() * 0.02):
            number += 1
            run = _Killed(folder / f"run-{number}", kind, expected, seen)
    run.start(None, 0.0)
    return seen


class _Killed:
    """A run that is killed and resumed."""

    def __init__(self, folder: Path, kind: str, expected: dict[str, str], seen: Kills) -> None:
        self.folder, self.kind, self.expected, self.seen = folder, kind, expected, seen
        self.awaits_resume = False
        folder.mkdir()

    def start(self, iterations: int | None, fraction: float) -> bool:
        """Start the run once; kill it after `iterations`, unless that is None. Return whether the run has ended."""
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
            self.seen.failures.append(f"{self.folder}: exit code {code}: {_last_lines(output)}")
        elif wrong:
            states = dict(found)[wrong[0]].split(","), self.expected[wrong[0]].split(",")
            parts = [ours.partition("=")[0] for ours, theirs in zip(*states, strict=True) if ours != theirs]
            self.seen.failures.append(
                f"{self.folder}: at iteration {wrong[0]}, resumed at {found[0][0]}, these parts differ from the "
                f"uninterrupted run: {', '.join(parts)}"
            )
        elif found and self.awaits_resume:
            self.seen.identical += 1
        if found:
            self.awaits_resume = code != 0
            self.seen.kills += code != 0
        return code == 0 or bool(self.seen.failures)


def _last_lines(output: str) -> str:
    """Return the end of a traceback: the error and its notes."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" ^~")]
    return " | ".join(lines[-2:])


def wait_until(condition: Callable[[], bool]) -> bool:
    """Wait for a condition, and return whether it became true before a very long timeout."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True
