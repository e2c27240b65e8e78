"""Publishing: selected parts of a checkpoint in a separate file, named after its SHA-256."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from hookline.checkpoint import folders, frozen, seal, store
from hookline.common.files import PARTIAL, storage_errors


def all_of(checkpoints: Iterable[Path], keys: Sequence[str]) -> list[Path]:
    """Publish each checkpoint as `<name>-<8 hex digits>.pth` beside it, and remove all older published files there."""
    wanted = [path for path in dict.fromkeys(checkpoints) if folders.exists(path)]
    published = [publish(path, keys) for path in wanted]
    for folder in {path.parent for path in wanted}:
        with storage_errors(folder, "removed", inside=True):
            for path in folder.glob("*.pth"):
                match = re.fullmatch(r"(.+)-[0-9a-f]{8}\.pth", path.name)
                if match and path not in published and _is_published(path):
                    path.unlink()
    return published


def publish(path: Path, keys: Sequence[str]) -> Path:
    """Publish parts of one checkpoint and return the new file."""
    checkpoint = store.read(path, sealed=True)
    note = seal.read_note(path)
    assert note is not None, "it was read with its seal"
    unnamed = path.with_name(f".{path.name}.publishing{PARTIAL}")
    if frozen.is_partial(checkpoint) and "state_dict" in keys:  # it says what the weights have to be added to
        keys = [*keys, *({frozen.KEY} - set(keys))]
    sha256 = store.write_verified(
        {key: checkpoint[key] for key in keys}, unnamed, seal.Note(note.step, note.validations)
    )
    named = path.with_name(f"{path.stem}-{sha256[:8]}.pth")
    with storage_errors(named):
        os.replace(unnamed, named)
    return named


def _is_published(path: Path) -> bool:
    """Return whether it is a published file, and not a checkpoint whose template happens to produce such a name."""
    note = seal.read_note(path)
    return note is not None and not note.complete
