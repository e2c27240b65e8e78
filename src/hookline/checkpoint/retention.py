"""Order in a folder of checkpoints: which are the newest, and the others removed."""

from __future__ import annotations

import re
from pathlib import Path

from hookline.checkpoint.seal import read_note


def by_age(folder: Path, names: re.Pattern[str]) -> list[Path]:
    """The checkpoints in a folder that are called so, those that are later in the run last."""
    found = [
        (note.order, path)
        for path in folder.iterdir()
        if names.fullmatch(path.name) and (note := read_note(path)) is not None
    ]
    return [path for _, path in sorted(found)]


def keep_newest(number: int, names: re.Pattern[str], saved: Path) -> None:
    """Remove all but the newest so many that are called so beside one that was just saved, which stays in any case.

    They are found by listing the folder, so nothing is left behind after a kill.
    """
    for path in by_age(saved.parent, names)[:-number]:
        if path != saved:
            path.unlink(missing_ok=True)
