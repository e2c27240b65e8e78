"""Terminal: the only owner of the screen. All lines also go to run.log. Control codes in them are escaped."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from hookline.common import forks
from hookline.common.escape import escaped_lines
from hookline.common.files import is_at, owned
from hookline.screen import notebook

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from hookline.screen.display import Picture

# How late a line may appear, in seconds.
LATENCY = 0.25


class Display(Protocol):
    """A display that is redrawn in place, on a screen or in a notebook."""

    def draw(self, picture: Picture) -> None:
        """Draw a picture in place of the previous one."""

    def settle(self) -> None:
        """Prepare for a line above the display."""


class Terminal:
    """Shows lines on the screen and writes them to run.log. During a progress display, details go only to run.log."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        #: The live display, while there is one.
        self.progress: Display | None = None
        self._picture: Picture | None = None
        self._log: IO[str] | None = None
        #: The log of the process that this one was forked from, kept so that nothing ever flushes it.
        self._not_ours: IO[str] | None = None
        #: Lines from before the log was opened.
        self._early: list[str] = []
        #: A save in the background shows lines, too.
        self._lock = threading.RLock()
        self._waiting: list[tuple[float, Callable[[], str]]] = []
        #: The newest second in run.log, as a number and as text.
        self._second, self._stamp = -1, ""
        self._flushed = 0.0
        self._log_failed = False
        self._console: Console | None = None

    @property
    def console(self) -> Console:
        """Return the screen, created on first use because rich is slow to import."""
        if self._console is None:
            from hookline.screen.console import make_console

            self._console = make_console(self.quiet)
        return self._console

    def prepare(self) -> None:
        """Create the screen before the run is seeded, because importing rich draws random numbers."""
        _ = self.console

    @property
    def is_live(self) -> bool:
        """Return whether the screen can show a live display."""
        screen = self.console.is_terminal and not self.console.is_dumb_terminal
        return (screen or notebook.in_notebook()) and not self.quiet

    @contextmanager
    def live(self) -> Iterator[Callable[[Picture], None]]:
        """Show a live display below the lines while the context lasts; yield the function that draws it."""
        from hookline.screen import console

        with notebook.display() if notebook.in_notebook() else console.live(self.console) as self.progress:
            try:
                yield self._draw
            finally:
                self.progress = self._picture = None

    def _draw(self, picture: Picture) -> None:
        with self._lock:
            self._picture = picture
            if self.progress is not None:
                self.progress.draw(picture)

    def working(self, text: str) -> None:
        """Show in the live display, if there is one, what the run does besides training."""
        if self._picture is not None:
            self._draw(replace(self._picture, beside=text))

    def open_log(self, path: Path) -> None:
        """Open run.log; append if it exists."""
        self.close_log()
        forks.own(self)
        self._log = open(  # noqa: SIM115  # see close_log
            path, "a", encoding="utf-8", errors="backslashreplace", opener=owned
        )
        self._on_log(partial(self._log.writelines, self._early))
        self._early = []

    def close_log(self) -> None:
        """Close run.log."""
        self.flush()
        if self._log is not None:
            self._on_log(self._log.close)
            self._log = None
        forks.release(self)

    def disown(self) -> None:
        """Leave run.log and the live display to the process that this one was forked from. Only the screen stays.

        The other process may have been writing just now, so its locks, the console and buffered lines are not used.
        """
        nowhere = open(os.devnull, "w", encoding="utf-8", errors="replace")  # noqa: SIM115  # until the process ends
        if self._log is not None:
            os.dup2(nowhere.fileno(), self._log.fileno())
        self._not_ours, self._log = self._log, nowhere
        self._lock, self._waiting, self._early = threading.RLock(), [], []
        self.progress = self._picture = self._console = None

    def say(self, text: str, style: str | None = None) -> None:
        """Write a line to the screen and the log."""
        text = escaped_lines(text)
        with self._lock:
            self.flush()
            self._to_log(text, time.time())
            self._to_screen(self._folded(text), style=style, markup=False)
            self._flush_log()

    def note(self, text: str) -> None:
        """Write a line to the log only."""
        with self._lock:
            self.flush()
            self._to_log(escaped_lines(text), time.time())
            self._flush_log()

    def detail(self, make: Callable[[], str]) -> None:
        """Write a line to the log, and also to the screen unless a progress display already shows the same.

        The line is built and written at most a quarter of a second later, together with others: one at a time, a line
        would cost as much as a fast step.
        """
        with self._lock:
            self._waiting.append((time.time(), make))
        if time.monotonic() - self._flushed > LATENCY:
            self.flush()

    def flush(self) -> None:
        """Write all waiting lines."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._flushed = time.monotonic()
            for at, make in waiting:
                text = escaped_lines(make())
                self._to_log(text, at)
                if self.progress is None and not self.quiet:
                    print(self._folded(text), file=self.console.file, flush=True)
            self._flush_log()

    def show(self, *renderables: RenderableType, **options: Any) -> None:
        """Write tables or other renderables to the screen and the log, with options of rich's `print`."""
        from rich.console import Console

        with self._lock:
            self.flush()
            with StringIO() as lines:
                Console(file=lines, width=100, color_system=None).print(*renderables, **options)
                self._write_log(escaped_lines(lines.getvalue()))
            self._to_screen(*renderables, **options)
            self._flush_log()

    def has_log_at(self, path: Path) -> bool:
        """Return whether the log of this run is still the file at a path."""
        return self._log is not None and is_at(path, self._log.fileno())

    def _folded(self, text: str) -> str:
        """Return lines for the screen. A terminal would break a long one inside a word."""
        if self.quiet or not self.console.is_terminal:
            return text
        from hookline.screen.display import fold

        return "\n".join(line for long in text.split("\n") for line in fold(long, self.console.width))

    def _to_screen(self, *shown: RenderableType, **options: Any) -> None:
        if self.progress is not None:
            self.progress.settle()
        self.console.print(*shown, **options)

    def _to_log(self, text: str, at: float) -> None:
        if int(at) != self._second:  # formatting a time costs as much as the rest of a line
            self._second, self._stamp = int(at), time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
        self._write_log(f"{self._stamp}  {text}\n")

    def _write_log(self, lines: str) -> None:
        if self._log is None:
            self._early.append(lines)
        else:
            self._on_log(partial(self._log.write, lines))

    def _flush_log(self) -> None:
        if self._log is not None:
            self._on_log(self._log.flush)

    def _on_log(self, act: Callable[[], object]) -> None:
        """Do something with run.log. If the disk is full, lines are lost, but the run continues."""
        try:
            act()
        except OSError as error:
            if not self._log_failed:
                self._log_failed = True
                why = error.strerror or error
                self._to_screen(f"warning: run.log cannot be written: {why}; the run continues", style="yellow")


class TerminalHandler(logging.Handler):
    """Sends hookline's own log messages to the terminal and run.log."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        """Show one log message."""
        warning = record.levelno >= logging.WARNING
        self._terminal.say(("warning: " if warning else "") + self.format(record), "yellow" if warning else None)
