"""The folder of a run, as a path that also supports common string operations."""

from __future__ import annotations

from pathlib import Path, PosixPath, WindowsPath

_Path = PosixPath if isinstance(Path(), PosixPath) else WindowsPath


class WorkDir(_Path):  # type: ignore[misc, valid-type]  # depends on the platform
    """A path with the string methods that hooks written for MMEngine call on `runner.work_dir`.

    >>> WorkDir("runs/one/").rstrip("/") + "/best", WorkDir("runs/one").endswith("one")
    ('runs/one/best', True)
    """

    def __eq__(self, other: object) -> bool:
        """Compare with a path or a text: `runner.work_dir == cfg.work_dir`."""
        return bool(super().__eq__(Path(other) if isinstance(other, str) else other))

    __hash__ = _Path.__hash__

    def __add__(self, other: str) -> str:
        return str(self) + other

    def __radd__(self, other: str) -> str:
        return other + str(self)

    def rstrip(self, characters: str | None = None) -> str:
        """Apply `str.rstrip` to the path."""
        return str(self).rstrip(characters)

    def split(self, separator: str | None = None, maxsplit: int = -1) -> list[str]:
        """Apply `str.split` to the path."""
        return str(self).split(separator, maxsplit)

    def startswith(self, prefix: str | tuple[str, ...]) -> bool:
        """Apply `str.startswith` to the path."""
        return str(self).startswith(prefix)

    def endswith(self, suffix: str | tuple[str, ...]) -> bool:
        """Apply `str.endswith` to the path."""
        return str(self).endswith(suffix)
