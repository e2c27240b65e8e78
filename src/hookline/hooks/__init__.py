"""The built-in hooks, one file each: `from hookline.hooks import CheckpointHook`. `hookline hooks` lists them.

The names are found by reading this folder. `make docs` writes them into `__init__.pyi` for editors and type checkers.
"""

from __future__ import annotations

from typing import Any

from hookline.plan.registry import HOOKS

__all__ = list(HOOKS.builtin)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Import a hook on first access."""
    if name in HOOKS.builtin:
        return HOOKS.get(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
