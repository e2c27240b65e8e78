"""BaseLoop, the common base class of all loops."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookline.dialects.mmengine.runner.runner import Runner


class BaseLoop(ABC):
    """The runner of a loop and its data. A subclass may override `run`, `run_epoch` and `run_iter`.

    Args:
        runner: The runner of this loop.
        dataloader: The dataloader, or a dict that describes it.
    """

    _reference: weakref.ref[Runner]

    def __init__(self, runner: Runner, dataloader: Any) -> None:
        self._attach(runner)
        self.dataloader = runner.build_dataloader(dataloader, seed=runner.seed)

    @property
    def runner(self) -> Runner:
        """Return the runner of this loop."""
        runner = self._reference()
        assert runner is not None, "a loop does not outlive its runner"
        return runner

    @property
    def _runner(self) -> Runner:
        return self.runner

    @_runner.setter
    def _runner(self, runner: Runner) -> None:
        self._attach(runner)

    def _attach(self, runner: Runner) -> None:
        self._reference = weakref.ref(runner)

    @abstractmethod
    def run(self) -> Any:
        """Train, validate or test."""

    @classmethod
    def overridden(cls) -> list[str]:
        """Return which of the methods of a loop a project has replaced."""
        ours = __name__.rpartition(".")[0]
        found = []
        for name in ("run", "run_epoch", "run_iter"):
            owner = next((each for each in cls.__mro__ if name in vars(each)), None)
            if owner is not None and not owner.__module__.startswith(ours):
                found.append(name)
        return found
