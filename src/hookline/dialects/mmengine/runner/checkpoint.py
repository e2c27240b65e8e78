"""Read weights from checkpoint files of hookline, MMEngine or other programs, and write checkpoint files."""

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
from hookline.checkpoint.compatibility import misfits, with_versions
from hookline.common.torch_private import set_versions, versions_of
from hookline.dialects.mmengine.hooks.storage import refuse_other_storage
from hookline.dialects.mmengine.model.test_time_aug import BaseTTAModel
from hookline.dialects.mmengine.not_included import not_included
from hookline.dialects.mmengine.runner import foreign
from hookline.errors import StorageError
from hookline.state.snapshot import load_fitting
from hookline.strategies import unwrap

log = logging.getLogger("hookline")

#: Pattern and replacement pairs that are applied to the names of weights before they are loaded.
REVISE = [(r"^module\.", "")]


class StateDictError(StorageError, RuntimeError):
    """The weights do not fit the model."""


class NoFileError(StorageError, FileNotFoundError):
    """There is no such file."""


class NoWeightsError(StorageError, AssertionError):
    """A file has none of the weights that are looked for."""


def read_checkpoint(filename: Any) -> dict[str, Any]:
    """Read a checkpoint file onto the CPU, without running any code in it."""
    if re.match(r"^\w+://", str(filename)):
        raise StorageError(f"{filename} is not on the local disk; download it, and pass the path of the file")
    return foreign.read(Path(filename))


def weights_of(checkpoint: Mapping[str, Any], revise_keys: Sequence[tuple[str, str]] = tuple(REVISE)) -> dict[str, Any]:
    """Return the weights in a checkpoint, with `revise_keys` applied to their names."""
    state = checkpoint.get("state_dict", checkpoint)
    revised: OrderedDict[str, Any] = OrderedDict()
    for name, value in state.items():
        for pattern, replacement in revise_keys:
            name = re.sub(pattern, replacement, name)
        revised[name] = value
    return with_versions(revised, state)


def inside_of(state: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    """Return the weights of a model with the names that they have inside a BaseTTAModel, if it is one."""
    if not isinstance(model, BaseTTAModel):
        return state
    named = OrderedDict((f"module.{name}", value) for name, value in state.items())
    versions = versions_of(state)
    if versions is not None:
        set_versions(named, {f"module.{name}".rstrip("."): version for name, version in versions.items()})
    return named


class CheckpointLoader:
    """Reads checkpoint files."""

    @classmethod
    def load_checkpoint(cls, filename: Any, map_location: Any = None, logger: Any = None) -> dict[str, Any]:
        """Read a checkpoint file; see `read_checkpoint`."""
        return _load_checkpoint(filename, map_location, logger)


def load_from_local(filename: Any, map_location: Any = None) -> dict[str, Any]:
    """Read a checkpoint file of this machine; `~` is the home folder."""
    path = Path(filename).expanduser()
    if not path.is_file():
        raise NoFileError(f"{path} is not a file")
    return read_checkpoint(path)


def _load_checkpoint(filename: Any, map_location: Any = None, logger: Any = None) -> dict[str, Any]:
    return read_checkpoint(filename)


def _load_checkpoint_with_prefix(prefix: str, filename: Any, map_location: Any = None) -> dict[str, Any]:
    """Return the weights of one part of a model: those whose names start with a prefix, with the prefix removed."""
    start = prefix if prefix.endswith(".") else f"{prefix}."
    found = {
        name.removeprefix(start): value
        for name, value in weights_of(read_checkpoint(filename)).items()
        if name.startswith(start)
    }
    if not found:
        raise NoWeightsError(f"{filename} has no weights whose names start with '{start}'")
    return found


def load_checkpoint(
    model: nn.Module,
    filename: Any,
    map_location: Any = None,
    strict: bool = False,
    logger: Any = None,
    revise_keys: Sequence[tuple[str, str]] = tuple(REVISE),
) -> dict[str, Any]:
    """Load the weights of a file into a model and return the checkpoint.

    Weights that do not fit are reported, or refused if `strict`. No code in the file is run.
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
    model = unwrap(model)
    state = inside_of(weights_of(checkpoint, revise_keys), model)
    if strict and (problems := misfits(model, state)):
        raise StateDictError(f"{path} does not fit the model:\n  " + "\n  ".join(problems))
    left_out = load_fitting(model, state, path)
    if left_out:
        log.warning("some weights in %s do not fit the model:\n  %s", path, "\n  ".join(left_out))


def load_state_dict(module: nn.Module, state_dict: Mapping[str, Any], strict: bool = False, logger: Any = None) -> None:
    """Load weights into a module. Weights that do not fit are reported, or refused if `strict`."""
    _load_checkpoint_to_model(module, {"state_dict": state_dict}, strict, logger, ())


def get_state_dict(
    module: nn.Module, destination: Any = None, prefix: str = "", keep_vars: bool = False
) -> dict[str, Any]:
    """Return the weights of a module, without the wrapper around it."""
    state = unwrap(module).state_dict(prefix=prefix, keep_vars=keep_vars)
    if destination is None:
        return state
    destination.update(state)
    return destination  # type: ignore[no-any-return]  # the caller's own dict type


def weights_to_cpu(state_dict: Mapping[str, Tensor]) -> OrderedDict[str, Tensor]:
    """Return the weights on the CPU."""
    return OrderedDict(
        (name, value.cpu() if isinstance(value, Tensor) else value) for name, value in state_dict.items()
    )


def save_checkpoint(
    checkpoint: Mapping[str, Any], filename: Any, file_client_args: Any = None, backend_args: Any = None
) -> None:
    """Write a dict to a file atomically."""
    refuse_other_storage("save_checkpoint", file_client_args, backend_args)
    path = Path(filename)
    path.parent.mkdir(parents=True, exist_ok=True)
    with store.replacing(path) as file:
        # An OrderedDict of weights has the versions of the modules, as an attribute.
        torch.save(checkpoint if isinstance(checkpoint, OrderedDict) else dict(checkpoint), file)


def find_latest_checkpoint(path: Any) -> str | None:
    """Return the newest checkpoint in a folder, as recorded in its `last_checkpoint` file, or None."""
    pointer = Path(path) / store.POINTER
    if not pointer.is_file():
        log.warning("there is no %s in %s, so its newest checkpoint is unknown", store.POINTER, path)
        return None
    text = pointer.read_text(encoding="utf-8").strip()
    try:
        return str(Path(path) / json.loads(text)["name"])
    except (ValueError, KeyError, TypeError):
        return text  # MMEngine writes the path itself


DEFAULT_CACHE_DIR, ENV_MMENGINE_HOME, ENV_XDG_CACHE_HOME = "~/.cache", "MMENGINE_HOME", "XDG_CACHE_HOME"
not_included(
    globals(),
    *("get_deprecated_model_names", "get_external_models", "get_mmcls_models", "get_torchvision_models"),
    *("load_from_ceph", "load_from_http", "load_from_mmcls", "load_from_openmmlab", "load_from_pavi"),
    "load_from_torchvision",
)
