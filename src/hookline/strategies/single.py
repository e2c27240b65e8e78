"""One process, one device."""

from __future__ import annotations

from hookline.strategies.base import Strategy


class Single(Strategy):
    """Train in this process only. The base class already does all of it."""

    name = "single"
