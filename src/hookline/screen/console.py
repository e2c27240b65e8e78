"""The screen: standard output through rich, in such a way that what is shown never ends a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, cast

from rich.console import Console
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType

if TYPE_CHECKING:
    from typing import IO

    from hookline.screen.display import Picture


class Stdout:
    """Standard output as it is at the moment; text that cannot be written, or that nobody reads, is dropped."""

    @property
    def _file(self) -> IO[str]:
        """The stream itself: while rich shows a display, it puts something before it that leads back here."""
        return getattr(sys.stdout, "rich_proxied_file", sys.stdout)

    @property
    def encoding(self) -> str:
        """What it can show."""
        return getattr(self._file, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write, with escapes for letters that it cannot show."""
        encoded = text.encode(self.encoding, "backslashreplace").decode(self.encoding)
        self._try(lambda: self._file.write(encoded))
        return len(text)

    def flush(self) -> None:
        """Let it be seen."""
        self._try(self._file.flush)

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._file.isatty()

    def fileno(self) -> int:
        """The number of its file."""
        return self._file.fileno()

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except BrokenPipeError:
            # Whoever read it has gone, as `head` does. What is left in the buffer must not fail when Python ends.
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
        except (OSError, ValueError):  # a full disk, or a file that was closed
            pass


def make_console(quiet: bool) -> Console:
    """The console of a run; in a notebook, lines are text of the cell like any other, and not an output each."""
    file = cast("IO[str]", Stdout())
    return Console(file=file, quiet=quiet, soft_wrap=True, highlight=False, emoji=False, force_jupyter=False)


class LiveScreen:
    """A display below the lines, which draws itself anew."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console = console
        self._live = live
        self._width = console.width
        self._shown: list[int] = []

    def draw(self, picture: Picture) -> None:
        """Draw it in place of the last one."""
        self.settle()
        self._live.update(picture, refresh=True)
        self._width = self._console.width
        self._shown = [line.cell_len for line in picture.lines(self._width)]

    def settle(self) -> None:
        """Terminals wrap what is on them when they become narrower: go up by the rows that this has added."""
        width = self._console.width
        if width < self._width:
            rows = sum(max(-(-cells // width), 1) for cells in self._shown)
            up = Control((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
            self._console.control(*[up] * (rows - len(self._shown)))
            self._width = width


@contextmanager
def live(console: Console) -> Iterator[LiveScreen]:
    """A display that is there as long as this lasts, and leaves nothing behind."""
    with Live(console=console, transient=True, auto_refresh=False) as shown:
        screen = LiveScreen(console, shown)
        try:
            yield screen
        finally:
            screen.settle()
