"""Checkpoints with entries that no run saves, for tests of what a resume refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hookline.checkpoint import seal, store


def spoil(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change all checkpoints in a folder, and seal them again."""
    for path in folder.glob("*.pth"):
        note, checkpoint = seal.read_note(path), store.read(path, sealed=True)
        assert note is not None
        change(checkpoint)
        store.point_to(path, folder, store.write_verified(checkpoint, path, note), note.step)
