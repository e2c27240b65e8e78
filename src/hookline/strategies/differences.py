"""The error of processes that would train different things."""

from __future__ import annotations

from itertools import zip_longest

from hookline.errors import DistributedError


def refuse_difference(what: str, first: str, value: str, rank: int, hint: str = "") -> None:
    """Refuse a process whose description differs from the main one's. All processes call this with the same texts."""
    if value == first:
        return
    error = DistributedError(
        f"{what} differs between rank 0 and rank {rank}, but all processes must train the same:\n  "
        + _difference(first, value, rank)
        + hint
    )
    error.was_reported = True  # all processes raise it
    raise error


def _difference(first: str, second: str, rank: int) -> str:
    """Return the first lines in which two descriptions differ."""
    pairs = zip_longest(first.splitlines(), second.splitlines(), fillvalue="")
    here, there = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    return f"rank 0: {here.strip()[:500]}\n  rank {rank}: {there.strip()[:500]}"
