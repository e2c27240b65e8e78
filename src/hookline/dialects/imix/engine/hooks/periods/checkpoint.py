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
    from hookline.engine.position import Position


#: The epoch in the name of a checkpoint.
EPOCH = re.compile(r"_epoch(\d+)(?:_iter\d+)?_model\.pth$")


class CheckPointHook(HookBase):
    """Saves complete checkpoints: `<prefix>_epoch<e>_model.pth` and, at the end, `<prefix>_model_final.pth`.

    By iterations they are `<prefix>_iter<n, 7 digits>_model.pth`; in the middle of an epoch, with `iter_period`,
    `<prefix>_epoch<e>_iter<n>_model.pth`. Numbers are those of the epoch or iteration that was just made, from 0 on.

    What is saved is everything that a run needs to go on exactly. It is written when no accumulation window is open,
    whole or not at all; old ones go only when the new one is verified.

    Args:
        checkpointer: Where to save: a folder, or anything with a `save_dir`; `work_dir`, unless given.
        prefix: What names begin with; the engine's, unless given.
        iter_period: Every how many iterations.
        epoch_period: Every how many epochs.
        max_iter: Not needed: the engine knows.
        max_epoch: Likewise.
        max_num_checkpoints: Keep only so many of the newest, besides the final one. What EMAEpochHook has saved of
            earlier epochs goes with them.
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
            raise ConfigError(f"CheckPointHook: prefix is the beginning of a file's name, not {prefix!r}")
        self.prefix = prefix
        self._prefix = prefix or ""
        self.iter_period = iter_period
        self.epoch_period = epoch_period
        self.max_num_checkpoints = max_num_checkpoints
        self._folder = folder_of(checkpointer)

    def before_train(self) -> None:
        """Settle the prefix."""
        self._prefix = self.prefix or self.trainer.prefix

    def after_train_iter(self) -> None:
        """Every `iter_period` iterations."""
        trainer = self.trainer
        if self.iter_period is not None and (trainer.iter + 1) % self.iter_period == 0:
            self._ask(partial(name_in_epoch, self._prefix) if trainer.by_epoch else partial(name_of_iter, self._prefix))

    def after_train_epoch(self) -> None:
        """Every `epoch_period` epochs."""
        if self.epoch_period is not None and (self.trainer.epoch + 1) % self.epoch_period == 0:
            self._ask(partial(name_of_epoch, self._prefix))

    def after_train(self) -> None:
        """The final one."""
        runner = self.trainer.runner
        path = self.checkpoint_folder(runner) / f"{self._prefix}_model_final.pth"
        if runner.saving.resumed_at != runner.iter or not path.exists():
            runner.request_save(lambda position: path.name, folder=path.parent)

    def checkpoint_folder(self, runner: Any) -> Path:
        """Where this hook saves."""
        return Path(self._folder) if self._folder is not None else Path(runner.work_dir)

    def _ask(self, name: Any) -> None:
        runner = self.trainer.runner
        runner.request_save(name, folder=self.checkpoint_folder(runner), done=self._saved)

    def _saved(self, saved: Path) -> None:
        """Remove all but the newest."""
        if self.max_num_checkpoints is not None:
            names = re.escape(self._prefix) + r"_(epoch\d+|epoch\d+_iter\d+|iter\d{7,})_model\.pth"
            keep_newest(self.max_num_checkpoints, re.compile(names), saved)
            epochs = [
                int(found[1]) for path in by_age(saved.parent, re.compile(names)) if (found := EPOCH.search(path.name))
            ]
            if epochs:
                drop_averages(Path(self.trainer.work_dir), self.trainer.prefix, before=min(epochs))


def name_of_epoch(prefix: str, at: Position) -> str:
    """The epoch that was just made, from 0 on; the counters have moved on."""
    return f"{prefix}_epoch{at.epoch - 1}_model.pth"


def name_in_epoch(prefix: str, at: Position) -> str:
    """Likewise with its iteration; one that had to wait for the end of the epoch is still one of that."""
    return f"{prefix}_epoch{at.epoch - (at.batch == 0)}_iter{at.iter - 1}_model.pth"


def name_of_iter(prefix: str, at: Position) -> str:
    """The iteration that was just made, from 0 on."""
    return f"{prefix}_iter{at.iter - 1:07d}_model.pth"


def folder_of(checkpointer: Any) -> str | os.PathLike[str] | None:
    """The folder that a checkpointer means."""
    if checkpointer is None or isinstance(checkpointer, (str, os.PathLike)):
        return checkpointer
    folder = getattr(checkpointer, "save_dir", None)
    if not isinstance(folder, (str, os.PathLike)):
        raise ConfigError(f"CheckPointHook: a checkpointer is a folder or has a save_dir, and this is {checkpointer!r}")
    return folder or None
