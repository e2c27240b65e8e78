"""Kills at each moment of a save, for hookline's own saver and for a naive one that must fail."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from hookline import EvalLoop, Runner
from hookline.checkpoint import seal, store
from hookline.engine.steps import predict
from hookline.errors import StorageError
from hookline.hooks import EvaluateHook
from hookline.state import saving
from hookline.testing import toy_data, toy_runner

#: The moments of a save at which a kill is tried, in order.
MOMENTS = (
    "opened",
    "half written",
    "before fsync",
    "before rename",
    "after rename",
    "before pointer",
    "before removal",
)


def die(*_: Any) -> Any:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def save_and_die(folder: str, moment: str, saver: str, epochs: int = 4, verified: str = "at once") -> None:
    """Train three epochs, keep two checkpoints, and die in the third save."""
    torch.set_num_threads(1)
    if verified == "in the background":
        saving.SMALL = 0
    if saver == "naive":
        store.write = naive_write
    runner = toy_runner(max_epochs=epochs, work_dir=folder, default_hooks={"checkpoint": {"max_keep_ckpts": 2}})
    runner.on("before_save_checkpoint", priority="LOWEST")(lambda runner: _arm(moment) if runner.epoch == 3 else None)
    runner.train()


def naive_write(checkpoint: Any, path: Path, note: seal.Note) -> str:
    """Save as many engines do: remove the old checkpoints, then write the new one under its final name."""
    for old in path.parent.glob("epoch_*.pth"):
        old.unlink()
    with open(path, "wb") as file:
        sealing: Any = seal.SealingFile(file)
        torch.save(dict(checkpoint), sealing)
        return str(sealing.seal(note))


def _arm(moment: str) -> None:
    """Make the next save die at the given moment."""
    put, replace, unlink = seal.SealingFile._put, os.replace, Path.unlink
    owner, name, instead = {
        "opened": (seal.SealingFile, "write", die),
        "half written": (seal.SealingFile, "_put", _after_bytes(2000, put)),
        "before fsync": (os, "fsync", die),
        "before rename": (os, "replace", die),
        "after rename": (os, "replace", lambda old, new: (replace(old, new), die())),
        "before pointer": (store, "point_to", die),
        "before removal": (Path, "unlink", _at_removal_of("epoch_1.pth", unlink)),
    }[moment]
    setattr(owner, name, instead)


def _after_bytes(count: int, put: Callable[..., None]) -> Callable[..., None]:
    written = 0

    def counting(self: seal.SealingFile, data: Any) -> None:
        nonlocal written
        if written + len(data) > count:
            put(self, bytes(data)[: count - written])
            self._file.flush()
            die()
        written += len(data)
        put(self, data)

    return counting


def improve_and_die(folder: str, hook: str) -> None:
    """Train two epochs, keep only the best checkpoint, and die when that of the first epoch is removed."""
    torch.set_num_threads(1)
    setattr(Path, "unlink", _at_removal_of("_epoch_1.pth", Path.unlink))  # noqa: B010  # mypy refuses the assignment
    improving_runner(folder, hook).train()


def improving_runner(folder: str | Path, hook: str, **parts: Any) -> Runner:
    """Return a run that gets better with every epoch, with a hook that keeps the best checkpoint."""

    def score(runner: Runner) -> float:
        return float(runner.iter)

    parts["default_hooks"] = {"checkpoint": {"interval": 0, "save_last": False}}
    if hook == "EvaluateHook":
        parts["custom_hooks"] = [EvaluateHook(score, save_best="score", rule="greater")]
    else:
        parts["default_hooks"]["checkpoint"] |= {"save_best": "score", "rule": "greater"}
        parts["val"] = EvalLoop(toy_data(1), predict, metrics={"score": Improving()})
    return toy_runner(max_epochs=2, work_dir=folder, **parts)


class Improving:
    """A metric that grows every time."""

    def __init__(self) -> None:
        self.value = 0.0

    def update(self, preds: Any, target: Any) -> None:
        """Ignore the batch."""

    def reset(self) -> None:
        """Keep the value."""

    def compute(self) -> float:
        """Return the next value."""
        self.value += 1
        return self.value


def _at_removal_of(ending: str, unlink: Callable[..., None]) -> Callable[..., None]:
    def checking(self: Path, missing_ok: bool = False) -> None:
        if self.name.endswith(ending):
            die()
        unlink(self, missing_ok=missing_ok)

    return checking


def valid_after(folder: Path) -> str:
    """Return the name of the newest intact checkpoint; empty if the kill left none."""
    try:
        found = store.newest_intact([folder], lambda text: None)
    except StorageError:
        return ""
    return found.name if found is not None else ""
