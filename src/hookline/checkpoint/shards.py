"""The tensors of a sharded checkpoint: taken out of the tree of states, described, verified and read back.

In memory, a checkpoint with sharded tensors has None in their places, and this process's part of each in `shards`. In
the sealed file of its folder, `shards` says which bytes of which file hold each part, with the SHA-256 of every file.
Files are read by this description alone: the `.metadata` of torch.distributed.checkpoint is a pickle, which could run
code, and is never loaded.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping
from copy import copy as shallow_copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hookline.checkpoint import folders, loading, seal
from hookline.checkpoint.zip_entries import DAMAGED, UnreadableError
from hookline.common.files import regular
from hookline.common.sharding import is_sharded, local_part, place_of
from hookline.errors import StorageError

KEY = "shards"
#: The names of files that torch.distributed.checkpoint writes.
FILES = re.compile(r"__[0-9]+_[0-9]+\.distcp|\.metadata")
#: The parts of a checkpoint whose tensors a strategy can load piece by piece.
LAZY = ("state_dict", "optimizer")


# -- in memory


def separate(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint in which the sharded tensors are in `shards`: a path and this process's part of each."""
    found: list[dict[str, Any]] = []

    def visit(value: Any, path: tuple[Any, ...]) -> Any:
        if is_sharded(value):
            offsets, _ = place_of(value)
            part = {"path": list(path), "shape": list(value.shape), "offsets": offsets, "local": local_part(value)}
            found.append(part)
            return None
        if isinstance(value, dict):
            copied = shallow_copy(value)  # keeps the type and its attributes, as in a model's state_dict
            for key, inner in value.items():
                copied[key] = visit(inner, (*path, key))
            return copied
        if type(value) is list:
            return [visit(inner, (*path, index)) for index, inner in enumerate(value)]
        if type(value) is tuple and any(map(is_sharded, value)):
            where = "".join(f"[{key!r}]" for key in path)
            raise StorageError(f"checkpoint{where} is a tuple with a sharded tensor, which cannot be saved; use a list")
        return value

    separated = {key: visit(value, (key,)) for key, value in checkpoint.items()}
    return {**separated, KEY: found}


def has_shards(value: Any) -> bool:
    """Return whether a state has sharded tensors, of which `separate` takes the part of this process."""
    if isinstance(value, dict):
        return any(map(has_shards, value.values()))
    return any(map(has_shards, value)) if isinstance(value, (list, tuple)) else is_sharded(value)


def own_weights(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of the model in a checkpoint, with only this process's part of sharded tensors."""
    parts = {
        tensor["path"][1]: tensor["local"] for tensor in checkpoint.get(KEY, ()) if tensor["path"][0] == "state_dict"
    }
    return {**checkpoint["state_dict"], **parts}


# -- in a folder


class Stored:
    """A tensor in the files of a checkpoint. It is read when it is needed, as a whole or in part."""

    def __init__(self, folder: Path, shape: list[int], dtype: str, chunks: list[Any]) -> None:
        self.shape = torch.Size(shape)
        self.dtype: torch.dtype = getattr(torch, dtype)
        self._folder = folder
        self._chunks = chunks
        stored = sum(math.prod(sizes) for _, sizes, *_ in chunks)
        if stored != self.numel() or stored * self.dtype.itemsize > sum(length for *_, length in chunks):
            raise UnreadableError("a tensor in it claims other data than its files have")

    @property
    def ndim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    def numel(self) -> int:
        """Return the number of elements."""
        return self.shape.numel()

    def element_size(self) -> int:
        """Return the bytes of an element."""
        return self.dtype.itemsize

    def read(self, offsets: list[int] | None = None, sizes: list[int] | None = None) -> Tensor:
        """Read the tensor, or only a region of it."""
        begin = [0] * self.ndim if offsets is None else offsets
        wanted = torch.zeros(list(self.shape) if sizes is None else sizes, dtype=self.dtype)
        for start, length, *where in self._chunks:
            ranges = [
                (max(a, b), min(a + n, b + m)) for a, n, b, m in zip(start, length, begin, wanted.shape, strict=True)
            ]
            if all(low < high for low, high in ranges):
                part = self._read_chunk(length, *where)
                target = wanted[tuple(slice(low - b, high - b) for (low, high), b in zip(ranges, begin, strict=True))]
                target.copy_(
                    part[tuple(slice(low - a, high - a) for (low, high), a in zip(ranges, start, strict=True))]
                )
        return wanted

    def _read_chunk(self, sizes: list[int], name: str, position: int, length: int) -> Tensor:
        """Read one part: a small archive of torch inside a file."""
        path = self._folder / name
        try:
            with open(path, "rb", opener=regular) as file:
                file.seek(position)
                part = loading.load(io.BytesIO(file.read(length)))
        except (OSError, UnreadableError) as error:
            raise StorageError(f"{path} cannot be read: {error}") from error
        if type(part) is not Tensor or list(part.shape) != sizes or part.dtype != self.dtype:
            raise StorageError(f"{path} cannot be read: {DAMAGED}")
        return part


def find_damage(folder: Path) -> str:
    """Describe the damage to the files of a folder whose sealed file is intact; empty if there is none."""
    try:
        description = loading.load(folder / folders.SEALED, mmap=True)[KEY]
        for name, (size, sha256) in description["files"].items():
            if not FILES.fullmatch(name):
                return f"it names the file {name!r}, which is not one of a sharded checkpoint"
            path = folder / name
            if not path.is_file():
                return f"its {name} is missing"
            if path.stat().st_size != size:
                return f"its {name} has {path.stat().st_size} bytes instead of {size}"
            if seal.digest(path) != sha256:
                return f"the bytes of its {name} do not match their SHA-256"
    except UnreadableError as error:
        return str(error)
    except (KeyError, TypeError, ValueError, AttributeError):
        return f"its {folders.SEALED} does not describe the files beside it"
    return ""


def join(checkpoint: dict[str, Any], folder: Path, *, whole: bool) -> dict[str, Any]:
    """Put the tensors of a folder back into the tree of its sealed file.

    If not `whole`, the tensors of the model and the optimizers are `Stored`, and not read yet.
    """
    try:
        description = checkpoint.pop(KEY)
        known = set(description["files"])
        for path, shape, dtype, chunks in description["tensors"]:
            if not all(name in known for _, _, name, _, _ in chunks):
                raise UnreadableError("a tensor in it is in a file that it does not list")
            stored = Stored(folder, shape, dtype, chunks)
            parent: Any = checkpoint
            for key in path[:-1]:
                parent = parent[key]
            parent[path[-1]] = stored if not whole and path[0] in LAZY else stored.read()
    except (UnreadableError, KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
        reason = error if isinstance(error, UnreadableError) else f"its {folders.SEALED} does not describe its files"
        raise StorageError(f"{folder} cannot be used: {reason}") from error
    return checkpoint


def describe(parts: list[dict[str, Any]], metadata: Any, files: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    """Return the description of a folder that was just written, as plain data."""
    return {
        "files": {name: list(about) for name, about in sorted(files.items())},
        "tensors": [
            [
                part["path"],
                part["shape"],
                str(part["local"].dtype).removeprefix("torch."),
                list(_chunks(part, metadata)),
            ]
            for part in parts
        ],
    }


def _chunks(part: Mapping[str, Any], metadata: Any) -> Iterator[list[Any]]:
    from torch.distributed.checkpoint.metadata import MetadataIndex

    key = name_of(part["path"])
    if key not in metadata.state_dict_metadata:  # no process has any element of it
        return
    for chunk in metadata.state_dict_metadata[key].chunks:
        found = metadata.storage_data[MetadataIndex(key, chunk.offsets)]
        yield [list(chunk.offsets), list(chunk.sizes), found.relative_path, found.offset, found.length]


def name_of(path: list[Any]) -> str:
    """Return the name of a tensor in the files, which other tools show: `state_dict/layer.weight`."""
    return "/".join(map(str, path))
