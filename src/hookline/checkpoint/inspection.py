"""Descriptions of checkpoints, for `hookline inspect`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from hookline.checkpoint import folders, frozen, seal, store
from hookline.checkpoint.shards import Stored
from hookline.checkpoint.survey import survey
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
    shown = [key for key in found if key not in ("meta", "position", frozen.KEY)]
    rows += [(LABELS.get(key, key), _describe_part(key, found[key])) for key in shown]
    if isinstance(found.get(frozen.KEY), Mapping):
        rows.append(("frozen", f"{len(found[frozen.KEY])} entries of the model are not in it, only their hashes"))
    use = "a run can resume from it" if note and note.complete else "only its weights can be used (load_from)"
    rows.append(("use", use))
    rows = [(escaped(name), escaped(text)) for name, text in rows]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in rows)


def describe_folder(path: Path) -> str:
    """Return one line per checkpoint, in the order of the run, the one that a resume takes, and why not a newer one."""
    found = survey(path)
    if found.refusal:
        raise StorageError(found.refusal)
    lines, width = [], max(len(escaped(each.name)) for each in found.checkpoints)
    for each in found.checkpoints:
        where = f"iteration {'?' if each.step is None else each.step}"
        size = format_size(each.size)
        lines.append(f"{escaped(each.name):<{width}}  {size:>9}  {where:<18}  {escaped(each.condition)}")
    last = (
        "a run cannot resume from any of these"
        if found.chosen is None
        else f"a run with --resume continues from {escaped(found.chosen)}"
    )
    reasons = [f"  not from {escaped(name)}, {escaped(why)}" for name, why in found.passed_over.items()]
    return "\n".join([*lines, last, *reasons])


def checkpoint_data(path: Path) -> dict[str, Any]:
    """Return the contents, origin and integrity of a checkpoint as data for JSON; refuse a damaged one."""
    found, note = store.read(path, sealed=False, whole=False), seal.read_note(path)
    return {
        "file": str(path),
        "size": folders.size_of(path),
        "sealed": note is not None,
        "resumable": note is not None and note.complete,
        "meta": found.get("meta"),
        "position": found.get("position"),
        "parts": {key: _describe_part(key, found[key]) for key in found if key not in ("meta", "position")},
    }


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
    one = isinstance(validations, int) and validations == 1  # a changed checkpoint may have anything here
    text = f"after {epochs} epochs, {iterations} iterations, {validations} validation{'' if one else 's'}"
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
