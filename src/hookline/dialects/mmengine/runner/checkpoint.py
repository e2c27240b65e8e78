"""Checkpoints as files: reading weights, whoever wrote them, and writing one's own."""

from __future__ import annotations

import json
import logging
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hookline.checkpoint import store
from hookline.checkpoint.compatibility import misfits
from hookline.dialects.mmengine.hooks.storage import refuse_other_storage
from hookline.dialects.mmengine.runner import foreign
from hookline.engine.snapshot import load_fitting
from hookline.errors import StorageError
from hookline.strategies import unwrap

log = logging.getLogger("hookline")

#: Names of weights are changed by these patterns before they are loaded.
REVISE = [(r"^module\.", "")]


class StateDictError(StorageError, RuntimeError):
    """Weights that do not fit a model."""


def read_checkpoint(filename: Any) -> dict[str, Any]:
    """What is in a file, on the CPU; nothing in it is run."""
    if re.match(r"^\w+://", str(filename)):
        raise StorageError(f"{filename} is not on this disk; fetch it, and give the file")
    return foreign.read(Path(filename))


def weights_of(checkpoint: Mapping[str, Any], revise_keys: Sequence[tuple[str, str]] = tuple(REVISE)) -> dict[str, Any]:
    """The weights in a checkpoint, with their names revised."""
    state = checkpoint.get("state_dict", checkpoint)
    revised = {}
    for name, value in state.items():
        for pattern, replacement in revise_keys:
            name = re.sub(pattern, replacement, name)
        revised[name] = value
    return revised


class CheckpointLoader:
    """Reads files."""

    @classmethod
    def load_checkpoint(cls, filename: Any, map_location: Any = None, logger: Any = None) -> dict[str, Any]:
        """What is in a file; see `read_checkpoint`."""
        return _load_checkpoint(filename, map_location, logger)


def _load_checkpoint(filename: Any, map_location: Any = None, logger: Any = None) -> dict[str, Any]:
    return read_checkpoint(filename)


def _load_checkpoint_with_prefix(prefix: str, filename: Any, map_location: Any = None) -> dict[str, Any]:
    """The weights in a file whose names begin with a prefix, without it: those of a part of a model."""
    start = prefix if prefix.endswith(".") else f"{prefix}."
    found = {
        name.removeprefix(start): value
        for name, value in weights_of(read_checkpoint(filename)).items()
        if name.startswith(start)
    }
    if not found:
        raise StorageError(f"no weights in {filename} begin with '{start}'")
    return found


def load_checkpoint(
    model: nn.Module,
    filename: Any,
    map_location: Any = None,
    strict: bool = False,
    logger: Any = None,
    revise_keys: Sequence[tuple[str, str]] = tuple(REVISE),
) -> dict[str, Any]:
    """Load the weights of a file into a model, and give the checkpoint.

    What does not fit is said, or, if strict, refused. Nothing in the file is run.
    """
    checkpoint = read_checkpoint(filename)
    _load_checkpoint_to_model(model, checkpoint, strict, logger, revise_keys, str(filename))
    return checkpoint


def _load_checkpoint_to_model(
    model: nn.Module,
    checkpoint: Mapping[str, Any],
    strict: bool = False,
    logger: Any = None,
    revise_keys: Sequence[tuple[str, str]] = tuple(REVISE),
    path: str = "the checkpoint",
) -> None:
    state, model = weights_of(checkpoint, revise_keys), unwrap(model)
    if strict and (problems := misfits(model, state)):
        raise StateDictError(f"{path} does not fit the model:\n  " + "\n  ".join(problems))
    left_out = load_fitting(model, state, path)
    if left_out:
        log.warning("not everything in %s fits the model:\n  %s", path, "\n  ".join(left_out))


def load_state_dict(module: nn.Module, state_dict: Mapping[str, Any], strict: bool = False, logger: Any = None) -> None:
    """Load weights into a module; what does not fit is said, or, if strict, refused."""
    _load_checkpoint_to_model(module, {"state_dict": state_dict}, strict, logger, ())


def get_state_dict(
    module: nn.Module, destination: Any = None, prefix: str = "", keep_vars: bool = False
) -> dict[str, Any]:
    """The weights of a module, without what is around it."""
    state = unwrap(module).state_dict(prefix=prefix, keep_vars=keep_vars)
    if destination is None:
        return state
    destination.update(state)
    return destination  # type: ignore[no-any-return]  # whatever dict was given


def weights_to_cpu(state_dict: Mapping[str, Tensor]) -> OrderedDict[str, Tensor]:
    """Weights on the CPU."""
    return OrderedDict(
        (name, value.cpu() if isinstance(value, Tensor) else value) for name, value in state_dict.items()
    )


def save_checkpoint(
    checkpoint: Mapping[str, Any], filename: Any, file_client_args: Any = None, backend_args: Any = None
) -> None:
    """Write a dict to a file, which is there whole or not at all."""
    refuse_other_storage("save_checkpoint", file_client_args, backend_args)
    path = Path(filename)
    path.parent.mkdir(parents=True, exist_ok=True)
    with store.replacing(path) as file:
        torch.save(dict(checkpoint), file)


def find_latest_checkpoint(path: Any) -> str | None:
    """The newest checkpoint of a folder, as `last_checkpoint` in it says; None where there is none."""
    pointer = Path(path) / store.POINTER
    if not pointer.is_file():
        log.warning("there is no %s in %s, so its newest checkpoint is not known", store.POINTER, path)
        return None
    said = pointer.read_text(encoding="utf-8").strip()
    try:
        return str(Path(path) / json.loads(said)["name"])
    except (ValueError, KeyError, TypeError):
        return said  # as MMEngine writes it: the path itself
