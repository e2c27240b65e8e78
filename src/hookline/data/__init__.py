"""Loaders that can resume at any batch, and the bundled digits."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookline.data.digits import Digits, DigitsNet
    from hookline.data.loader import ResumableLoader

__all__ = ["Digits", "DigitsNet", "ResumableLoader"]

_HOME = {"Digits": "digits", "DigitsNet": "digits", "ResumableLoader": "loader"}


def __getattr__(name: str) -> Any:
    """Import a public name, and torch with it, on first access."""
    if name in _HOME:
        return getattr(importlib.import_module(f"hookline.data.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
