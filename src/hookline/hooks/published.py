"""The entries of a checkpoint that CheckpointHook publishes: checked early, without torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hookline.checkpoint.retention import by_age
from hookline.common.files import storage_errors
from hookline.errors import ConfigError, did_you_mean, nearest

#: The entries that every checkpoint has. Hooks may add others.
CHECKPOINT_KEYS = (
    *("meta", "state_dict", "optimizer", "param_schedulers", "scaler"),
    *("message_hub", "metric_states", "hooks", "rng", "position", "writers"),
)


def refuse_misspelled(keys: Sequence[str]) -> None:
    """Refuse a key that is nearly the name of an entry. Before the first save, another one may come from a hook."""
    for key in keys:
        best = nearest(key, CHECKPOINT_KEYS, 0.8) if key not in CHECKPOINT_KEYS else None
        if best is not None:
            raise ConfigError(
                f"CheckpointHook: published_keys: checkpoints have no entry '{key}'; did you mean '{best}'?"
            )


def refuse_missing(keys: Sequence[str], checkpoint: Mapping[str, Any]) -> None:
    """Refuse a key that a checkpoint does not have."""
    for key in keys:
        if key not in checkpoint:
            raise ConfigError(
                f"CheckpointHook: published_keys: checkpoints have no entry '{key}'; {did_you_mean(key, checkpoint)}"
            )


def publish(folder: Path, names: re.Pattern[str], best: Sequence[str], keys: Sequence[str]) -> list[Path]:
    """Publish these entries of the newest checkpoint with such a name, and of the best ones."""
    from hookline.checkpoint import publishing  # it imports torch, and `hookline hooks` must not

    with storage_errors(folder, "read", inside=True):
        paths = [*by_age(folder, names)[-1:], *(folder / name for name in best)]
    return publishing.all_of(paths, keys)
