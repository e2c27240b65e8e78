"""Hints: what messages tell the user to write. A dialect has its own words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Hints:
    """The hints in the messages of a run."""

    #: The code that continues a run that no command has started.
    resume: str = "Runner(..., resume=True).train()"
    #: The command that continues this run; empty if it was not started by a command.
    command: str = ""
    #: How to load only the weights of a checkpoint.
    weights: str = "use load_from to start from its weights"
    #: The last suggestion about a loss that is NaN or Inf.
    nan: str = "or skip such batches: CheckInvalidLossHook with policy: skip and interval: 1"
    #: The last suggestion about an optimizer that needs a closure.
    closure: str = "write a step with a parameter named optim that calls optim.optimizer.step(closure)"
    #: What the position counts.
    unit: str = "iteration"

    def continue_with(self, command: str) -> None:
        """Set the command that continues this run."""
        self.command = command

    @property
    def continuing(self) -> str:
        """Return what to type, or to write, to continue this run."""
        return self.command or self.resume
