"""Runs in rows: a table that fits the terminal, or plain columns without a terminal.

In a terminal, the least informative columns are left out until the others fit. In a pipe or a file, nothing is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from hookline.cli.common import show
from hookline.cli.side_by_side import FRAME, MARK, cut
from hookline.common.escape import escaped
from hookline.rundir.leaderboard import STEP_TIME

if TYPE_CHECKING:
    from rich.console import Console

    from hookline.rundir.leaderboard import Column

NOTHING = "-"
# The widest name of a run and the widest value in a terminal; the rest is cut.
WIDEST = 28
ENDLESS = 10**5


def display(
    console: Console, titles: Sequence[str], ranked: Sequence[Column], order: Sequence[Column], every: bool
) -> list[Column]:
    """Print one row for each title, and return the columns that were left out.

    `ranked` are the columns, the most informative first. `order` is the order in which they are shown. With `every`,
    none is left out, however wide the table is.
    """
    if not console.is_terminal:
        show(plain(titles, [column for column in order if column in ranked]))
        return []
    shown = ranked if every else fit(console.width, titles, ranked)
    table = make_table(titles, [column for column in order if column in shown], None if every else WIDEST)
    if every:
        console.width = ENDLESS  # the terminal wraps the lines, if it has to
    console.print(table)
    return [column for column in ranked if column not in shown]


def plain(titles: Sequence[str], columns: Sequence[Column]) -> str:
    """Return the table as plain columns, separated by two spaces."""
    lines = [["run", *(escaped(column.name) for column in columns)]]
    lines += [[title, *(cell(column, row) for column in columns)] for row, title in enumerate(titles)]
    widths = [max(map(cell_len, texts)) for texts in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(text + " " * (width - cell_len(text)) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def fit(width: int, titles: Sequence[str], ranked: Sequence[Column]) -> list[Column]:
    """Return the most informative columns that fit beside the names of the runs."""
    labels, rows = short_names(ranked), range(len(titles))
    left = width - 1 - FRAME - min(max(map(cell_len, ("run", *titles))), WIDEST)
    shown: list[Column] = []
    for column in ranked:
        texts = (labels[column.name], *(cell(column, row) for row in rows))
        need = min(max(map(cell_len, texts)), WIDEST) + FRAME
        if need <= left or not shown:  # at least one column is shown
            shown.append(column)
            left -= need
    return shown


def make_table(titles: Sequence[str], columns: Sequence[Column], widest: int | None) -> Table:
    """Return the table of the runs. Texts wider than `widest` are cut, and numbers are aligned at their end."""
    labels, table, rows = short_names(columns), Table(), range(len(titles))

    def fitted(text: str, end: bool = False) -> str:
        return text if widest is None else cut(text, widest, end)

    table.add_column("run", no_wrap=True)
    texts = []
    for column in columns:
        label, cells = fitted(labels[column.name], end=True), [fitted(cell(column, row)) for row in rows]
        if all(isinstance(value, (int, float)) for value in column.values.values()):
            marks = bool(column.winners)
            cells = [text + " " * len(MARK) * (marks and row not in column.winners) for row, text in enumerate(cells)]
            width = max(map(cell_len, (label, *cells)))
            label, cells = label.rjust(width), [text.rjust(width) for text in cells]
        table.add_column(Text(label), no_wrap=True)
        texts.append([Text(text, "bold" if row in column.winners else "") for row, text in enumerate(cells)])
    for row, title in enumerate(titles):
        table.add_row(Text(fitted(title, end=True)), *(cells[row] for cells in texts))
    return table


def short_names(columns: Sequence[Column]) -> dict[str, str]:
    """Return the shortest end of each name that no other column has: `lr` for `optim.optimizer.lr`.

    The names of metrics stay whole, because `loss` alone may mean the loss of training or of a validation.
    """
    names = [column.name for column in columns]
    short = {}
    for column in columns:
        parts = column.name.split(".") if column.kind == "config" else [column.name]
        ends = [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]
        others = [name for name in names if name != column.name]
        unique = (end for end in ends if not any(name == end or name.endswith(f".{end}") for name in others))
        short[column.name] = escaped(next(unique, column.name))
    return short


def cell(column: Column, row: int) -> str:
    """Return the text of one cell, with a mark if it is the best of its column."""
    if row not in column.values:
        return NOTHING
    return text_of(column, column.values[row]) + MARK * (row in column.winners)


def text_of(column: Column, value: Any) -> str:
    """Return a value as text: a config value as in YAML, in one line, and a number of a metric rounded."""
    from hookline.common.numbers import as_number

    if column.name == STEP_TIME and column.kind == "fact":
        return f"{value * 1e3:.2f} ms"
    if column.kind == "metric":
        return as_number(value)
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value)
