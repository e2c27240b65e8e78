"""ProgressHook: the progress display."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hookline.checks import check_int
from hookline.hook import Hook
from hookline.terminal import as_number, as_time

if TYPE_CHECKING:
    from rich.progress import TaskID

    from hookline.runner import Runner

# At most four refreshes a second: more is not seen, and drawing takes about a millisecond.
PAUSE = 0.25


class ProgressHook(Hook):
    """Shows a progress bar with step, smoothed loss and time left.

    Where there is no terminal (a file, a pipe, CI) it does nothing, and the lines of the log tell the same.

    Cost: one reading of the clock an iteration; about a millisecond at most four times a second.

    Example:
        from hookline.hooks import ProgressHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[ProgressHook(window=50)], quiet=False).train()

    YAML:
        custom_hooks:
          - {type: ProgressHook, window: 50}

    Args:
        window: Over how many steps the loss is smoothed.
    """

    priority = "LOWEST"
    role = "observer"
    draws_random_numbers = False

    def __init__(self, window: int = 20) -> None:
        check_int("ProgressHook: window", window, least=1)
        self.window = window
        self._task: TaskID | None = None
        self._drawn = 0.0

    def idle_points(self, runner: Runner) -> list[str]:
        """Without a screen that redraws itself, all of them."""
        return [] if runner.terminal.is_live else ["around_train", "after_train_iter"]

    def around_train(self, runner: Runner) -> Iterator[None]:
        """The display is there as long as training is, whatever ends it."""
        terminal = runner.terminal
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
        with Progress(*columns, console=terminal.console, transient=True, auto_refresh=False) as progress:
            terminal.progress = progress
            self._task = progress.add_task("training", total=runner.max_iters, completed=runner.iter, text="")
            try:
                yield
            finally:
                terminal.progress = self._task = None

    def after_train_iter(self, runner: Runner) -> None:
        """Draw, unless that was just done."""
        if self._task is None:
            return
        now = time.monotonic()
        if now - self._drawn >= PAUSE or runner.ends_epoch:
            self._drawn = now
            self._draw(runner, self._task)

    def _draw(self, runner: Runner, task: TaskID) -> None:
        loop, hub = runner.train_loop, runner.hub
        where = f"epoch {runner.epoch + 1}/{loop.max_epochs}" if loop.by_epoch else "iteration"
        total = f"/{runner.max_iters}" if runner.max_iters is not None else ""
        texts = [f"{runner.iter + 1}{total}"]
        if "train/loss" in hub.scalars:
            texts.append(f"loss {as_number(hub.get_scalar('train/loss').mean(self.window))}")
        eta: Any = hub.get_info("eta")
        if eta is not None:
            texts.append(f"eta {as_time(eta)}")
        progress = runner.terminal.progress
        if progress is not None:
            progress.update(task, completed=runner.iter + 1, description=where, text="  ".join(texts), refresh=True)
