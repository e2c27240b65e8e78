"""RuntimeInfoHook, which also records the facts that code written for MMEngine looks up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.dialects.mmengine.hooks.hook import DATA_BATCH as DATA_BATCH
from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import with_original_signatures
from hookline.hooks import runtime_info

if TYPE_CHECKING:
    from hookline.optim.optim import Optim


@with_original_signatures
class RuntimeInfoHook(runtime_info.RuntimeInfoHook, Hook):  # type: ignore[misc]  # native methods take only the arguments they need
    """Records the epoch, iteration, learning rates, outputs and metrics in the message hub.

    In addition to hookline's own facts, it records `cfg`, `dataset_meta`, and `loop_stage`, which is `train`, `val` or
    `test`. With several parameter groups, `train/lr` is the learning rate of the first group, and `train/base_lr` is
    the base rate that the rates of all groups are multiples of.
    """

    priority = "VERY_HIGH"

    def __init__(self) -> None:
        super().__init__()
        self._outer: list[str | None] = []

    @property
    def last_loop_stage(self) -> str | None:
        """Return the stage that the present evaluation has interrupted."""
        return self._outer[-1] if self._outer else None

    def _rates_of(self, optim: Optim) -> list[tuple[str, dict[str, Any]]]:
        base = getattr(optim, "base_param_settings", None)
        return [("base_lr", base)] * (base is not None) + [("lr", optim.optimizer.param_groups[0])]

    def before_run(self, runner: Any) -> None:
        """Record the facts that do not change."""
        super().before_run(runner)
        runner.hub.update_info("cfg", runner.cfg, resumed=False)

    def before_train(self, runner: Any) -> None:
        """Record the facts at the start of training."""
        super().before_train(runner)
        hub = runner.hub
        hub.update_info("loop_stage", "train", resumed=False)
        hub.update_info("epoch", runner.epoch, resumed=False)
        hub.update_info("iter", runner.iter, resumed=False)
        meta = getattr(getattr(runner.train_dataloader, "dataset", None), "metainfo", None)
        hub.update_info("dataset_meta", meta, resumed=False)

    def before_val(self, runner: Any) -> None:
        """Set the stage to `val`. An evaluation may run in the middle of training, or of another evaluation."""
        self._enter(runner, "val")

    def before_test(self, runner: Any) -> None:
        """Set the stage to `test`."""
        self._enter(runner, "test")

    def after_val(self, runner: Any) -> None:
        """Return to the stage before the evaluation."""
        outer = self._outer.pop()
        if outer is None:
            runner.hub.pop_info("loop_stage")
        else:
            runner.hub.update_info("loop_stage", outer, resumed=False)

    after_test = after_val

    def after_train(self, runner: Any) -> None:
        """Clear the stage at the end of training."""
        runner.hub.pop_info("loop_stage")

    def _enter(self, runner: Any, stage: str) -> None:
        self._outer.append(runner.hub.get_info("loop_stage"))
        runner.hub.update_info("loop_stage", stage, resumed=False)
