"""The ends of processes: describing one, and finding the first of several failures."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass

from hookline.errors import DO_NOT_REQUEUE, ConfigError, DistributedError

#: The exit codes of a run that was asked to end by a signal, and did so.
STOPPED = {129: "SIGHUP", 130: "SIGINT", 143: "SIGTERM"}
#: The code of a process that was killed with SIGKILL.
KILLED = -9
#: The exit codes that are never restarted: an invalid config or hook, a hopeless run, and a stop that was asked for.
FINAL = {ConfigError.exit_code, DO_NOT_REQUEUE, *STOPPED}


@dataclass(frozen=True)
class Failure:
    """The end of a process that did not succeed.

    Args:
        rank: Which process it was.
        code: How it ended: its exit code, or minus the signal that killed it.
        when: When it failed, in seconds since the epoch, as far as is known.
        text: The error that it left; empty if it left none.
        relayed: True if this is the error of another process, which it ended because of.
    """

    rank: int
    code: int
    when: float
    text: str = ""
    relayed: bool = False

    @property
    def exit_code(self) -> int:
        """Return the exit code of the launcher for this failure: 128 + n after the signal n."""
        return 128 - self.code if self.code < 0 else self.code

    def of_all(self) -> str:
        """Describe a signal that has ended several processes, whichever of them got it."""
        return f"the processes were asked to end by {STOPPED[self.code]}"

    def __str__(self) -> str:
        if self.text:
            space = "\n" if self.text.startswith("Traceback") else " "
            return f"rank {self.rank} failed with exit code {self.exit_code}:{space}{self.text.rstrip()}"
        if self.code < 0:
            return f"rank {self.rank} was killed by {signal_name(-self.code)}"
        if self.code in STOPPED:
            return f"rank {self.rank} was asked to end by {STOPPED[self.code]}"
        return f"rank {self.rank} failed with exit code {self.code}"


def first_of(failures: Iterable[Failure]) -> Failure:
    """Return the failure that came first. An error of or about other processes is a consequence of another failure.

    Of two at the same time, it is the one that was killed: the other one noticed that. A process that found out that
    the same step has failed too often decides for all.
    """

    def order(failure: Failure) -> tuple[bool, bool, float, bool]:
        consequence = failure.relayed or failure.code == DistributedError.exit_code
        return failure.code != DO_NOT_REQUEUE, consequence, failure.when, failure.code > 0

    return min(failures, key=order)


def signal_name(number: int) -> str:
    """Return the name of a signal; a real-time signal has only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
