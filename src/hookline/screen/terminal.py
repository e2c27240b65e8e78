"""The one owner of the screen. What it shows also goes to run.log, without control characters."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from hookline.screen import notebook

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from hookline.screen.display import Picture

# How late a line may be, in seconds.
LATENCY = 0.25


# What run.log shows as an escape: everything that would move a cursor or change a colour.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Display(Protocol):
    """What is drawn anew: on a screen, or in a notebook."""

    def draw(self, picture: Picture) -> None:
        """Draw it in place of the last one."""

    def settle(self) -> None:
        """Be ready for a line above it."""


class Terminal:
    """Lines for people. While a progress display is on the screen, details go only to the log."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        #: What draws the live display, while there is one.
        self.progress: Display | None = None
        self._picture: Picture | None = None
        self._log: IO[str] | None = None
        #: Lines that came before the log was opened.
        self._early: list[str] = []
        #: A save beside the training has lines to show, too.
        self._lock = threading.RLock()
        self._waiting: list[tuple[float, Callable[[], str]]] = []
        self._flushed = 0.0
        self._log_failed = False
        self._console: Console | None = None

    @property
    def console(self) -> Console:
        """The screen, made when first used: rich takes a while to import."""
        if self._console is None:
            from hookline.screen.console import make_console

            self._console = make_console(self.quiet)
        return self._console

    def prepare(self) -> None:
        """Make the screen before the run is seeded: importing rich draws random numbers."""
        _ = self.console

    @property
    def is_live(self) -> bool:
        """Whether the screen can redraw itself."""
        screen = self.console.is_terminal and not self.console.is_dumb_terminal
        return (screen or notebook.in_notebook()) and not self.quiet

    @contextmanager
    def live(self) -> Iterator[Callable[[Picture], None]]:
        """A display that redraws itself below the lines, as long as this lasts; gives what draws it."""
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
        """Something besides training that may take long: it is named in the display, if there is one."""
        if self._picture is not None:
            self._draw(replace(self._picture, beside=text))

    def open_log(self, path: Path) -> None:
        """Begin or go on with run.log."""
        self.close_log()
        self._log = open(path, "a", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115  # see close_log
        self._on_log(partial(self._log.writelines, self._early))
        self._early = []

    def close_log(self) -> None:
        """End run.log."""
        self.flush()
        if self._log is not None:
            self._on_log(self._log.close)
            self._log = None

    def say(self, text: str, style: str | None = None) -> None:
        """A line for the screen and the log."""
        with self._lock:
            self.flush()
            self._to_log(text, time.time())
            self._to_screen(text, style=style, markup=False)
            self._flush_log()

    def note(self, text: str) -> None:
        """A line for the log alone."""
        with self._lock:
            self.flush()
            self._to_log(text, time.time())
            self._flush_log()

    def detail(self, make: Callable[[], str]) -> None:
        """A line for the log; for the screen too, unless a progress display says the same there.

        It is made and shown at most a quarter of a second later, together with those that came before: one at a time,
        a line costs as much as a quick step.
        """
        with self._lock:
            self._waiting.append((time.time(), make))
        if time.monotonic() - self._flushed > LATENCY:
            self.flush()

    def flush(self) -> None:
        """Show the lines that are waiting."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._flushed = time.monotonic()
            for at, make in waiting:
                text = make()
                self._to_log(text, at)
                if self.progress is None and not self.quiet:
                    print(text, file=self.console.file, flush=True)
            self._flush_log()

    def show(self, *renderables: RenderableType, **options: Any) -> None:
        """Tables or the like, for the screen and the log, with options of rich's `print`."""
        from rich.console import Console

        with self._lock:
            self.flush()
            with StringIO() as lines:
                Console(file=lines, width=100, color_system=None).print(*renderables, **options)
                self._write_log(lines.getvalue())
            self._to_screen(*renderables, **options)
            self._flush_log()

    def _to_screen(self, *shown: RenderableType, **options: Any) -> None:
        if self.progress is not None:
            self.progress.settle()
        self.console.print(*shown, **options)

    def _to_log(self, text: str, at: float) -> None:
        text = CONTROL.sub(lambda found: repr(found[0])[1:-1], text)
        self._write_log(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))}  {text}\n")

    def _write_log(self, lines: str) -> None:
        if self._log is None:
            self._early.append(lines)
        else:
            self._on_log(partial(self._log.write, lines))

    def _flush_log(self) -> None:
        if self._log is not None:
            self._on_log(self._log.flush)

    def _on_log(self, act: Callable[[], object]) -> None:
        """Do something with run.log; a full disk costs lines, and not the run."""
        try:
            act()
        except OSError as error:
            if not self._log_failed:
                self._log_failed = True
                why = error.strerror or error
                self._to_screen(f"warning: run.log cannot be written: {why}; the run goes on", style="yellow")


class TerminalHandler(logging.Handler):
    """Hookline's own warnings, as lines of the terminal and the log."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        """One warning."""
        warning = record.levelno >= logging.WARNING
        self._terminal.say(("warning: " if warning else "") + self.format(record), "yellow" if warning else None)
