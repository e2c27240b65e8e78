"""The code of the user that a run has imported, with its hashes, so that a replay can name a file that was changed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from hookline.common.files import read_bytes
from hookline.rundir.origin import PACKAGE

#: The most files of code whose hashes are kept.
MOST_FILES = 200
#: The most seconds to wait for git.
LONGEST_WAIT = 5


def code_of(origin: dict[str, Any]) -> dict[str, str]:
    """Return the hash of each file of the user's code that this process has imported, by its path."""
    folder = Path(origin["folder"])
    beside = (folder / origin["file"]).parent if origin["kind"] in ("config", "script") and origin["file"] else folder
    roots = {os.path.abspath(folder), os.path.abspath(beside)}
    found = {}
    for file in sorted(_files_below(roots))[:MOST_FILES]:
        with suppress(OSError):
            state = os.stat(file)
            found[file] = _hash_of_version(file, state.st_mtime_ns, state.st_size)
    return found


@lru_cache(maxsize=1000)
def _hash_of_version(file: str, changed_at: int, size: int) -> str:
    return hash_of(Path(file))


def hash_of(file: Path) -> str:
    """Return the hash of a file of code."""
    return hashlib.sha256(read_bytes(file)).hexdigest()[:16]


def changed(then: Mapping[str, str], since: str) -> list[str]:
    """Return the files of code that are not as they were, as lines. `since` says when that was."""
    found = []
    for file, before in then.items():
        try:
            what = "was changed" if hash_of(Path(file)) != before else ""
        except (OSError, ValueError):  # the name may come from anyone
            what = "is missing"
        found += [f"{file} {what} since {since}"] * bool(what)
    return found


@lru_cache(maxsize=8)
def revision_of(folder: str) -> dict[str, Any] | None:
    """Return the git revision of a folder, and whether its files are as in it; None outside a repository.

    It is asked for once per process: the code that runs is as it was imported.
    """
    if not any(os.path.exists(os.path.join(each, ".git")) for each in (folder, *map(str, Path(folder).parents))):
        return None
    words = ["git", "-c", "core.fsmonitor=false", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        found = subprocess.run(
            words,
            cwd=folder,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            timeout=LONGEST_WAIT,
            check=True,
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):  # without git, or in a repository of others
        return None
    revision = next((line.split()[-1] for line in found if line.startswith("# branch.oid ")), "")
    return {"revision": revision, "clean": all(line.startswith("#") for line in found)}


def _files_below(roots: set[str]) -> Iterator[str]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        path = os.path.abspath(file) if isinstance(file, str) else ""
        own = path.endswith(".py") and not path.startswith((PACKAGE + os.sep, os.path.abspath(sys.prefix) + os.sep))
        if own and "site-packages" not in path and any(path.startswith(root + os.sep) for root in roots):
            yield path
