"""CheckPointHook: native checkpoints under iMIX's file names."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.checkpoint.retention import by_age, keep_newest
from hookline.common.checks import check_int
from hookline.dialects.imix.engine.hooks.base_hook import HookBase
from hookline.dialects.imix.engine.hooks.ema import drop_averages
from hookline.errors import ConfigError

if TYPE_CHECKING:
    from hookline.run.position import Position


#: Finds the epoch in the name of a checkpoint.
EPOCH = re.compile(r"_epoch(\d+)(?:_iter\d+)?_model\.pth$")


class CheckPointHook(HookBase):
    """Saves complete checkpoints: `<prefix>_epoch<e>_model.pth` and, at the end, `<prefix>_model_final.pth`.

    When training by iterations, the names are `<prefix>_iter<n, 7 digits>_model.pth`. When training by epochs,
    `iter_period` adds `<prefix>_epoch<e>_iter<n>_model.pth`. A name has the number of the epoch or iteration that has
    just finished, counted from 0.

    A checkpoint contains everything that is needed to continue the run exactly. It is written only when no accumulation
    window is open, and atomically. Old checkpoints are removed only after the new one is verified.

    Args:
        checkpointer: Where to save: a folder, or an object with a `save_dir`. The default is `work_dir`.
        prefix: The prefix of checkpoint names. The default is the engine's prefix.
        iter_period: The number of iterations between two checkpoints.
        epoch_period: The number of epochs between two checkpoints.
        max_iter: Ignored, because the engine knows it.
        max_epoch: Ignored, because the engine knows it.
        max_num_checkpoints: The number of newest checkpoints to keep, in addition to the final one. The files that
            EMAEpochHook saved for earlier epochs are removed, too.
    """

    _cleans_up = False

    def __init__(
        self,
        checkpointer: Any = None,
        prefix: str | None = None,
        iter_period: int | None = None,
        epoch_period: int | None = 1,
        max_iter: int | None = None,
        max_epoch: int | None = None,
        max_num_checkpoints: int | None = None,
    ) -> None:
        limits = {"iter_period": iter_period, "epoch_period": epoch_period, "max_num_checkpoints": max_num_checkpoints}
        for name, value in limits.items():
            if value is not None:
                check_int(f"CheckPointHook: {name}", value, least=1)
        if prefix is not None and (not prefix or re.search(r"[/\\\0]", prefix)):
            raise ConfigError(f"CheckPointHook: prefix must be the beginning of a file name, not {prefix!r}")
        self.prefix = prefix
        self._prefix = prefix or ""
        self.iter_period = iter_period
        self.epoch_period = epoch_period
        self.max_num_checkpoints = max_num_checkpoints
        self._folder = get_folder(checkpointer)

    def before_train(self) -> None:
        """Set the prefix to the engine's, unless there is one."""
        self._prefix = self.prefix or self.trainer.prefix

    def after_train_iter(self) -> None:
        """Save every `iter_period` iterations."""
        trainer = self.trainer
        if self.iter_period is not None and (trainer.iter + 1) % self.iter_period == 0:
            self._request(
                partial(name_in_epoch, self._prefix) if trainer.by_epoch else partial(name_of_iter, self._prefix)
            )

    def after_train_epoch(self) -> None:
        """Save every `epoch_period` epochs."""
        if self.epoch_period is not None and (self.trainer.epoch + 1) % self.epoch_period == 0:
            self._request(partial(name_of_epoch, self._prefix))

    def after_train(self) -> None:
        """Save the final checkpoint."""
        runner = self.trainer.runner
        path = self.checkpoint_folder(runner) / f"{self._prefix}_model_final.pth"
        exists = runner.strategy.on_main(path.exists)
        if runner.resumed_at != runner.iter or not exists:
            runner.request_save(lambda position: path.name, folder=path.parent, together=True)

    def checkpoint_folder(self, runner: Any) -> Path:
        """Return the folder in which this hook saves."""
        return Path(self._folder) if self._folder is not None else Path(runner.work_dir)

    def _request(self, name: Any) -> None:
        runner = self.trainer.runner
        runner.request_save(name, folder=self.checkpoint_folder(runner), done=self._clean_up, together=True)

    def _clean_up(self, saved: Path) -> None:
        """Remove all but the newest checkpoints."""
        if self.max_num_checkpoints is not None:
            names = re.escape(self._prefix) + r"_(epoch\d+|epoch\d+_iter\d+|iter\d{7,})_model\.pth"
            keep_newest(self.max_num_checkpoints, re.compile(names), saved)
            epochs = [
                int(found[1]) for path in by_age(saved.parent, re.compile(names)) if (found := EPOCH.search(path.name))
            ]
            if epochs:
                drop_averages(Path(self.trainer.work_dir), self.trainer.prefix, before=min(epochs))


def name_of_epoch(prefix: str, at: Position) -> str:
    """Name the epoch that has just finished, from 0. The counters have already advanced."""
    return f"{prefix}_epoch{at.epoch - 1}_model.pth"


def name_in_epoch(prefix: str, at: Position) -> str:
    """Name the iteration that has just finished and its epoch, even if the save waited until the end of that epoch."""
    return f"{prefix}_epoch{at.epoch - (at.batch == 0)}_iter{at.iter - 1}_model.pth"


def name_of_iter(prefix: str, at: Position) -> str:
    """Name the iteration that has just finished, from 0."""
    return f"{prefix}_iter{at.iter - 1:07d}_model.pth"


def get_folder(checkpointer: Any) -> str | os.PathLike[str] | None:
    """Return the folder of a checkpointer; None for the default."""
    if checkpointer is None or isinstance(checkpointer, (str, os.PathLike)):
        return checkpointer
    folder = getattr(checkpointer, "save_dir", None)
    if not isinstance(folder, (str, os.PathLike)):
        raise ConfigError(f"CheckPointHook: checkpointer must be a folder or have a save_dir, not {checkpointer!r}")
    return folder or None
