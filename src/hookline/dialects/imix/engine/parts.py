"""Parts of a run that hooks contribute before it is built: the update, the precision, schedulers and writers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from hookline.optim.clipping import Clip
    from hookline.writers.base import Writer


@dataclass
class Parts:
    """The parts of a run that hooks set in their `_prepare`."""

    work_dir: Path
    device: torch.device
    clip: Clip | None = None
    precision: str = "fp32"
    scaler: torch.amp.GradScaler | None = None
    #: Pairs of a scheduler and its unit, `epoch` or `iter`.
    schedulers: list[tuple[Any, str]] = field(default_factory=list)
    writers: list[Writer] = field(default_factory=list)
    #: The name of the hook that updates the weights.
    updater: str | None = None

    def claim_updates(self, who: str, clip: Clip | None) -> None:
        """Register a hook as the one that updates the weights. Refuse a second one."""
        if self.updater is not None:
            raise ConfigError(f"{self.updater} and {who} would both update the weights; remove one of them")
        self.updater, self.clip = who, clip
