"""Terminal: the only owner of the screen. All lines also go to run.log. Control codes in them are escaped."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from hookline.common import forks
from hookline.common.escape import escaped_lines
from hookline.common.files import is_at, owned
from hookline.screen import notebook
from hookline.screen.refresh import PAUSE, Refresher

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from hookline.screen.display import Picture

# The longest delay before a line appears, in seconds.
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
        self._refresher: Refresher | None = None
        #: The current activity besides training, such as a validation or a save.
        self._work: str | None = None
        #: Lines of signal handlers, which the display has yet to show.
        self._notices: deque[str] = deque()
        self._log: IO[str] | None = None
        #: The log of the process that this one was forked from, kept so that nothing ever flushes it.
        self._not_ours: IO[str] | None = None
        #: Lines from before the log was opened.
        self._early: list[str] = []
        #: Held by whoever writes: the run, a save in the background, the thread that draws the display. The console
        #: has the same lock, so that output of `print` and of warnings never falls into a drawing.
        self._lock = threading.RLock()
        self._waiting: deque[tuple[float, Callable[[], str]]] = deque()
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

            self._console = make_console(self.quiet, self._lock)
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
    def live(self, picture: Callable[[], Picture | None]) -> Iterator[None]:
        """Show a live display below the lines while the context lasts.

        A thread draws it by time: it calls `picture` for the current content, or for None while there is nothing to
        show. The first and the last state are drawn in the calling thread. So `picture` must be fast, must not wait for
        a device, and may only read objects that another thread can change at any moment.
        """
        from hookline.screen import console

        refresher, leaving = Refresher(partial(self._draw, picture)), ExitStack()
        shown: AbstractContextManager[Display] = (
            notebook.display() if notebook.in_notebook() else console.live(self.console)
        )
        self.progress, self._refresher = leaving.enter_context(shown), refresher
        leaving.callback(self._end_display, refresher)
        forks.own(self, self._lock)
        atexit.register(leaving.close)  # nothing may draw while Python exits, even if nobody leaves this context
        try:
            refresher.start()
            yield
            refresher.stop()
            refresher.draw()
        finally:
            atexit.unregister(leaving.close)
            leaving.close()

    def _end_display(self, refresher: Refresher) -> None:
        """Stop drawing. After this, nothing is drawn even if waiting for the thread was interrupted."""
        try:
            refresher.stop()
        finally:
            with self._lock:
                self._show_notices()
                self.flush()  # details that the display has shown do not appear on the screen
                self.progress = self._refresher = None
            self._release()

    def redraw(self) -> None:
        """Draw the live display now, if there is one."""
        if self._refresher is not None:
            self._refresher.draw()

    def _draw(self, make: Callable[[], Picture | None]) -> None:
        picture = make()
        if not self._lock.acquire(timeout=PAUSE):  # somebody writes, or the screen does not take more: draw later
            return
        try:
            if self.progress is None:
                return
            self._show_notices()
            if picture is not None:
                work = self._work
                self.progress.draw(picture if work is None else replace(picture, beside=work))
        finally:
            self._lock.release()

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Show an activity besides training in the live display, if there is one, while the context lasts."""
        self._work = text
        try:
            yield
        finally:
            self._work = None

    def notify(self, text: str) -> None:
        """Show a line to somebody at a terminal. A signal handler may call this: it uses no lock and no buffer."""
        if self.quiet or not sys.stderr.isatty():
            return
        if self._refresher is not None:
            self._notices.append(text)  # a line that the display does not know of would be overwritten
            return
        with suppress(OSError):  # the terminal is what may have gone
            os.write(2, f"\n{text}\n".encode())

    def _show_notices(self) -> None:
        while self._notices:
            self._line_to_screen(self._notices.popleft())

    def open_log(self, path: Path) -> None:
        """Open run.log; append if it exists."""
        self.close_log()
        forks.own(self, self._lock)
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
        self._release()

    def _release(self) -> None:
        """Let forked processes use the terminal, if nothing in it belongs to this process anymore."""
        if self._log is None and self.progress is None:
            forks.release(self)

    def disown(self) -> None:
        """Leave run.log and the live display to the process that this one was forked from. Only the screen stays.

        Its locks, the console and buffered lines are not used.
        """
        nowhere = open(os.devnull, "w", encoding="utf-8", errors="replace")  # noqa: SIM115  # until the process ends
        if self._log is not None:
            os.dup2(nowhere.fileno(), self._log.fileno())
        self._not_ours, self._log = self._log, nowhere
        self._lock, self._waiting, self._early, self._notices = threading.RLock(), deque(), [], deque()
        self.progress = self._refresher = self._work = self._console = None

    def say(self, text: str, style: str | None = None) -> None:
        """Write a line to the screen and the log."""
        text = escaped_lines(text)
        with self._lock:
            self.flush()
            self._to_log(text, time.time())
            self._line_to_screen(text, style)
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
        self._waiting.append((time.time(), make))  # without the lock, because a step must not wait for a drawing
        if time.monotonic() - self._flushed > LATENCY:
            self.flush()

    def flush(self) -> None:
        """Write all waiting lines."""
        with self._lock:
            self._flushed = time.monotonic()
            while self._waiting:
                at, make = self._waiting.popleft()
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

    def _line_to_screen(self, text: str, style: str | None = None) -> None:
        from rich.text import Text

        self._to_screen(Text(self._folded(text), style or ""))  # a style for `print` would also color the display

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
                self._line_to_screen(f"warning: run.log cannot be written: {why}; the run continues", "yellow")


class TerminalHandler(logging.Handler):
    """Sends hookline's own log messages to the terminal and run.log."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        """Show one log message."""
        warning = record.levelno >= logging.WARNING
        self._terminal.say(("warning: " if warning else "") + self.format(record), "yellow" if warning else None)
