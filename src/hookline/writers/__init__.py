"""Writers take numbers, images and the config out of the process. Each has its own file; `Writer` is the base class."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hookline.plan.registry import WRITERS
from hookline.writers.base import Writer

if TYPE_CHECKING:
    from hookline.writers.router import Writers

__all__ = ["Writer", "Writers", "built_in_files"]


def built_in_files() -> Iterator[str]:
    """Yield the default names of the files and folders that the built-in writers create in a run's folder."""
    for name in WRITERS.builtin:
        yield from getattr(WRITERS.get(name), "default_files", ())


def __getattr__(name: str) -> Any:
    """Import the router on first access: a class that derives from `Writer` does not need it."""
    if name == "Writers":
        from hookline.writers.router import Writers

        return Writers
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
