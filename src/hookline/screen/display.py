"""What a live display shows of a run, fitted to the width of the screen, and how often it is drawn.

epoch 3/15 ━━━━━━━━━━━━━━━╸────────────────────  45/255  31.2 it/s  eta 0:00:07
loss 0.1243  lr 4.82e-03  best accuracy 0.9609  412 MiB
val ━━━━━━━━━━━━╸─────────  3/10
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

# More than four times a second is not seen, and more than one percent of the time is not spent on it.
PAUSE = 0.25
SHARE = 0.01
# A bar is at most so wide, and is left out below that.
WIDEST, NARROWEST = 40, 8
FULL, EMPTY = "━", "─"


class Pace:
    """When to draw next: at most four times a second, and never more than a hundredth of the time."""

    def __init__(self) -> None:
        self._next = 0.0
        #: How long all drawing has taken.
        self.spent = 0.0

    def is_due(self, now: float) -> bool:
        """Whether it is time to draw."""
        return now >= self._next

    def drawn(self, began: float, ended: float) -> None:
        """It took so long; the next one waits."""
        self.spent += ended - began
        self._next = ended + max(PAUSE, (ended - began) / SHARE)


@dataclass
class Bar:
    """How far something is: its name, how much is done, and of how much, where that is known."""

    label: str
    done: int
    total: int | None
    #: What stands behind the bar; what does not fit is left out, the last first.
    texts: Sequence[str] = ()

    def line(self, width: int) -> Text:
        """The line, at most so wide."""
        from rich.text import Text

        count = f"{self.done}/{self.total}" if self.total is not None else str(self.done)
        behind = fitted([count, *self.texts], width - len(self.label) - 1)
        line = Text(f"{self.label} ", no_wrap=True, overflow="ellipsis")
        room = min(WIDEST, width - len(self.label) - len(behind) - 3)
        if self.total and room >= NARROWEST:
            full = round(room * min(self.done / self.total, 1.0))
            line.append(FULL * full, "green").append(EMPTY * (room - full), "dim").append("  ")
        return line.append(behind)


@dataclass
class Picture:
    """All that is shown: the run, facts about it, and what it is doing besides training."""

    bar: Bar
    facts: list[str] = field(default_factory=list)
    beside: Bar | str | None = None

    def lines(self, width: int) -> Iterator[Text]:
        """The lines, at most so wide."""
        from rich.text import Text

        yield self.bar.line(width)
        if self.facts:
            yield Text(fitted(self.facts, width), no_wrap=True, overflow="ellipsis")
        if isinstance(self.beside, Bar):
            yield self.beside.line(width)
        elif self.beside:
            yield Text(self.beside, no_wrap=True, overflow="ellipsis")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines(options.max_width):
            if options.ascii_only:
                line.plain = line.plain.replace(FULL, "=").replace(EMPTY, "-")
            yield line


def fitted(texts: Sequence[str], width: int) -> str:
    """As many texts as fit in a line, two spaces between them; at least the first.

    >>> fitted(["45/255", "31.2 it/s", "eta 0:00:07"], 20)
    '45/255  31.2 it/s'
    """
    shown: list[str] = []
    for text in texts:
        if shown and len("  ".join([*shown, text])) > width:
            break
        shown.append(text)
    return "  ".join(shown)


def clock() -> float:
    """A clock that only goes forward, in seconds."""
    return time.perf_counter()
