"""Figures in pages: a benchmark writes what it measured between two markers of a page, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent


def write(page: str, name: str, text: str) -> None:
    """Replace what is between `<!-- name: begin -->` and `<!-- name: end -->` in a page of the repository."""
    path = ROOT / page
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = path.read_text().partition(begin)
    _, also, after = rest.partition(end)
    if not found or not also:
        raise SystemExit(f"{page} has no place for these figures: add the lines {begin} and {end}")
    path.write_text(f"{before}{begin}\n{text.strip()}\n{end}{after}")
    print(f"wrote the figures into {page}")


def save(picture: str, text: str) -> None:
    """Write a picture of the pages."""
    (ROOT / picture).write_text(text)
    print(f"wrote {picture}")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])
