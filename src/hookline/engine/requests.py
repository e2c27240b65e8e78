"""A checkpoint that somebody asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookline.engine.position import Position


@dataclass(frozen=True)
class Request:
    """A checkpoint that was asked for. Its number is filled in when it is written, after the counters have moved on."""

    template: str | None = None
    #: What the file is called, out of where the run stands when it is written; instead of a template.
    name: Callable[[Position], str] | None = None
    by_epoch: bool | None = None
    folder: Path | None = None
    #: Before the name: `best_accuracy_`.
    prefix: str = ""
    optimizer: bool = True
    schedulers: bool = True
    #: More facts for people, for the `meta` of this checkpoint: tensors and plain data.
    meta: Mapping[str, Any] = field(default_factory=dict)
    #: Written beside the training, from a copy.
    background: bool = False
    #: Not written, but kept in memory, for the case that the run fails.
    in_memory: bool = False
    #: Whether the run ends when it cannot be written; otherwise that is said, and the run goes on.
    needed: bool = True
    #: Called when it is on the disk and verified; or, when it was not needed, that it could not be written.
    done: Callable[[Path], None] | None = None
    failed: Callable[[], None] | None = None
