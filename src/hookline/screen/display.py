"""The content of a live display, fitted to the width of the screen.

epoch 3/15 ━━━━━━━━━━━━━━━╸────────────────────  45/255  31.2 it/s  eta 0:00:07
loss 0.1243  lr 4.82e-03  best accuracy 0.9609  412 MiB
val ━━━━━━━━━━━━╸─────────  3/10
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hookline.common.escape import escaped

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

# The width below which there is no bar.
NARROWEST = 8
INDENT = "  "
FULL, EMPTY = "━", "─"


@dataclass
class Bar:
    """The progress of something: its name, how much is done, and the total, if known."""

    label: str
    done: int
    total: int | None
    #: Texts after the bar. If they do not fit, the last ones are left out.
    texts: Sequence[str] = ()

    def line(self, width: int) -> Text:
        """Return the line, at most this wide."""
        from rich.cells import cell_len
        from rich.text import Text

        label = escaped(self.label)
        count = f"{self.done}/{self.total}" if self.total is not None else str(self.done)
        behind = join_fitting([count, *self.texts], width - cell_len(label) - 1)
        line = Text(f"{label} ", no_wrap=True, overflow="ellipsis")
        room = width - cell_len(label) - cell_len(behind) - 3
        if self.total and room >= NARROWEST:
            full = round(room * min(self.done / self.total, 1.0))
            line.append(FULL * full, "green").append(EMPTY * (room - full), "dim").append("  ")
        return line.append(behind)


@dataclass
class Picture:
    """The whole display: the progress of the run, facts about it, and its current activity besides training."""

    bar: Bar
    facts: list[str] = field(default_factory=list)
    beside: Bar | str | None = None

    def lines(self, width: int) -> Iterator[Text]:
        """Yield the lines, at most this wide."""
        from rich.text import Text

        yield self.bar.line(width)
        if self.facts:
            yield Text(join_fitting(self.facts, width), no_wrap=True, overflow="ellipsis")
        if isinstance(self.beside, Bar):
            yield self.beside.line(width)
        elif self.beside:
            yield Text(fold(escaped(self.beside), width)[0], no_wrap=True, overflow="ellipsis")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines(options.max_width):
            if options.ascii_only:
                line.plain = line.plain.replace(FULL, "=").replace(EMPTY, "-")
            yield line


def join_fitting(texts: Sequence[str], width: int) -> str:
    """Join as many texts as fit in a line, with two spaces between them; always include the first.

    >>> join_fitting(["45/255", "31.2 it/s", "eta 0:00:07"], 20)
    '45/255  31.2 it/s'
    """
    shown: list[str] = []
    for text in map(escaped, texts):
        if shown and len("  ".join([*shown, text])) > width:
            break
        shown.append(text)
    return "  ".join(shown)


def fold(text: str, width: int) -> list[str]:
    """Break a line between two items, or else between two words, so that it fits into a width.

    Items are separated by two spaces. Further lines are indented. A word that is wider than the line stays whole.

    >>> fold("epoch 3  val  accuracy 0.9749  loss 0.1024", 30)
    ['epoch 3  val  accuracy 0.9749', '  loss 0.1024']
    """
    from rich.cells import cell_len

    if len(text) <= width // 2 or cell_len(text) <= width:
        return [text]
    content = text.lstrip()
    indent = text[: len(text) - len(content)]
    lines: list[str] = []
    for item in content.split("  "):
        if lines and cell_len(f"{lines[-1]}  {item}") <= width:
            lines[-1] += f"  {item}"
            continue
        begins = True
        for word in item.split(" "):
            if not begins and cell_len(f"{lines[-1]} {word}") <= width:
                lines[-1] += f" {word}"
            else:
                lines.append(indent + INDENT * bool(lines) + word)
            begins = False
    return lines
