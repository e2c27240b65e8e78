"""A checkpoint in words, for `hookline inspect`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from hookline.checkpoint import seal, store
from hookline.errors import StorageError

#: What a part is called, where its key would say too little.
NAMES = {"hooks": "hook states", "message_hub": "recorded", "writers": "records of"}


def checkpoint(path: Path) -> str:
    """What one holds, from when, intact or not, which hooks; a damaged one is refused."""
    found = store.read(path, sealed=False)
    sealed = seal.read_note(path) is not None
    intact = (
        "intact: its bytes match its SHA-256" if sealed else "not known whether intact: hookline has not written it"
    )
    rows = [("file", f"{path}, {size(path.stat().st_size)}"), ("", intact)]
    meta, at = found.get("meta"), found.get("position")
    if isinstance(meta, Mapping):
        rows += _about(meta)
    if isinstance(at, Mapping):
        rows.append(("stands", _where(at)))
    rows += [(NAMES.get(key, key), _part(key, found[key])) for key in found if key not in ("meta", "position")]
    missing = [key for key in ("optimizer", "param_schedulers", "position", "rng") if key not in found]
    can = "a run can go on from it" if not missing and sealed else "only its weights can be used (load_from)"
    rows.append(("use", can))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in rows)


def folder(path: Path) -> str:
    """Each checkpoint of a run in one line, in the order of the run, and which a resume would take."""
    found = [file for file in path.glob("*.pth") if file.is_file()]
    files = sorted(found, key=lambda file: ((seal.read_note(file) or seal.Note(-1)).order, file.name))
    if not files:
        raise StorageError(f"there is no checkpoint in {path}")
    lines, width = [], max(len(file.name) for file in files)
    for file in files:
        note, problem = seal.read_note(file), seal.damage(file)
        kind = problem or ("intact" if note is not None and note.complete else "intact, without its optimizer")
        where = f"iteration {note.step if note else '?'}"
        lines.append(f"{file.name:<{width}}  {size(file.stat().st_size):>9}  {where:<18}  {kind}")
    newest = store.newest_intact([path], lambda text: None)
    return "\n".join([*lines, f"a resume goes on from {newest.name}" if newest is not None else "nothing to resume"])


def _about(meta: Mapping[str, Any]) -> list[tuple[str, str]]:
    versions = ", ".join(f"{name} {meta[name]}" for name in ("hookline", "torch", "numpy", "python") if name in meta)
    hooks = meta.get("hooks", [])
    surroundings = f"{meta.get('device')}, {meta.get('threads')} threads, {meta.get('world_size')} process(es)"
    return [
        ("run", f"{meta.get('experiment_name')}, seed {meta.get('seed')}"),
        ("saved", f"{meta.get('time')}, with {versions}"),
        ("on", surroundings),
        ("hooks", ", ".join(map(str, hooks)) if isinstance(hooks, list) else str(hooks)),
    ]


def _where(at: Mapping[str, Any]) -> str:
    text = f"after {at.get('epoch')} epochs, {at.get('iter')} iterations, {at.get('validations')} validations"
    if at.get("batch"):
        text += f", at batch {at['batch']} of its epoch"
    if at.get("stopped"):
        text += f"; stopped: {at['stopped']}"
    return text


def _part(key: str, value: Any) -> str:
    """What a part holds: its size, and what people look for in it."""
    tensors = list(_tensors(value))
    memory = size(sum(tensor.numel() * tensor.element_size() for tensor in tensors))
    if key == "state_dict":
        return f"{len(tensors)} tensors, {sum(tensor.numel() for tensor in tensors):,} numbers, {memory}"
    if key in ("hooks", "message_hub", "writers", "rng") and isinstance(value, Mapping):
        names = value.get("scalars", value) if key == "message_hub" else value
        return f"{', '.join(map(str, names)) or 'nothing'}{f'; {memory}' if tensors else ''}"
    if value is None:
        return "none"
    if key == "param_schedulers" and isinstance(value, list):
        return f"{len(value)}"
    return f"{len(tensors)} tensors, {memory}" if tensors else type(value).__name__


def _tensors(value: Any) -> Any:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _tensors(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _tensors(inner)


def size(count: int) -> str:
    """A number of bytes for people."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"
