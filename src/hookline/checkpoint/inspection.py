"""Descriptions of checkpoints, for `hookline inspect`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from hookline.checkpoint import folders, seal, store
from hookline.checkpoint.shards import Stored
from hookline.common.escape import escaped
from hookline.errors import StorageError

#: Labels for the parts whose keys are unclear.
LABELS = {"hooks": "hook states", "metric_states": "metric states", "message_hub": "metrics", "writers": "writers"}


def describe_checkpoint(path: Path) -> str:
    """Return the contents, origin, hooks and integrity of a checkpoint as text; refuse a damaged one."""
    found = store.read(path, sealed=False, whole=False)
    note = seal.read_note(path)
    intact = "intact: its bytes match its SHA-256" if note else "cannot be verified: it was not written by hookline"
    kind = "folder" if path.is_dir() else "file"
    rows = [(kind, f"{path}, {format_size(folders.size_of(path))}"), ("", intact)]
    meta, position = found.get("meta"), found.get("position")
    if isinstance(meta, Mapping):
        rows += _describe_run(meta)
    if isinstance(position, Mapping):
        rows.append(("position", _describe_position(position)))
    rows += [
        (LABELS.get(key, key), _describe_part(key, found[key])) for key in found if key not in ("meta", "position")
    ]
    use = "a run can resume from it" if note and note.complete else "only its weights can be used (load_from)"
    rows.append(("use", use))
    rows = [(escaped(name), escaped(text)) for name, text in rows]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in rows)


def describe_folder(path: Path) -> str:
    """Return one line per checkpoint, in the order of the run, and the checkpoint that a resume would use."""
    found = filter(folders.exists, folders.find_all(path))
    files = sorted(found, key=lambda file: ((seal.read_note(file) or seal.Note(-1)).order, file.name))
    if not files:
        raise StorageError(f"there is no checkpoint in {path}")
    lines, width = [], max(len(escaped(file.name)) for file in files)
    for file in files:
        note, problem = seal.read_note(file), seal.damage(file)
        kind = problem or ("intact" if note is not None and note.complete else f"intact, saved {store.find_gap(file)}")
        where = f"iteration {note.step if note else '?'}"
        size = format_size(folders.size_of(file))
        lines.append(f"{escaped(file.name):<{width}}  {size:>9}  {where:<18}  {escaped(kind)}")
    newest = store.newest_intact([path], lambda text: None)
    last = (
        "a run cannot resume from any of these"
        if newest is None
        else f"a run with --resume continues from {escaped(newest.name)}"
    )
    return "\n".join([*lines, last])


def _describe_run(meta: Mapping[str, Any]) -> list[tuple[str, str]]:
    versions = ", ".join(f"{name} {meta[name]}" for name in ("hookline", "torch", "numpy", "python") if name in meta)
    hooks = meta.get("hooks", [])
    surroundings = f"{meta.get('device')}, threads: {meta.get('threads')}, processes: {meta.get('world_size')}"
    return [
        ("run", f"{meta.get('experiment_name')}, seed {meta.get('seed')}"),
        ("saved", f"{meta.get('time')}, with {versions}"),
        ("on", surroundings),
        ("hooks", ", ".join(map(str, hooks)) if isinstance(hooks, list) else str(hooks)),
    ]


def _describe_position(position: Mapping[str, Any]) -> str:
    epochs, iterations, validations = (position.get(key) for key in ("epoch", "iter", "validations"))
    text = f"after {epochs} epochs, {iterations} iterations, {validations} validations"
    batch, stopped = position.get("batch"), position.get("stopped")
    if isinstance(batch, int) and batch:
        text += f", at batch {batch} of its epoch"
    if isinstance(stopped, str) and stopped:
        text += f"; stopped: {stopped}"
    return text


def _describe_part(key: str, value: Any) -> str:
    """Return the size of a part and its most useful details."""
    tensors = list(_tensors(value))
    memory = format_size(sum(tensor.numel() * tensor.element_size() for tensor in tensors))
    if key == "state_dict":
        return f"{len(tensors)} tensors, {sum(tensor.numel() for tensor in tensors):,} numbers, {memory}"
    if key in ("hooks", "message_hub", "metric_states", "writers", "rng") and isinstance(value, Mapping):
        names = value.get("scalars", value) if key == "message_hub" else value
        names = names if isinstance(names, Mapping) else value
        return f"{', '.join(map(str, names)) or 'nothing'}{f'; {memory}' if tensors else ''}"
    if value is None:
        return "none"
    if key == "param_schedulers" and isinstance(value, list):
        return f"{len(value)}"
    return f"{len(tensors)} tensors, {memory}" if tensors else type(value).__name__


def _tensors(value: Any) -> Any:
    if isinstance(value, (Tensor, Stored)):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _tensors(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _tensors(inner)


def format_size(count: int) -> str:
    """Return a number of bytes in a readable unit."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"
