"""The folder of a run as a path that also does what people do with a string."""

from __future__ import annotations

from pathlib import Path, PosixPath, WindowsPath

_Path = PosixPath if isinstance(Path(), PosixPath) else WindowsPath


class WorkDir(_Path):  # type: ignore[misc, valid-type]  # one of the two, by the machine
    """A path with the methods of a string that hooks written for MMEngine call on `runner.work_dir`.

    >>> WorkDir("runs/one/").rstrip("/") + "/best", WorkDir("runs/one").endswith("one")
    ('runs/one/best', True)
    """

    def __add__(self, other: str) -> str:
        return str(self) + other

    def __radd__(self, other: str) -> str:
        return other + str(self)

    def rstrip(self, characters: str | None = None) -> str:
        """As of a string."""
        return str(self).rstrip(characters)

    def split(self, separator: str | None = None, maxsplit: int = -1) -> list[str]:
        """As of a string."""
        return str(self).split(separator, maxsplit)

    def startswith(self, prefix: str | tuple[str, ...]) -> bool:
        """As of a string."""
        return str(self).startswith(prefix)

    def endswith(self, suffix: str | tuple[str, ...]) -> bool:
        """As of a string."""
        return str(self).endswith(suffix)
