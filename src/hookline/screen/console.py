"""The screen: standard output through rich. A failure to show something never ends a run."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment

from hookline.common.escape import escaped_lines

if TYPE_CHECKING:
    from typing import IO

    from rich.console import ConsoleOptions, RenderableType

    from hookline.screen.display import Picture


class Stdout:
    """The current standard output. Text that cannot be written, or that nobody reads, is dropped."""

    @property
    def _file(self) -> IO[str]:
        """Return the real stream: while rich shows a display, `sys.stdout` is a proxy that leads back here."""
        return getattr(sys.stdout, "rich_proxied_file", sys.stdout)

    @property
    def encoding(self) -> str:
        """Return the encoding of the stream."""
        return getattr(self._file, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write text, and escape characters that the stream cannot encode."""
        encoded = text.encode(self.encoding, "backslashreplace").decode(self.encoding)
        self._try(lambda: self._file.write(encoded))
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        self._try(self._file.flush)

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        isatty = getattr(self._file, "isatty", None)  # an object that replaces sys.stdout may not have it
        return isatty is not None and isatty()

    def fileno(self) -> int:
        """Return the file descriptor of the stream."""
        return self._file.fileno()

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except BrokenPipeError:
            # The reader has exited, as `head` does. Flushing the rest of the buffer must not fail when Python exits.
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
        except (OSError, ValueError):  # a full disk, or a closed file
            pass


class EscapingConsole(Console):
    """A console on which no text can move the cursor or change a color: only styles and displays can.

    While one thread prints, others wait for the lock. rich alone would let a print and a drawing overlap, and both
    would erase the same lines of the display.
    """

    def __init__(self, lock: AbstractContextManager[Any], **options: Any) -> None:
        super().__init__(**options)
        self._printing = lock

    def __enter__(self) -> Console:
        """Begin to print."""
        self._printing.__enter__()
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        """Write everything that was printed at once."""
        try:
            super().__exit__(*raised)
        finally:
            self._printing.__exit__(*raised)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with control codes escaped in the text, as far as rich has not removed them."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escaped_lines(segment.text))


def make_console(quiet: bool, lock: AbstractContextManager[Any]) -> Console:
    """Create the console of a run. In a notebook, lines are plain text of the cell, not one output each."""
    file, options = cast("IO[str]", Stdout()), {"soft_wrap": True, "highlight": False, "emoji": False}
    return EscapingConsole(lock, file=file, quiet=quiet, force_jupyter=False, **options)


class LiveScreen:
    """A display below the lines that is redrawn in place."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console = console
        self._live = live
        self._width = console.width
        self._shown: list[int] = []

    def draw(self, picture: Picture) -> None:
        """Draw a picture in place of the previous one."""
        self.settle()
        self._live.update(picture, refresh=True)
        self._width = self._console.width
        self._shown = [line.cell_len for line in picture.lines(self._width)]

    def settle(self) -> None:
        """Move up by the rows that were added because the terminal became narrower and wrapped the display."""
        width = self._console.width
        if width < self._width:
            rows = sum(max(-(-cells // width), 1) for cells in self._shown)
            up = Control((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
            self._console.control(*[up] * (rows - len(self._shown)))
            self._width = width


@contextmanager
def live(console: Console) -> Iterator[LiveScreen]:
    """Show a display while the context lasts, and erase it afterwards. Output of others appears above it."""
    # rich would show on the screen what is meant for a file of errors.
    errors = sys.stderr is not None and sys.stderr.isatty()
    shown = Live(console=console, transient=True, auto_refresh=False, redirect_stderr=errors)
    screen = LiveScreen(console, shown)
    with console:  # in this order, as everybody takes the locks of the console and of the display
        shown.start()
    try:
        with log_streams_redirected():
            yield screen
    finally:
        with console:
            screen.settle()
            shown.stop()


@contextmanager
def log_streams_redirected() -> Iterator[None]:
    """Let handlers that log to the real standard streams use rich's proxies of them."""
    proxies = {id(s.rich_proxied_file): s for s in (sys.stdout, sys.stderr) if hasattr(s, "rich_proxied_file")}
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    changed: list[tuple[logging.StreamHandler[Any], Any]] = []
    for handler in (attached for known in loggers if isinstance(known, logging.Logger) for attached in known.handlers):
        if isinstance(handler, logging.StreamHandler) and id(handler.stream) in proxies:
            changed.append((handler, handler.setStream(proxies[id(handler.stream)])))
    try:
        yield
    finally:
        for handler, stream in changed:
            handler.setStream(stream)
