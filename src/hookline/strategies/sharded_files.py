"""Sharded checkpoints: folders that all processes write together, each its own part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from hookline.checkpoint import shards, store
from hookline.checkpoint.compatibility import with_versions
from hookline.common.sharding import part_like
from hookline.errors import DistributedError, StorageError
from hookline.strategies import sharded_steps
from hookline.strategies.base import Checkpoints
from hookline.strategies.group import Failure

if TYPE_CHECKING:
    from pathlib import Path
    from threading import Lock

    from torch import nn
    from torch.optim import Optimizer

    from hookline.checkpoint.seal import Note
    from hookline.strategies.processes import Processes

T = TypeVar("T")


class ShardedCheckpoints(Checkpoints):
    """The checkpoints of a model that was given to `fully_shard`.

    `exchanging` is held while the processes write together.
    """

    suffix = ".dcp"
    are_sharded = True

    def __init__(self, strategy: Processes, exchanging: Lock) -> None:
        super().__init__(strategy)
        self._group, self._exchanging = strategy.group, exchanging

    @property
    def written_here(self) -> bool:
        """Return True: every process writes its part."""
        return True

    def separate(self, checkpoint: dict[str, Any]) -> dict[str, Any]:
        """Return a checkpoint in which sharded tensors have a separate place."""
        return shards.separate(checkpoint)

    def together(self, function: Callable[[], T]) -> list[T]:
        """Call a function in every process, and return all results. If it fails in one, it fails in all."""
        result: Any = None
        error: Exception | None = None
        try:
            result = function()
        except Exception as raised:  # it is raised again below, after the others know of it
            error = raised
        found = self._group.gather_writers((None if error is None else Failure.of(self._group.rank, error), result))
        if error is not None:
            raise error
        for failure, _ in found:
            if failure is not None:
                raise failure.as_error()
        return [each for _, each in found]

    def on_writers(self, function: Callable[[], T]) -> T:
        """Call a function in every process, and return the main one's result."""
        return self.together(function)[0]

    def write(self, checkpoint: dict[str, Any], path: Path, note: Note) -> str:
        """Write a folder, of which every process writes a part."""
        from hookline.checkpoint import shard_files  # it imports torch's checkpoints, which takes time

        writers = shard_files.Writers(self._group.rank, self._group.writers, self.together)
        try:
            with self._exchanging:
                return shard_files.write(checkpoint, path, note, writers)
        except DistributedError as error:  # another process cannot write: this is a failure of the storage here, too
            if error.exit_code != StorageError.exit_code:
                raise
            raise StorageError(str(error)) from error

    def verify(self, path: Path) -> None:
        """Do nothing: the hashes of a folder were computed from its files as they were read back."""

    def read(self, path: Path, *, sealed: bool, verified: bool = False) -> dict[str, Any]:
        """Read a checkpoint. The weights and optimizer states in a folder are read when they are loaded."""
        return store.read(path, sealed=sealed, verified=verified, whole=False)

    def load_model(self, model: nn.Module, state: Mapping[str, Any], strict: bool = True) -> None:
        """Load a whole state, or one of which this process reads its part."""
        own = model.state_dict()
        parts = {name: part_like(value, own.get(name)) for name, value in state.items()}
        model.load_state_dict(with_versions(parts, state), strict=strict)

    def load_optimizer(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        """Load a whole state, or one of which this process reads its part."""
        sharded_steps.load(optimizer, state)
