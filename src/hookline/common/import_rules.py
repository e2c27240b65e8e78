"""The rules for imports that a config leads to, wherever these happen.

A native config may import only certain modules (`hookline.config.modules`). An object that it builds may itself look up
names that the config gives it, and import modules for them, as the registries of a dialect do. These ask here first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Refuses the name of a module with an error.
Judge = Callable[[str], object]

_judge: Judge | None = None


@contextmanager
def import_rules(judge: Judge) -> Iterator[None]:
    """Let a judge decide about imports in a `with` block, in all threads."""
    global _judge
    before = _judge
    _judge = judge
    try:
        yield
    finally:
        _judge = before


def check_import(module: str) -> None:
    """Refuse to import a module that data names, if the rules in force do not allow it."""
    if _judge is not None and module not in sys.modules:
        _judge(module)
