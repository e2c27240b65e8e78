"""`robo_orchard_lab.utils`: the helpers that training scripts import."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

__all__ = ["as_sequence", "log_basic_config"]

FORMAT = "%(asctime)s %(levelname)s %(name)s:%(lineno)d %(message)s"


def log_basic_config(level: int | str = logging.INFO, format: str = FORMAT, **options: Any) -> None:
    """Show the log on the terminal with time, level and location. Other options go to `logging.basicConfig`."""
    logging.basicConfig(level=level, format=format, **options)


def as_sequence(value: Any) -> Sequence[Any]:
    """Return a list or tuple unchanged, an empty list for None, and any other value in a list of one.

    >>> as_sequence(None), as_sequence("loss"), as_sequence(("loss", "accuracy"))
    ([], ['loss'], ('loss', 'accuracy'))
    """
    if value is None:
        return []
    return value if isinstance(value, (list, tuple)) else [value]
