"""Things that are not regular files, to be put where a run has its files, and runs that must refuse them."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Any

from hookline.errors import HooklineError, exit_code_of
from hookline.testing import toy_runner

#: What a run calls each kind in its messages.
KINDS = {
    "link": "a symbolic link",
    "dangling": "a symbolic link",
    "loop": "a symbolic link",
    "pipe": "a named pipe",
    "socket": "a socket",
    "device": "a device",
    "folder": "a folder",
}
CONTENT = "this file belongs to somebody else\n"


def put(kind: str, path: Path) -> None:
    """Create something of a kind at a path. A link leads to a file beside the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    elsewhere = path.parent.with_name(f"{path.parent.name}.elsewhere")
    if kind == "link":
        elsewhere.write_text(CONTENT)
        path.symlink_to(elsewhere)
    elif kind == "dangling":
        path.symlink_to(elsewhere)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:  # its whole path would be too long
            made.bind(path.name)
    elif kind == "device":
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(0, 0))  # the only one that every user may create
    else:
        path.mkdir()


def tree(folder: Path) -> dict[str, tuple[int, str]]:
    """Return everything in a folder and beside it: what it is, and the content of files or the target of links."""
    found = {}
    for path in sorted(folder.parent.rglob("*")):
        status = path.lstat()
        text = path.read_text(errors="replace") if stat.S_ISREG(status.st_mode) else ""
        text = os.readlink(path) if stat.S_ISLNK(status.st_mode) else text
        found[str(path.relative_to(folder.parent))] = (status.st_mode, text)
    return found


def refusals(root: str, kind: str, names: list[str], **parts: Any) -> None:
    """Try to train in one folder for each name, which is something of a kind there. Print how each attempt ends."""
    for number, name in enumerate(names):
        folder = Path(root, str(number), "run")
        put(kind, folder / name)
        print(attempt(folder, "train", **parts))


def attempt(folder: Path, verb: str, **parts: Any) -> str:
    """Start a run. Return its exit code, its message, and the names of what it changed in the folder or beside it."""
    before = tree(folder)
    try:
        getattr(toy_runner(work_dir=folder, max_epochs=1, **parts), verb)()
        ended = "0 done"
    except HooklineError as error:
        ended = f"{exit_code_of(error)} {error}"
    after = tree(folder)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return f"{ended.replace(str(folder), 'RUN')} {changed}"
