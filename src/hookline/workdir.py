"""The folder of a run: what it holds, and where an old run's files go when a new one starts in it."""

from __future__ import annotations

from pathlib import Path

from hookline.errors import StorageError

# What a run leaves, besides its checkpoints; everything else in the folder is the user's and stays.
FILES = (
    "config.yaml",
    "last_checkpoint",
    "metrics.jsonl",
    "run.log",
    "plan.txt",
    "hooks.json",
    "report.html",
    "tensorboard",
)


def claim(folder: Path) -> None:
    """Make the folder, and make sure that it can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise StorageError(f"work_dir {folder} cannot be written: {error.strerror or error}") from error


def set_aside(folder: Path) -> Path | None:
    """Move the files of an earlier run into `old-1/`, `old-2/`, ...; gives where they are now, if there were any."""
    files = [folder / name for name in FILES if (folder / name).exists()] + sorted(folder.glob("*.pth"))
    if not files:
        return None
    number = 1
    while (old := folder / f"old-{number}").exists():
        number += 1
    old.mkdir()
    for file in files:
        file.rename(old / file.name)
    return old


def drop_records(folder: Path) -> None:
    """Remove what an attempt that died before its first checkpoint has recorded: its steps will be made again."""
    (folder / "metrics.jsonl").unlink(missing_ok=True)
