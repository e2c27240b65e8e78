"""The files of a run: how they are opened, and what is refused because it is not a regular file.

A run writes only its own regular files. It never follows a link in its folder, and never waits for a pipe or a
device. Files that are only read may be links, but only to regular files. Both rules are openers, for any `open`:

    open(path, "a", opener=owned)      a file that the run writes
    open(path, "rb", opener=regular)   a file that is only read
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from hookline.errors import StorageError

#: The ending of a file that is being written. A killed process may leave such a file behind.
PARTIAL = ".partial"

# Windows has neither. Without O_NONBLOCK, opening a pipe waits for its other end.
_NO_FOLLOW, _NO_WAIT = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)
_KINDS = {
    stat.S_IFREG: "",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}


def kind_of(status: os.stat_result) -> str:
    """Return the kind of a file, for messages; empty for a regular file."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "a device")


def owned(path: str, flags: int) -> int:
    """Open a file of the run. Raise StorageError if something else has its name; nothing is followed or emptied.

    A folder raises IsADirectoryError, as always.
    """
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    with suppress(FileNotFoundError):
        _refuse_unless_own(path, os.lstat(path), bool(writes))
    descriptor = os.open(path, flags & ~os.O_TRUNC | _NO_FOLLOW | _NO_WAIT, 0o666)
    try:
        _refuse_unless_own(path, os.fstat(descriptor), bool(writes))  # it may have been replaced just now
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def regular(path: str, flags: int) -> int:
    """Open a file for reading, through links. Raise OSError if it is a pipe, a socket or a device."""
    _refuse_special(path, os.stat(path))
    descriptor = os.open(path, flags | _NO_WAIT)
    try:
        _refuse_special(path, os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_special(path: str, status: os.stat_result) -> None:
    if not stat.S_ISDIR(status.st_mode) and (kind := kind_of(status)):  # `open` itself refuses a folder
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", path)


def _refuse_unless_own(path: str, status: os.stat_result, writes: bool) -> None:
    kind = kind_of(status)
    if writes and not kind and status.st_nlink > 1:
        kind = f"a file with {status.st_nlink} hard links"
    if kind and not stat.S_ISDIR(status.st_mode):
        raise not_own(path, "regular file", kind)


def is_at(path: Path, descriptor: int) -> bool:
    """Return whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except OSError:
        return False


def not_own(path: str | Path, expected: str, found: str) -> StorageError:
    """Return the error about something else that has the name of a file of the run."""
    return StorageError(
        f"{path} must be a {expected} of this run, not {found}; move it away, or choose another work_dir"
    )


def refuse_other_kinds(path: Path, *, folders: bool = False, links: bool = False) -> None:
    """Refuse anything but a regular file under the name of a file of the run; a missing file is fine.

    `folders` also allows a folder. `links` also allows a link to a regular file, for files that are replaced as a
    whole and otherwise only read.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    kind = kind_of(status)
    if not kind or (folders and stat.S_ISDIR(status.st_mode)) or (links and os.path.isfile(path)):
        return
    raise not_own(path, "regular file or a folder" if folders else "regular file", kind)


def create_folder(folder: Path) -> None:
    """Create a folder and its parents, one after the other: `Path.mkdir` calls itself for each of them."""
    missing = []
    for path in (folder, *folder.parents):
        with suppress(FileNotFoundError):
            path.stat()  # fails for a path that is too long or a loop of links
            break
        missing.append(path)
    for path in (*reversed(missing), folder):
        path.mkdir(exist_ok=True)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file of the run."""
    with open(path, "rb", opener=regular) as file:
        return file.read()


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` once it is complete; a failure leaves the old file."""
    temporary = path.with_name(f".{path.name}{PARTIAL}")
    refuse_other_kinds(path, links=True)
    refuse_other_kinds(temporary)
    file = open(temporary, "wb", opener=owned)  # noqa: SIM115  # closed below, before it is renamed
    try:
        with file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on the disk. Some systems cannot do this for a folder; its files are there anyway."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Replace a text file of the run."""
    with storage_errors(path), replacing(path) as file:
        file.write(text.encode())


@contextmanager
def storage_errors(path: Path, action: str = "written", *, inside: bool = False) -> Iterator[None]:
    """Turn an error of the system into a StorageError that names the file, or, if known, the file inside it."""
    try:
        yield
    except OSError as error:
        name = (error.filename if inside else None) or path
        raise StorageError(f"{name} cannot be {action}: {error.strerror or error}") from error


def real_path(path: Path) -> Path:
    """Return the absolute path without links. Unlike `Path.resolve`, it accepts links that form a loop."""
    return Path(os.path.realpath(path))
