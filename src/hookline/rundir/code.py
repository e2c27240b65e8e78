"""The code of the user that a run has imported, with its hashes, so that a replay can name a file that was changed."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from hookline.common.files import read_bytes
from hookline.rundir.origin import PACKAGE

#: The most files of code whose hashes are kept.
MOST_FILES = 200


def code_of(origin: dict[str, Any]) -> dict[str, str]:
    """Return the hash of each file of the user's code that this process has imported, by its path."""
    folder = Path(origin["folder"])
    beside = (folder / origin["file"]).parent if origin["kind"] in ("config", "script") and origin["file"] else folder
    roots = {os.path.abspath(folder), os.path.abspath(beside)}
    found = {}
    for file in sorted(_files_below(roots))[:MOST_FILES]:
        with suppress(OSError):
            found[file] = hash_of(Path(file))
    return found


def hash_of(file: Path) -> str:
    """Return the hash of a file of code."""
    return hashlib.sha256(read_bytes(file)).hexdigest()[:16]


def _files_below(roots: set[str]) -> Iterator[str]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        path = os.path.abspath(file) if isinstance(file, str) else ""
        own = path.endswith(".py") and not path.startswith((PACKAGE + os.sep, os.path.abspath(sys.prefix) + os.sep))
        if own and "site-packages" not in path and any(path.startswith(root + os.sep) for root in roots):
            yield path
