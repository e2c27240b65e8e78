"""The runs that are watched: the folder of one run, or a folder with runs. Each has an id; nothing else is served."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from hookline.common.files import real_path
from hookline.errors import ConfigError
from hookline.rundir import archive, runs

#: How deep runs are searched below the given folder, how many are watched, and how many entries are looked at.
DEEPEST, MOST_RUNS, MOST_ENTRIES = 3, 500, 20_000


class Watched:
    """The given folder, and the runs in it.

    Args:
        path: The folder of a run, or a folder with runs in it, or in folders of it.
    """

    def __init__(self, path: Path) -> None:
        self.given = path
        if not os.path.isdir(path.expanduser()):
            runs.load(path)  # raises the error, with the nearest name
        self.root = real_path(path.expanduser())
        self.is_single = runs.is_run(self.root)
        self.by_id: dict[str, Path] = {}
        if not self.find() and not any(self.root.iterdir()):
            raise ConfigError(f"{path} is empty: expected the folder of a run, or a folder with runs")
        if not self.by_id:
            runs.load(path)

    def find(self) -> list[str]:
        """Look for new runs, and return the ids of all, sorted by their path. Runs that are gone are forgotten."""
        found = [] if not is_in_place(self.root) else [self.root] if self.is_single else find_runs(self.root)
        self.by_id = {self.id_of(folder): folder for folder in found}
        return list(self.by_id)

    def id_of(self, folder: Path) -> str:
        """Return the id of a run: a part of the hash of its path, so that any name can be part of an address."""
        return hashlib.sha256(os.fsencode(self.name_of(folder))).hexdigest()[:12]

    def name_of(self, folder: Path) -> str:
        """Return the path of a run below the given folder."""
        return self.root.name if folder == self.root else folder.relative_to(self.root).as_posix()


def is_in_place(folder: Path) -> bool:
    """Return whether a folder is still where it was found. Somebody may have replaced it, or one above, by a link."""
    return real_path(folder) == folder


def find_runs(root: Path) -> list[Path]:
    """Return the folders of runs below a folder, never through a link."""
    found: list[Path] = []
    looked_at = 0
    level = [root]
    for _ in range(DEEPEST):
        following: list[Path] = []
        for folder in level:
            for entry in _entries(folder):
                looked_at += 1
                if looked_at > MOST_ENTRIES or len(found) >= MOST_RUNS:
                    return sorted(found)
                if entry.name.startswith(".") or archive.RESERVED.fullmatch(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    path = Path(entry.path)
                    (found if runs.is_run(path) else following).append(path)
        level = following
    return sorted(found)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def find_link(folder: Path) -> str | None:
    """Return the name of a link among the files that a page would show; None if there is none.

    A page would show the file that it leads to, and that may be any file that the server can read.
    """
    for base, depth in ((folder, 0), *((path, 1) for path in _folders_in(folder))):
        for entry in _entries(base):
            is_link = entry.is_symlink()
            if is_link and not (depth == 0 and entry.name.endswith((".pth", ".dcp"))):
                return os.path.relpath(entry.path, folder)
    return None


def _folders_in(folder: Path) -> list[Path]:
    return [
        Path(entry.path)
        for entry in _entries(folder)
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(("old-", "."))
    ]
