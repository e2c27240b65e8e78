"""The one owner of the screen. What it shows also goes to run.log, without control characters."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from hookline.display import Picture

# How late a line may be, in seconds.
LATENCY = 0.25


class Terminal:
    """Lines for people. While a progress display is on the screen, details go only to the log."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        #: The live display, while there is one.
        self.progress: Live | None = None
        self._picture: Picture | None = None
        self._log: IO[str] | None = None
        #: Lines that came before the log was opened.
        self._early: list[str] = []
        #: A save beside the training has lines to show, too.
        self._lock = threading.RLock()
        self._waiting: list[tuple[float, Callable[[], str]]] = []
        self._flushed = 0.0
        self._console: Console | None = None

    @property
    def console(self) -> Console:
        """The screen, made when first used: rich takes a while to import."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(quiet=self.quiet, soft_wrap=True, highlight=False)
        return self._console

    def prepare(self) -> None:
        """Make the screen before the run is seeded: importing rich draws random numbers."""
        _ = self.console

    @property
    def is_live(self) -> bool:
        """Whether the screen can redraw itself."""
        return self.console.is_terminal and not self.console.is_dumb_terminal and not self.quiet

    @contextmanager
    def live(self) -> Iterator[Callable[[Picture], None]]:
        """A display that redraws itself below the lines, as long as this lasts; gives what draws it."""
        from rich.live import Live

        with Live(console=self.console, transient=True, auto_refresh=False) as live:
            self.progress = live
            try:
                yield self._draw
            finally:
                self.progress = self._picture = None

    def _draw(self, picture: Picture) -> None:
        with self._lock:
            self._picture = picture
            if self.progress is not None:
                self.progress.update(picture, refresh=True)

    def working(self, text: str) -> None:
        """Something besides training that may take long: it is named in the display, if there is one."""
        if self._picture is not None:
            self._draw(replace(self._picture, beside=text))

    def open_log(self, path: Path) -> None:
        """Begin or go on with run.log."""
        self.close_log()
        self._log = open(path, "a", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115  # see close_log
        self._log.writelines(self._early)
        self._early.clear()

    def close_log(self) -> None:
        """End run.log."""
        self.flush()
        if self._log is not None:
            self._log.close()
            self._log = None

    def say(self, text: str, style: str | None = None) -> None:
        """A line for the screen and the log."""
        with self._lock:
            self.flush()
            self._to_log(text, time.time())
            self.console.print(text, style=style, markup=False)

    def note(self, text: str) -> None:
        """A line for the log alone."""
        with self._lock:
            self.flush()
            self._to_log(text, time.time())

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
                    print(text, flush=True)
            if self._log is not None:
                self._log.flush()

    def show(self, *renderables: RenderableType, **options: Any) -> None:
        """Tables or the like, for the screen and the log, with options of rich's `print`."""
        from rich.console import Console

        self.flush()
        if self._log is not None:
            Console(file=self._log, width=100, color_system=None).print(*renderables, **options)
        self.console.print(*renderables, **options)

    def _to_log(self, text: str, at: float) -> None:
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))}  {text}\n"
        if self._log is not None:
            self._log.write(line)
        else:
            self._early.append(line)


class TerminalHandler(logging.Handler):
    """Hookline's own warnings, as lines of the terminal and the log."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        """One warning."""
        warning = record.levelno >= logging.WARNING
        self._terminal.say(("warning: " if warning else "") + self.format(record), "yellow" if warning else None)


def as_number(value: Any, digits: int = 4) -> str:
    """A number for people: `0.4103`, `3.00e-05`, `12`."""
    if not isinstance(value, float):
        return str(value)
    if value == 0 or 10 ** (1 - digits) <= abs(value) < 1e5:
        return f"{value:.{digits}f}"
    return f"{value:.{max(digits // 2, 1)}e}"


def as_time(seconds: float) -> str:
    """A time for people: `0:04:31`."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
