"""The files in the folder of a run."""

from __future__ import annotations

from pathlib import Path

#: The files that every training leaves, besides its checkpoints and its config.
USUAL = [
    *("events.jsonl", "hooks.json", "last_checkpoint", "loss_bits.bin", "metrics.jsonl", "plan.txt", "report.html"),
    "run.log",
]


def files_in(folder: Path) -> list[str]:
    """Return the names in a folder, in order."""
    return sorted(path.name for path in folder.iterdir())
