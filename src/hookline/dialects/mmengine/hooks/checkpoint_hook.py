"""CheckpointHook with MMEngine's parameters and defaults."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import as_in_the_original
from hookline.dialects.mmengine.hooks.storage import refuse_other_storage
from hookline.hooks import checkpoint

log = logging.getLogger("hookline")


@as_in_the_original
class CheckpointHook(checkpoint.CheckpointHook, Hook):  # type: ignore[misc]  # natively, methods take only what they need
    """Saves checkpoints every so often, at the end of training, and the best ones.

    Args:
        interval: Every how many epochs or iterations; -1 saves only at the end.
        by_epoch: Count epochs, or iterations. Training by iterations has no epochs to count: then it is saved at the
            end.
        save_optimizer: Save the state of the optimizers; a run can only go on from a checkpoint that has it.
        save_param_scheduler: Save the state of the schedulers, likewise.
        out_dir: Save into a folder of the run's name in here instead of the run's folder.
        max_keep_ckpts: Keep only so many of the newest checkpoints, besides the best; less than 1 keeps all.
        save_last: Save at the end of training, whatever the interval, also when it was stopped.
        save_best: Names of validation metrics whose best checkpoint is kept, or `auto`: the first metric.
        rule: Whether `greater` or `less` is better, for all or for each.
        greater_keys: Words in the name of a metric that mean more is better.
        less_keys: Words that mean less is better.
        file_client_args: Other storage than the disk is not offered.
        filename_tmpl: The name of a file, with `{}` for the number of the epoch or iteration.
        backend_args: Other storage than the disk is not offered.
        published_keys: Parts of a checkpoint to publish at the end.
        save_begin: The first epoch or iteration to save; the interval counts from there.
    """

    priority = "VERY_LOW"
    never_called = ("_save_checkpoint", "_save_checkpoint_with_step", "_save_best_checkpoint", "_publish_model")

    def __init__(
        self,
        interval: int = -1,
        by_epoch: bool = True,
        save_optimizer: bool = True,
        save_param_scheduler: bool = True,
        out_dir: str | None = None,
        max_keep_ckpts: int = -1,
        save_last: bool = True,
        save_best: str | list[str] | None = None,
        rule: str | list[str] | None = None,
        greater_keys: list[str] | None = None,
        less_keys: list[str] | None = None,
        file_client_args: dict[str, Any] | None = None,
        filename_tmpl: str | None = None,
        backend_args: dict[str, Any] | None = None,
        published_keys: str | list[str] | None = None,
        save_begin: int = 0,
    ) -> None:
        refuse_other_storage("CheckpointHook", file_client_args, backend_args)
        super().__init__(
            interval=interval,
            by_epoch=by_epoch,
            save_optimizer=save_optimizer,
            save_param_scheduler=save_param_scheduler,
            out_dir=None if out_dir is None else str(out_dir),
            max_keep_ckpts=max_keep_ckpts,
            save_last=save_last,
            save_best=save_best,
            rule=rule,
            greater_keys=greater_keys,
            less_keys=less_keys,
            filename_tmpl=filename_tmpl,
            published_keys=published_keys,
            save_begin=save_begin,
        )

    # -- what others ask for by these names

    @property
    def last_ckpt(self) -> str | None:
        """The newest checkpoint."""
        return None if self._last is None else str(self._last)

    @property
    def best_ckpt_path(self) -> str | None:
        """The best checkpoint of the first metric."""
        return next(iter(self.best_ckpt_path_dict.values()), None)

    @property
    def best_ckpt_path_dict(self) -> dict[str, str | None]:
        """The best checkpoint of each metric."""
        return {name: self._as_told(best.top[1]) if best.kept else None for name, best in self.best.items()}

    @property
    def key_indicators(self) -> list[str]:
        """The metrics whose best is kept; known after the first validation."""
        return list(self.best)

    @property
    def rules(self) -> list[str]:
        """Whether `greater` or `less` is better, for each of them."""
        return [best.monitor.rule for best in self.best.values()]

    def _as_told(self, name: str) -> str:
        return str(self.checkpoint_folder(self.runner) / name)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on comparing with the best so far, which lies in the folder of this run."""
        super().load_state_dict(state)
        for best in self.best.values():
            self._tell(best)

    def _saved(self, saved: Path) -> None:
        super()._saved(saved)
        self.runner.hub.update_info("last_ckpt", str(saved), resumed=False)

    def _counts_epochs(self, runner: Any) -> bool:
        return bool(self.by_epoch) and runner.train_loop.by_epoch

    def before_train(self, runner: Any) -> None:
        """Refuse what cannot be, and settle the interval."""
        super().before_train(runner)
        if self.by_epoch and not runner.train_loop.by_epoch and self._interval > 0:
            self._interval = 0
            log.warning(
                "CheckpointHook counts epochs, and this run trains by iterations, so it is saved at its end; "
                "dict(type='CheckpointHook', by_epoch=False, interval=...) saves every so many iterations"
            )
