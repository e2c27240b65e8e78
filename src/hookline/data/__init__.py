"""Loaders that can resume at any batch, and the bundled digits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookline.data.loader import ResumableLoader

__all__ = ["ResumableLoader"]


def __getattr__(name: str) -> Any:
    """Import the loader, and torch with it, on first access."""
    if name == "ResumableLoader":
        from hookline.data.loader import ResumableLoader

        return ResumableLoader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
