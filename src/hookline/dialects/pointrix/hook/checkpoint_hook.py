"""CheckPointHook: saves checkpoints at an interval and at the end of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hookline.checkpoint.retention import keep_newest
from hookline.common.checks import check_int
from hookline.dialects.pointrix.hook.base_hook import Hook
from hookline.dialects.pointrix.utils.checkpoints import NAMES


class CheckPointHook(Hook):
    """Saves `chkpnt00500.pth` after step 500, and so on. With `resume: true`, a run resumes from the newest of them.

    A checkpoint is written after all hooks of its step. If the model's `point_cloud` has a `save_ply`, `00500.ply` is
    written with it.

    Args:
        save_step: The number of steps between two checkpoints. The default is `save_step` of the trainer's config. 0
            saves only at the end.
        save_last: Save after the last step, too.
        max_keep: The number of newest checkpoints to keep; less than 1 keeps all.
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
        """Resolve the interval."""
        self._every = trainner.cfg.save_step if self.save_step is None else self.save_step

    def after_train_iter(self, trainner: Any) -> None:
        """Request a checkpoint if one is due."""
        if self._every > 0 and trainner.global_step % self._every == 0:
            self._request(trainner, trainner.global_step)

    def after_train(self, trainner: Any) -> None:
        """Request the last checkpoint, unless it is already saved."""
        if self.save_last and trainner.saving.last_path != trainner.saving.path():
            self._request(trainner, trainner.iter)

    def _request(self, trainner: Any, step: int) -> None:
        trainner.request_save(done=self._clean_up)
        points: Any = getattr(trainner.model, "point_cloud", None)
        if hasattr(points, "save_ply"):
            points.save_ply(str(Path(trainner.exp_dir) / f"{step:05d}.ply"))

    def _clean_up(self, saved: Path) -> None:
        """Remove all but the newest checkpoints."""
        if self.max_keep >= 1:
            keep_newest(self.max_keep, NAMES, saved)
