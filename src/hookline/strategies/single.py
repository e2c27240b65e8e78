"""One process, one device."""

from __future__ import annotations

from hookline.strategies.base import Strategy


class Single(Strategy):
    """Everything in this process: the base class as it is."""

    name = "single"
