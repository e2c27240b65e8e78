"""Writers take numbers, images and the config out of the process. One file a writer; `Writer` is what they share."""

from collections.abc import Iterator

from hookline.plan.registry import WRITERS
from hookline.writers.base import Writer
from hookline.writers.router import Writers

__all__ = ["Writer", "Writers", "built_in_files"]


def built_in_files() -> Iterator[str]:
    """Name the files and folders that the built-in writers make in a run's folder unless told otherwise."""
    for name in WRITERS.builtin:
        yield from getattr(WRITERS.get(name), "default_files", ())
