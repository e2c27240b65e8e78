"""The checkpoints of a run: which processes write them, and how they are written, read and loaded.

This base class is for whole checkpoints, which the main process writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from hookline.checkpoint import store

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn
    from torch.optim import Optimizer

    from hookline.checkpoint.seal import Note
    from hookline.strategies.base import Strategy

T = TypeVar("T")


class Checkpoints:
    """The checkpoints of a run whose processes have the whole model."""

    #: The ending of the names of checkpoints.
    suffix: ClassVar[str] = ".pth"
    #: True if a process has only a part of the weights, so that one alone cannot save them.
    are_sharded: ClassVar[bool] = False

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    # -- writing

    @property
    def written_here(self) -> bool:
        """Return whether this process writes checkpoints, or a part of them."""
        return self._strategy.is_main

    def separate(self, checkpoint: dict[str, Any]) -> dict[str, Any]:
        """Return a checkpoint as tensors and plain data. Sharded tensors get a separate place."""
        return checkpoint

    def on_writers(self, function: Callable[[], T]) -> T:
        """Call a function in the processes that write, and return the main one's result in all processes."""
        return self._strategy.on_main(function)

    def together(self, function: Callable[[], T]) -> list[T]:
        """Call a function in a process that writes, and return the results of all of these.

        If it fails in one of them, it fails in all.
        """
        return [function()]

    def write(self, checkpoint: dict[str, Any], path: Path, note: Note) -> str:
        """Write a checkpoint completely or not at all, in all processes that write, and return its SHA-256."""
        return store.write(checkpoint, path, note)

    def verify(self, path: Path) -> None:
        """Read back what `write` wrote, and refuse it if the bytes differ."""
        store.verify(path)

    # -- reading

    def read(self, path: Path, *, sealed: bool, verified: bool = False) -> dict[str, Any]:
        """Read a checkpoint, or as much of it as this process needs; see `store.read`."""
        return store.read(path, sealed=sealed, verified=verified)

    def load_model(self, model: nn.Module, state: Mapping[str, Any], strict: bool = True) -> None:
        """Load the whole state of a model, which was checked to fit. If not `strict`, it may be a part of one."""
        model.load_state_dict(state, strict=strict)

    def load_optimizer(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        """Load the whole state of an optimizer, which was checked to fit."""
        optimizer.load_state_dict(state)
