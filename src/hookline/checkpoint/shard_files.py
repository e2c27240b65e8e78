"""Writing a sharded checkpoint: every process writes its parts with torch.distributed.checkpoint, one writes the rest.

All processes call `write` at the same time. Only tensors are given to torch.distributed.checkpoint. It would store
anything else as a pickle.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.state_dict_saver import save

from hookline.checkpoint import folders, seal, shards, store
from hookline.common.files import PARTIAL, storage_errors
from hookline.errors import StorageError


@dataclass(frozen=True)
class Writers:
    """The processes that write a checkpoint together."""

    rank: int
    #: A group of torch.distributed that nothing else uses during the save.
    group: Any
    #: Calls a function in every process, and returns all results by rank. If it fails in one, it fails in all.
    together: Callable[[Callable[[], Any]], list[Any]]


def write(checkpoint: Mapping[str, Any], path: Path, note: seal.Note, writers: Writers) -> str:
    """Write a checkpoint completely or not at all, and return the SHA-256 of its sealed file, in all processes."""
    parts = checkpoint[shards.KEY]
    temporary = path.with_name(f".{path.name}{PARTIAL}")

    def on_first(function: Callable[..., Any], *given: Any) -> Any:
        if writers.rank == 0:
            with storage_errors(path):
                return function(*given)
        return None

    def finish(written: list[tuple[Any, dict[str, tuple[int, str]]]]) -> str:
        files = {name: about for _, own in written for name, about in own.items()}
        description = shards.describe(parts, written[0][0], files)
        sha256 = store.write_verified({**checkpoint, shards.KEY: description}, temporary / folders.SEALED, note)
        folders.put_in_place(temporary, path)
        return sha256

    try:
        writers.together(lambda: on_first(folders.begin, path))
        written = writers.together(lambda: _write_parts(parts, path, temporary, writers))
        return writers.together(lambda: on_first(finish, written))[0]  # type: ignore[no-any-return]  # a text
    except BaseException:
        if writers.rank == 0:
            shutil.rmtree(temporary, ignore_errors=True)
        raise


def _write_parts(
    parts: list[dict[str, Any]], path: Path, temporary: Path, writers: Writers
) -> tuple[Any, dict[str, tuple[int, str]]]:
    """Write the parts of this process. Return, in the first one, where all parts are, and the files of this one."""
    state = {shards.name_of(part["path"]): part for part in parts}
    assert len(state) == len(parts), "every tensor has its own name"
    try:
        metadata = save(
            state,
            storage_writer=FileSystemWriter(temporary, thread_count=1, sync_files=True),
            planner=_Planner(),
            process_group=writers.group,
        )
    except CheckpointException as error:
        rank, (first, _) = sorted(error.failures.items())[0]
        reason = getattr(first, "strerror", None) or f"{type(first).__name__}: {first}"
        raise StorageError(f"{path} cannot be written: {reason} (rank {rank})") from error
    own = list(temporary.glob(f"__{writers.rank}_*.distcp"))
    if writers.rank == 0:
        own.append(temporary / folders.METADATA)
    with storage_errors(path):
        files = {file.name: (file.stat().st_size, seal.digest(file)) for file in own}
    return (metadata if writers.rank == 0 else None), files


class _Planner(DefaultSavePlanner):
    """Plans to write the parts that `shards.separate` has found, without a DTensor: they may be copies in memory."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def create_local_plan(self) -> SavePlan:
        """Return the data that this process writes: its part of each tensor, unless the part is empty."""
        self.plan = SavePlan([_item(name, part) for name, part in self.state_dict.items() if part["local"].numel()])
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        """Return the part to write."""
        return self.state_dict[index.fqn]["local"]  # type: ignore[no-any-return]  # a tensor


def _item(name: str, part: Mapping[str, Any]) -> WriteItem:
    local, offsets = part["local"], torch.Size(part["offsets"])
    return WriteItem(
        index=MetadataIndex(name, offsets),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(offsets=offsets, sizes=local.shape),
            properties=TensorProperties.create_from_tensor(local),
            size=torch.Size(part["shape"]),
        ),
    )
