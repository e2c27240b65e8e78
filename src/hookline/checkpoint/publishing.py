"""Publishing: parts of a checkpoint as a file of their own, named after its SHA-256."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from hookline.checkpoint import seal, store


def all_of(checkpoints: Iterable[Path], keys: Sequence[str]) -> list[Path]:
    """Publish each, as `<name>-<8 hex digits>.pth` beside it; what was published of others before goes."""
    wanted = [path for path in dict.fromkeys(checkpoints) if path.is_file()]
    published = [one(path, keys) for path in wanted]
    for folder in {path.parent for path in wanted}:
        for path in folder.glob("*.pth"):
            match = re.fullmatch(r"(.+)-[0-9a-f]{8}\.pth", path.name)
            if match and path not in published and _is_ours(path):
                path.unlink()
    return published


def one(path: Path, keys: Sequence[str]) -> Path:
    """Publish parts of one checkpoint; gives where they are."""
    checkpoint = store.read(path, sealed=True)
    note = seal.read_note(path)
    assert note is not None, "it was read with its seal"
    unnamed = path.with_name(f".{path.name}.publishing{store.PARTIAL}")
    sha256 = store.write({key: checkpoint[key] for key in keys}, unnamed, seal.Note(note.step, note.validations))
    named = path.with_name(f"{path.stem}-{sha256[:8]}.pth")
    os.replace(unnamed, named)
    return named


def _is_ours(path: Path) -> bool:
    """Whether it was published, and is no checkpoint that a user's template has given such a name."""
    note = seal.read_note(path)
    return note is not None and not note.complete
