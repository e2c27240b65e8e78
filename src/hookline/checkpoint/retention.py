"""Retention of checkpoints: keep the newest in a folder and remove the others."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from hookline.checkpoint import folders
from hookline.checkpoint.seal import read_note
from hookline.common.files import real_path, storage_errors


def by_age(folder: Path, names: re.Pattern[str]) -> list[Path]:
    """Return the checkpoints in a folder whose names match, in the order of the run."""
    found = [
        (note.order, path)
        for path in folder.iterdir()
        if names.fullmatch(path.name) and folders.exists(path) and (note := read_note(path)) is not None
    ]
    return [path for _, path in sorted(found)]


def keep_newest(number: int, names: re.Pattern[str], saved: Path, kept: Collection[Path] = ()) -> None:
    """Keep the newest `number` checkpoints whose names match, and `saved` and `kept`; remove the others beside it.

    They are found by listing the folder, so checkpoints that a killed run left behind are removed as well.
    """
    with storage_errors(saved.parent, "removed", inside=True):
        for path in by_age(saved.parent, names)[:-number]:
            if path != saved and path not in kept:
                folders.remove(path)


def clean_up(number: int, names: re.Pattern[str], folder: Path, resumed: Path, kept: Collection[Path] = ()) -> None:
    """Remove the checkpoints that a killed run had no time to remove. The one that is resumed stays."""
    found = by_age(folder, names)
    if found:
        same = [path for path in found if real_path(path) == real_path(resumed)]
        keep_newest(number, names, (same or found)[-1], kept)
