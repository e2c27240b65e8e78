"""Export of a checkpoint's weights as safetensors, for use elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hookline.checkpoint import frozen, seal, store
from hookline.checkpoint.shards import Stored
from hookline.common.files import create_folder, storage_errors
from hookline.errors import ConfigError, StorageError


class Exported(NamedTuple):
    """A finished export: the file, its number of tensors and bytes, and whether the checkpoint has averaged weights."""

    path: Path
    tensors: int
    size: int
    has_average: bool


def export(
    path: Path,
    out: Path | None = None,
    *,
    averaged: bool = False,
    force: bool = False,
    base: Path | None = None,
    trained_only: bool = False,
) -> Exported:
    """Write the model's weights, or the averaged ones, to a safetensors file.

    If `out` ends with `.pth`, write the whole checkpoint to one file, as a single process saves it. A checkpoint with
    only the trained parameters is completed with the weights of `base`, or exported without them if `trained_only`.
    """
    from safetensors.torch import save

    target = out if out is not None else path.with_name(path.stem + ("-averaged" if averaged else "") + ".safetensors")
    if os.path.lexists(target) and not force:
        raise ConfigError(f"{target} already exists; choose another file with --out, or overwrite it with --force")
    if target.suffix == ".pth":
        return _export_whole(path, target, averaged, base)
    checkpoint = store.read(path, sealed=False, whole=False)
    _complete(checkpoint, path, base, trained_only)
    state = find_averaged_weights(checkpoint, path) if averaged else checkpoint.get("state_dict", checkpoint)
    weights = collect_tensors(state, path)
    meta = checkpoint.get("meta")
    about = {
        key: str(meta[key]) for key in ("experiment_name", "epoch", "iter") if isinstance(meta, dict) and key in meta
    }
    data = save(weights, metadata={"format": "pt", "weights": "averaged" if averaged else "raw", **about})
    with storage_errors(target):
        create_folder(target.parent)
    with store.replacing(target) as file:
        file.write(data)
    return Exported(target, len(weights), len(data), bool(averages_in(checkpoint)))


def _complete(checkpoint: dict[str, Any], path: Path, base: Path | None, trained_only: bool) -> None:
    """Add the weights of another file to a checkpoint with only the trained parameters."""
    if not frozen.is_partial(checkpoint):
        if base is not None or trained_only:
            option = "--base" if base is not None else "--trained-only"
            raise ConfigError(f"{option} is for checkpoints with only the trained parameters, but {path} has all")
        return
    if base is not None:
        found = store.read(base, sealed=False)
        weights = found.get("state_dict", found.get("model", found))
        frozen.complete(checkpoint, weights if isinstance(weights, Mapping) else {}, path)
    elif not trained_only:
        raise ConfigError(
            f"{path} has only the trained parameters (params: trainable); to export the whole model, add the file with "
            "the weights that it began with: --base FILE; to export only these parameters: --trained-only"
        )


def _export_whole(path: Path, target: Path, averaged: bool, base: Path | None) -> Exported:
    """Write a whole checkpoint, which may be a folder, to one file that any number of processes can resume from."""
    if averaged:
        raise ConfigError(f"averaged weights are exported as safetensors, but {target.name} ends with .pth")
    checkpoint = store.read(path, sealed=True)
    _complete(checkpoint, path, base, trained_only=False)
    note = seal.read_note(path)
    assert note is not None, "it was read with its seal"
    store.write_verified(checkpoint, target, note)
    tensors = sum(isinstance(value, Tensor) for value in checkpoint["state_dict"].values())
    return Exported(target, tensors, target.stat().st_size, bool(averages_in(checkpoint)))


def find_averaged_weights(checkpoint: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """Return the averaged weights that a hook has saved."""
    averages = averages_in(checkpoint)
    if not averages:
        raise StorageError(f"{path} has no averaged weights: its run had no EMAHook")
    evaluated: Mapping[str, Any] = averages[
        list(averages)[-1]
    ]  # with several hooks, evaluation used the last one's weights
    return evaluated


def averages_in(checkpoint: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the averaged weights in a checkpoint, by the name of the hook that saved them."""
    states = checkpoint.get("hooks")
    states = states if isinstance(states, dict) else {}
    return {
        name: state["averaged"] for name, state in states.items() if isinstance(state, dict) and "averaged" in state
    }


def collect_tensors(state: Any, path: Path) -> dict[str, Tensor]:
    """Return the tensors of a state by name, without shared memory, as safetensors requires."""
    if isinstance(state, Mapping):
        state = {name: value.read() if isinstance(value, Stored) else value for name, value in state.items()}
    if not isinstance(state, Mapping) or not any(isinstance(value, Tensor) for value in state.values()):
        raise StorageError(f"{path} has no weights")
    weights = {str(name): value for name, value in state.items() if isinstance(value, Tensor)}
    for name, value in weights.items():
        if value.layout is not torch.strided or value.is_quantized:
            kind = "quantized" if value.is_quantized else "sparse"
            raise StorageError(f"{path} cannot be exported: {name} is a {kind} tensor, which safetensors cannot store")
    return {name: value.contiguous().clone() for name, value in weights.items()}
