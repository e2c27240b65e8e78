"""CheckpointHook: saves the run by interval and at its end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from hookline.errors import ConfigError
from hookline.hook import Hook

if TYPE_CHECKING:
    from hookline.runner import Runner


class CheckpointHook(Hook):
    """Saves checkpoints `epoch_5.pth` or `iter_100.pth` every so often, and at the end of training, also when it is
    stopped early. A save is made at the end of the iteration or epoch, after all hooks and after the counters.

    Cost: nothing between two saves; then the writing of the file, during which training waits.

    Args:
        interval: Every how many epochs or iterations; 0 or less saves only at the end. By default every epoch, or, by
            iterations, as often as validation.
        by_epoch: Count epochs or iterations; as the training loop does, unless given.
        save_optimizer: Save the state of the optimizers; a run can only go on from a checkpoint that has it.
        save_param_scheduler: Save the state of the schedulers, likewise.
        out_dir: Save into a folder of the run's name in here instead of the run's folder.
        max_keep_ckpts: Keep only so many of the newest checkpoints; less than 1 keeps all.
        save_last: Save at the end of training, whatever the interval.
        filename_tmpl: The name of a file, with `{}` for the number of the epoch or iteration.
        save_begin: The first epoch or iteration to save; the interval counts from there.
    """

    priority = "VERY_LOW"
    runs_after = ("ParamSchedulerHook",)

    def __init__(
        self,
        interval: int | None = None,
        by_epoch: bool | None = None,
        save_optimizer: bool = True,
        save_param_scheduler: bool = True,
        out_dir: str | None = None,
        max_keep_ckpts: int = -1,
        save_last: bool = True,
        filename_tmpl: str | None = None,
        save_begin: int = 0,
    ) -> None:
        if filename_tmpl is not None and (filename_tmpl.count("{}") != 1 or Path(filename_tmpl).name != filename_tmpl):
            raise ConfigError(
                f"CheckpointHook: filename_tmpl is a file name with one {{}} in it, not {filename_tmpl!r}"
            )
        if save_begin < 0:
            raise ConfigError(f"CheckpointHook: save_begin must be at least 0, not {save_begin}")
        self.interval = interval
        self._interval = 0
        self.by_epoch = by_epoch
        self.save_optimizer = save_optimizer
        self.save_param_scheduler = save_param_scheduler
        self.out_dir = out_dir
        self.max_keep_ckpts = max_keep_ckpts
        self.save_last = save_last
        self.filename_tmpl = filename_tmpl
        self.save_begin = save_begin

    def idle_points(self, runner: Runner) -> list[str]:
        """By epochs, the iterations, and the other way round."""
        if not runner.has_training:
            return []
        return ["after_train_iter"] if self._counts_epochs(runner) else ["after_train_epoch"]

    def _counts_epochs(self, runner: Runner) -> bool:
        return runner.train_loop.by_epoch if self.by_epoch is None else self.by_epoch

    def before_train(self, runner: Runner) -> None:
        """Refuse what cannot be, and settle the interval."""
        loop = runner.train_loop
        if self.by_epoch and not loop.by_epoch:
            raise ConfigError(
                "CheckpointHook: by_epoch=True needs training by epochs, and this run trains by iterations"
            )
        as_validation = not loop.by_epoch and bool(runner.val_loops)
        default = 1 if self._counts_epochs(runner) else loop.val_interval if as_validation else 1000
        self._interval = default if self.interval is None else self.interval

    def after_train_iter(self, runner: Runner) -> None:
        """By iterations."""
        due = self.every_n_train_iters(runner, self._interval, self.save_begin)
        if due or (self.save_last and self.is_last_train_iter(runner)):
            self._ask(runner)

    def after_train_epoch(self, runner: Runner) -> None:
        """By epochs."""
        due = self.every_n_epochs(runner, self._interval, self.save_begin)
        if due or (self.save_last and self.is_last_train_epoch(runner)):
            self._ask(runner)

    def after_train(self, runner: Runner) -> None:
        """The last checkpoint is also there when training was stopped early."""
        if self.save_last and runner.saving.saved_at != runner.iter:
            self._ask(runner)

    def _ask(self, runner: Runner) -> None:
        folder = Path(self.out_dir) / runner.work_dir.name if self.out_dir is not None else runner.work_dir
        runner.saving.ask(
            template=self.filename_tmpl,
            by_epoch=self._counts_epochs(runner),
            folder=folder,
            optimizer=self.save_optimizer,
            schedulers=self.save_param_scheduler,
            done=self._remove_old,
        )

    def _remove_old(self, saved: Path) -> None:
        """Remove all but the newest. They are found by listing the folder, so nothing is left behind after a kill."""
        if self.max_keep_ckpts < 1:
            return
        template = self.filename_tmpl or re.sub(r"[0-9]+", "{}", saved.name)
        pattern = re.compile(re.escape(template).replace(r"\{\}", "([0-9]+)"))
        numbered = [(int(match[1]), path) for path in saved.parent.iterdir() if (match := pattern.fullmatch(path.name))]
        for _, path in sorted(numbered)[: -self.max_keep_ckpts]:
            if path != saved:  # a run that was resumed further back has newer numbers beside it
                path.unlink()
