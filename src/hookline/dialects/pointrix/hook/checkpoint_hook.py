"""CheckPointHook: saves the run every so often, and at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hookline.checkpoint.retention import keep_newest
from hookline.common.checks import check_int
from hookline.dialects.pointrix.hook.base_hook import Hook
from hookline.dialects.pointrix.utils.checkpoints import NAMES


class CheckPointHook(Hook):
    """Saves `chkpnt00500.pth` after step 500, and so on; a run goes on from any of them with `resume: true`.

    A checkpoint is written after all hooks of its step. Where the model's `point_cloud` has a `save_ply`, `00500.ply`
    is written with it.

    Args:
        save_step: Every how many steps; what `save_step` of the trainer's config says, unless given. 0 saves only at
            the end.
        save_last: Save after the last step, too.
        max_keep: Keep only so many of the newest; less than 1 keeps all.
    """

    def __init__(self, save_step: int | None = None, save_last: bool = True, max_keep: int = -1) -> None:
        if save_step is not None:
            check_int("CheckPointHook: save_step", save_step, least=0)
        check_int("CheckPointHook: max_keep", max_keep, least=-1)
        self.save_step = save_step
        self.save_last = save_last
        self.max_keep = max_keep
        self._every = 0

    def before_train(self, trainner: Any) -> None:
        """Settle how often."""
        self._every = trainner.cfg.save_step if self.save_step is None else self.save_step

    def after_train_iter(self, trainner: Any) -> None:
        """Ask for a checkpoint, when one is due."""
        if self._every > 0 and trainner.global_step % self._every == 0:
            self._ask(trainner, trainner.global_step)

    def after_train(self, trainner: Any) -> None:
        """Ask for the last one, unless it is there."""
        if self.save_last and trainner.saving.last_path != trainner.saving.path():
            self._ask(trainner, trainner.iter)

    def _ask(self, trainner: Any, step: int) -> None:
        trainner.request_save(done=self._saved)
        points: Any = getattr(trainner.model, "point_cloud", None)
        if hasattr(points, "save_ply"):
            points.save_ply(str(Path(trainner.exp_dir) / f"{step:05d}.ply"))

    def _saved(self, saved: Path) -> None:
        """Remove all but the newest."""
        if self.max_keep >= 1:
            keep_newest(self.max_keep, NAMES, saved)
