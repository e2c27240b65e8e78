"""Items side by side, one column each: a table that fits the terminal, or plain columns without a terminal.

In a terminal, long texts are cut, and items that do not fit beside the others are shown in another table below. In a
pipe or a file, nothing is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from hookline.cli.common import show

if TYPE_CHECKING:
    from rich.console import Console

# Columns are not made narrower than this to fit one more into a table.
NARROWEST = 15
# The width of a column apart from its text: a space on both sides and a line.
FRAME = 3
MARK = " *"
CUT = "..."


@dataclass(frozen=True)
class Row:
    """A row of the table: its label, one text per item, and the numbers of the marked items."""

    label: str
    cells: Sequence[str]
    marked: set[int] = field(default_factory=set)

    def cell(self, number: int, width: int | None = None) -> str:
        """Return the text of one item with its mark, cut to a width."""
        mark = MARK if number in self.marked else ""
        text = self.cells[number]
        return (text if width is None else cut(text, width - len(mark))) + mark


Blocks = Mapping[str, Sequence[Row]]


def display(console: Console, titles: Sequence[str], blocks: Blocks) -> None:
    """Print blocks of rows, each under its name."""
    blocks = {name: rows for name, rows in blocks.items() if rows}
    if console.is_terminal:
        for table in tables(console.width, titles, blocks):
            console.print(table)
    else:
        show(plain(titles, blocks))


def plain(titles: Sequence[str], blocks: Blocks) -> str:
    """Return the blocks as plain columns, separated by two spaces."""
    lines = [["", *titles]]
    for name, rows in blocks.items():
        lines += [[], [name], *([f"  {row.label}", *map(row.cell, range(len(titles)))] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*(line for line in lines if len(line) > 1), strict=True)]
    return "\n".join(
        "  ".join(text + " " * (width - cell_len(text)) for text, width in zip(line, widths, strict=False)).rstrip()
        for line in lines
    )


def tables(width: int, titles: Sequence[str], blocks: Blocks) -> Iterator[Table]:
    """Yield as many tables as needed to fit all columns into a terminal of this width."""
    rows = [row for block in blocks.values() for row in block]
    wide = [max(map(cell_len, (title, *(row.cell(n) for row in rows)))) for n, title in enumerate(titles)]
    label = min(max((cell_len(row.label) for row in rows), default=0), max(width * 2 // 5, NARROWEST))
    left = width - 1 - (label + FRAME)
    several = max(left // (min(max(wide), NARROWEST) + FRAME), 1)
    for first in range(0, len(titles), several):
        part = range(first, min(first + several, len(titles)))
        share = max(left // len(part) - FRAME, len(CUT) + len(MARK) + 1)
        yield _table(titles, blocks, label, {number: min(wide[number], share) for number in part})


def _table(titles: Sequence[str], blocks: Blocks, label: int, widths: Mapping[int, int]) -> Table:
    table = Table()
    table.add_column("", width=label, no_wrap=True)
    for number, width in widths.items():
        table.add_column(Text(cut(titles[number], width, end=True)), width=width, no_wrap=True)
    for name, rows in blocks.items():
        table.add_section()
        table.add_row(Text(name, style="bold"))
        for row in rows:
            cells = (Text(row.cell(n, width), "bold" if n in row.marked else "") for n, width in widths.items())
            table.add_row(Text(cut(row.label, label, end=True)), *cells)
    return table


def cut(text: str, width: int, end: bool = False) -> str:
    """Return a text cut to a width; with `end`, keep its end, where paths and dotted keys differ.

    >>> cut("optim.optimizer.lr", 15), cut("optim.optimizer.lr", 15, end=True), cut("lr", 15)
    ('optim.optimi...', '....optimizer.lr', 'lr')
    """
    if cell_len(text) <= width:
        return text
    while text and cell_len(text) + len(CUT) > width:
        text = text[1:] if end else text[:-1]
    return CUT + text if end else text + CUT
