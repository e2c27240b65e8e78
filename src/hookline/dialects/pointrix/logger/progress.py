"""ProgressLogger: progress bars for several tasks, on the live display of the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hookline.common.durations import clock
from hookline.common.numbers import as_time
from hookline.dialects.pointrix.logger.console import Logger
from hookline.errors import HooklineError, did_you_mean
from hookline.record.history import is_known
from hookline.screen.display import Bar, Picture

if TYPE_CHECKING:
    from hookline.screen.terminal import Terminal


@dataclass
class Task:
    """One progress bar, its timing, and the facts shown below it."""

    bar: Bar
    facts: dict[str, Any] = field(default_factory=dict)
    visible: bool = True
    #: The time at which it began or was last restarted, and the number of steps done by then.
    began: float = field(default_factory=lambda: clock())
    before: int = 0
    ended: float | None = None

    def measure(self, suffix: str) -> None:
        """Update the shown rate and the remaining time."""
        seconds = max((self.ended or clock()) - self.began, 1e-9)
        rate = (self.bar.done - self.before) / seconds
        texts = [f"{rate:.1f} {suffix}"] if rate else []
        if rate and self.bar.total is not None:
            texts.append(f"eta {as_time(max(self.bar.total - self.bar.done, 0) / rate)}")
        self.bar.texts = texts


class ProgressLogger:
    """Shows the bars of the first two visible tasks, with the facts of all visible tasks between them.

    Without a terminal it draws nothing. A thread draws at most four times a second, so updating a bar costs little. It
    never waits for a device: a fact that is a tensor on a GPU is left out.

    Args:
        description: A title. It is not shown.
        suffix: The unit of the rate.
        terminal: The terminal to draw on. The default is the terminal of `Logger`.
    """

    def __init__(self, description: str = "", suffix: str | None = None, terminal: Terminal | None = None) -> None:
        self.description = description
        self.suffix = suffix or "it/s"
        self.terminal = terminal if terminal is not None else Logger.terminal
        self.tasks: dict[str, Task] = {}
        self._leaving: ExitStack | None = None

    def add_task(
        self, name: str, description: str, total_iter: int | None, log_dict: Mapping[str, Any] | None = None
    ) -> None:
        """Add a bar with this name."""
        self.tasks[name] = Task(Bar(description, 0, total_iter), dict(log_dict or {}))

    def update(self, name: str, step: int = 1, log: Mapping[str, Any] | None = None) -> None:
        """Advance a bar by `step`; `log` has facts to show, by name."""
        task = self._task(name)
        task.bar.done += step
        task.facts.update(log or {})

    def start(self) -> None:
        """Start drawing, if there is a terminal."""
        if self._leaving is None and self.terminal.is_live:
            self._leaving = ExitStack()
            self._leaving.enter_context(self.terminal.live(self._picture))

    def stop(self) -> None:
        """Remove the display. A second call does nothing."""
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            leaving.close()

    def start_task(self, name: str) -> None:
        """Measure the time of a task from now on."""
        task = self._task(name)
        task.began, task.before, task.ended = clock(), task.bar.done, None

    def stop_task(self, name: str) -> None:
        """Stop measuring the time of a task."""
        self._task(name).ended = clock()

    def reset(self, name: str, visible: bool = True) -> None:
        """Restart a task from zero, and show or hide it."""
        task = self._task(name)
        task.bar.done, task.visible = 0, visible
        task.began, task.before, task.ended = clock(), 0, None

    def _task(self, name: str) -> Task:
        if name not in self.tasks:
            raise HooklineError(f"unknown task '{name}'; {did_you_mean(name, self.tasks)}")
        return self.tasks[name]

    def _picture(self) -> Picture | None:
        # Copies, because another thread may add a task or a fact at the same time.
        shown = [task for task in self.tasks.copy().values() if task.visible]
        if not shown:
            return None
        for task in shown:
            task.measure(self.suffix)
        facts = [f"{name} {value}" for task in shown for name, value in task.facts.copy().items() if is_known(value)]
        return Picture(shown[0].bar, facts, shown[1].bar if len(shown) > 1 else None)
