"""The weights of a checkpoint for use elsewhere, as safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from hookline.checkpoint import store
from hookline.errors import ConfigError, StorageError


def export(
    path: Path, out: Path | None = None, *, averaged: bool = False, force: bool = False
) -> tuple[Path, int, int]:
    """Write the model's weights, or the averaged ones; gives where they are, how many tensors, how many bytes."""
    from safetensors.torch import save

    target = out if out is not None else path.with_name(path.stem + ("-averaged" if averaged else "") + ".safetensors")
    if target.exists() and not force:
        raise ConfigError(f"{target} exists already; choose another place with --out, or replace it with --force")
    checkpoint = store.read(path, sealed=False)
    state = averaged_weights(checkpoint, path) if averaged else checkpoint.get("state_dict", checkpoint)
    weights = tensors_of(state, path)
    meta = checkpoint.get("meta")
    about = {
        key: str(meta[key]) for key in ("experiment_name", "epoch", "iter") if isinstance(meta, dict) and key in meta
    }
    data = save(weights, metadata={"format": "pt", "weights": "averaged" if averaged else "raw", **about})
    target.parent.mkdir(parents=True, exist_ok=True)
    with store.replacing(target) as file:
        file.write(data)
    return target, len(weights), len(data)


def averaged_weights(checkpoint: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """The averaged weights that a hook has saved."""
    states = checkpoint.get("hooks")
    states = states if isinstance(states, dict) else {}
    found = {
        name: state["averaged"] for name, state in states.items() if isinstance(state, dict) and "averaged" in state
    }
    if not found:
        raise StorageError(f"{path} has no averaged weights: no EMAHook was in its run")
    measured: Mapping[str, Any] = found[list(found)[-1]]  # of several, the last is the one that was measured
    return measured


def tensors_of(state: Any, path: Path) -> dict[str, Tensor]:
    """The tensors of a state by name, each in memory of its own, as safetensors wants them."""
    if not isinstance(state, Mapping) or not any(isinstance(value, Tensor) for value in state.values()):
        raise StorageError(f"{path} has no weights")
    return {str(name): value.contiguous().clone() for name, value in state.items() if isinstance(value, Tensor)}
