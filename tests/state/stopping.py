"""A hook that ends a run where a test wants to resume it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookline import Hook

if TYPE_CHECKING:
    from hookline import Runner


class StopsAt(Hook):
    """Saves and stops after an iteration."""

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration

    def after_train_iter(self, runner: Runner) -> None:
        if runner.iter + 1 == self.iteration:
            runner.request_save()
            runner.stop("here")
