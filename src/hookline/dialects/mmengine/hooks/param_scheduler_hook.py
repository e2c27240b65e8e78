"""ParamSchedulerHook with MMEngine's name and priority."""

from __future__ import annotations

from typing import Any

from hookline.dialects.mmengine.errors import ConfigTypeError
from hookline.dialects.mmengine.hooks.hook import DATA_BATCH as DATA_BATCH
from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import with_original_signatures
from hookline.hooks import param_scheduler
from hookline.runner.runner import Runner as NativeRunner


@with_original_signatures
class ParamSchedulerHook(param_scheduler.ParamSchedulerHook, Hook):
    """Steps the schedulers after epochs, after iterations, or after validations with the metrics."""

    priority = "LOW"

    def after_train_iter(  # type: ignore[override]  # native methods take only the arguments they need
        self, runner: Any, batch_idx: int = 0, data_batch: Any = None, outputs: Any = None
    ) -> None:
        """Step the schedulers that count iterations."""
        if isinstance(runner, NativeRunner):
            super().after_train_iter()
        else:
            step_by_hand(runner, by_epoch=False)

    def after_train_epoch(self, runner: Any) -> None:  # type: ignore[override]  # as above
        """Step the schedulers that count epochs."""
        if isinstance(runner, NativeRunner):
            super().after_train_epoch()
        else:
            step_by_hand(runner, by_epoch=True)

    def after_val_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        """Step the schedulers that follow metrics."""
        if isinstance(runner, NativeRunner):
            super().after_val_epoch(runner, metrics or {})
        else:
            step_by_hand(runner, metrics=metrics)


def step_by_hand(runner: Any, **when: Any) -> None:
    """Step the schedulers of a runner that is not a real one: a hook that is tested alone gets a fake."""
    given = runner.param_schedulers
    lists = list(given.values()) if isinstance(given, dict) else [given]
    if not all(isinstance(each, list) for each in lists):
        raise ConfigTypeError(f"runner.param_schedulers must be a list, or a dict of lists, not {given!r}")
    for scheduler in (each for schedulers in lists for each in schedulers):
        if "metrics" not in when:
            if scheduler.by_epoch == when["by_epoch"]:
                scheduler.step()
        elif getattr(scheduler, "need_val_args", False):
            scheduler.step(when["metrics"])
