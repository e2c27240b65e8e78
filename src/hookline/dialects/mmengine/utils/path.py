"""Paths, files and folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hookline.dialects.mmengine.errors import ConfigTypeError
from hookline.dialects.mmengine.not_included import not_included

__all__ = ["check_file_exist", "fopen", "is_abs", "is_filepath", "mkdir_or_exist", "scandir", "symlink"]


def is_filepath(x: Any) -> bool:
    """Return whether it can be a path."""
    return isinstance(x, (str, Path))


def is_abs(path: str) -> bool:
    """Return whether a path is absolute or a URL."""
    return os.path.isabs(path) or path.startswith(("http://", "https://", "s3://"))


def fopen(filepath: str | Path, *args: Any, **kwargs: Any) -> Any:
    """Open a file."""
    if not is_filepath(filepath):
        raise ConfigTypeError(f"a path must be a string or a Path, not {filepath!r}")
    return open(filepath, *args, **kwargs)  # the caller closes it


def check_file_exist(filename: str | Path, msg_tmpl: str = 'file "{}" does not exist') -> None:
    """Raise FileNotFoundError if there is no such file."""
    if not os.path.isfile(filename):
        raise FileNotFoundError(msg_tmpl.format(filename))


def mkdir_or_exist(dir_name: str | Path, mode: int = 0o777) -> None:
    """Create a folder and its missing parents, unless it exists."""
    if str(dir_name) == "":
        return
    os.makedirs(os.path.expanduser(dir_name), mode=mode, exist_ok=True)


def symlink(src: str | Path, dst: str | Path, overwrite: bool = True, **kwargs: Any) -> None:
    """Create a symbolic link; by default, replace an existing one."""
    if overwrite and os.path.lexists(dst):
        os.remove(dst)
    os.symlink(src, dst, **kwargs)


def scandir(
    dir_path: str | Path,
    suffix: str | tuple[str, ...] | None = None,
    recursive: bool = False,
    case_sensitive: bool = True,
) -> Iterator[str]:
    """Yield the files in a folder, relative to it, without hidden ones."""
    if not is_filepath(dir_path):
        raise ConfigTypeError(f"a path must be a string or a Path, not {dir_path!r}")
    endings = suffix if suffix is None or isinstance(suffix, tuple) else (suffix,)
    if endings is not None and not case_sensitive:
        endings = tuple(ending.lower() for ending in endings)
    return _scan(Path(dir_path), Path(dir_path), endings, recursive, case_sensitive)


def _scan(
    root: Path, folder: Path, endings: tuple[str, ...] | None, recursive: bool, case_sensitive: bool
) -> Iterator[str]:
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if recursive:
                yield from _scan(root, entry, endings, recursive, case_sensitive)
            continue
        name = str(entry.relative_to(root))
        if endings is None or (name if case_sensitive else name.lower()).endswith(endings):
            yield name


not_included(globals(), "find_vcs_root")
