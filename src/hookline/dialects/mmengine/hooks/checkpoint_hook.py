"""CheckpointHook with MMEngine's parameters and defaults."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common.monitor import AUTO
from hookline.dialects.mmengine.errors import ConfigTypeError
from hookline.dialects.mmengine.hooks.hook import DATA_BATCH as DATA_BATCH
from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.rules import GREATER, LESS, original_rule
from hookline.dialects.mmengine.hooks.signatures import with_original_signatures
from hookline.dialects.mmengine.hooks.storage import refuse_other_storage
from hookline.hooks import checkpoint

if TYPE_CHECKING:
    from hookline.hooks.best import Best

log = logging.getLogger("hookline")


@with_original_signatures
class CheckpointHook(checkpoint.CheckpointHook, Hook):  # type: ignore[misc]  # native methods take only the arguments they need
    """Saves checkpoints at an interval, at the end of training, and for the best metrics.

    For parameters that are not listed here, see hookline's CheckpointHook.

    Args:
        interval: Save every `interval` epochs or iterations. -1 saves only at the end.
        by_epoch: Count epochs instead of iterations. Iteration-based training has no epochs to count, so it is then
            saved only at the end.
        rule: `greater` or `less`, whichever is better, for all metrics or one per metric. By default, it is inferred
            from the metric's name, first as MMEngine does.
        greater_keys: Parts of a metric's name that mean greater is better. They replace MMEngine's.
        less_keys: Parts of a metric's name that mean less is better. They replace MMEngine's.
        file_client_args: Only the local disk is supported.
        backend_args: Only the local disk is supported.
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
        greater_keys: Any = None,
        less_keys: Any = None,
        file_client_args: dict[str, Any] | None = None,
        filename_tmpl: str | None = None,
        backend_args: dict[str, Any] | None = None,
        published_keys: str | list[str] | None = None,
        save_begin: int = 0,
    ) -> None:
        refuse_other_storage("CheckpointHook", file_client_args, backend_args)
        for name, given in (("save_best", save_best), ("rule", rule)):
            several = given if isinstance(given, (list, tuple)) else [given]
            if given is not None and not all(isinstance(each, str) for each in several):
                raise ConfigTypeError(f"CheckpointHook: {name} must be a text or a list of texts, not {given!r}")
        super().__init__(
            interval=interval,
            by_epoch=by_epoch,
            save_optimizer=save_optimizer,
            save_param_scheduler=save_param_scheduler,
            out_dir=None if out_dir is None else str(out_dir),
            max_keep_ckpts=-1 if max_keep_ckpts == 0 else max_keep_ckpts,
            save_last=save_last,
            save_best=save_best,
            rule=rule if save_best else None,
            greater_keys=greater_keys if save_best else None,
            less_keys=less_keys if save_best else None,
            filename_tmpl=filename_tmpl,
            published_keys=published_keys,
            save_begin=save_begin,
        )
        self._keys = (greater_keys, less_keys)

    def _watch(self, name: str) -> Best:
        if (rule := self._rule_of(name)) is not None:
            self._rules[name] = rule
        return super()._watch(name)

    def _best_options(self, best: Best, *args: Any, **changes: Any) -> dict[str, Any]:
        """Name a best checkpoint by the counters of its validation, which a hook may run before they have advanced."""
        epochs = self._counts_epochs(self.runner)
        template = self.filename_tmpl or ("epoch_{}.pth" if epochs else "iter_{}.pth")
        name = best.prefix + template.format(self.runner.epoch if epochs else self.runner.iter)
        return super()._best_options(best, *args, **{"name": lambda _: name, **changes})

    def _rule_of(self, name: str) -> str | None:
        """Return the rule of a metric: the given one, or what its name says, first as MMEngine reads it."""
        given = self._rules.get(name, self._rules.get(AUTO))
        return given if given is not None else original_rule(name, "CheckpointHook: save_best", *self._keys)

    # -- attributes that code written for MMEngine reads

    @property
    def last_ckpt(self) -> str | None:
        """Return the path of the newest checkpoint."""
        return None if self._last is None else str(self._last)

    @property
    def best_ckpt_path(self) -> str | None:
        """Return the path of the best checkpoint for the first metric."""
        return next(iter(self.best_ckpt_path_dict.values()), None)

    @property
    def best_ckpt_path_dict(self) -> dict[str, str | None]:
        """Return the path of the best checkpoint for each metric."""
        return {name: self._as_told(best.top[1]) if best.kept else None for name, best in self.best.items()}

    @property
    def greater_keys(self) -> Sequence[str]:
        """Return the parts of a metric's name that mean greater is better."""
        return _listed(self._keys[0], GREATER)

    @property
    def less_keys(self) -> Sequence[str]:
        """Return the parts of a metric's name that mean less is better."""
        return _listed(self._keys[1], LESS)

    @property
    def key_indicators(self) -> list[str]:
        """Return the metrics whose best checkpoint is kept. `auto` is known after the first validation."""
        return list(self.best) or [name for name in self.save_best if name != AUTO]

    @property
    def rules(self) -> list[str]:
        """Return the rule of each of these metrics: `greater` or `less`."""
        known = {name: best.monitor.rule for name, best in self.best.items()}
        return [known.get(name) or self._rule_of(name) or "unknown" for name in self.key_indicators]

    def _as_told(self, name: str) -> str:
        return str(self.checkpoint_folder(self.runner) / name)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the best values so far. Their checkpoints are in the folder of this run."""
        super().load_state_dict(state)
        for best in self.best.values():
            self._tell(best)

    def _saved(self, saved: Path) -> None:
        super()._saved(saved)
        self.runner.hub.update_info("last_ckpt", str(saved), resumed=False)

    def _counts_epochs(self, runner: Any) -> bool:
        return bool(self.by_epoch) and runner.train_loop.by_epoch

    def before_train(self, runner: Any) -> None:
        """Validate the options and resolve the default interval."""
        super().before_train(runner)
        if self.by_epoch and not runner.train_loop.by_epoch and self._interval > 0:
            self._interval = 0
            log.warning(
                "CheckpointHook counts epochs, but this run trains by iterations, so it is saved only at the end; "
                "to save at an interval, use dict(type='CheckpointHook', by_epoch=False, interval=...)"
            )


def _listed(given: Any, usual: Sequence[str]) -> Sequence[str]:
    return usual if given is None else (given,) if isinstance(given, str) else given
