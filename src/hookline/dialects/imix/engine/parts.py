"""What hooks say of a run before it is put together: the update, the precision, schedulers, writers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from hookline.engine.clipping import Clip
    from hookline.writers.base import Writer


@dataclass
class Parts:
    """The parts of a run that belong to hooks."""

    work_dir: Path
    device: torch.device
    clip: Clip | None = None
    precision: str = "fp32"
    scaler: torch.amp.GradScaler | None = None
    #: Pairs of a scheduler and when it steps.
    schedulers: list[tuple[Any, str]] = field(default_factory=list)
    writers: list[Writer] = field(default_factory=list)
    #: The hook that makes the updates.
    updater: str | None = None

    def updates(self, who: str, clip: Clip | None) -> None:
        """There is one hook that makes the updates."""
        if self.updater is not None:
            raise ConfigError(f"{self.updater} and {who} would both make the updates; leave one of them out")
        self.updater, self.clip = who, clip
