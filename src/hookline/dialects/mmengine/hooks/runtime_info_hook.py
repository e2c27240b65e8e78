"""RuntimeInfoHook, with the facts that code written for MMEngine looks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import as_in_the_original
from hookline.hooks import runtime_info

if TYPE_CHECKING:
    from hookline.engine.optim import Optim


@as_in_the_original
class RuntimeInfoHook(runtime_info.RuntimeInfoHook, Hook):  # type: ignore[misc]  # natively, methods take only what they need
    """Puts epoch, iter, learning rates, outputs and metrics into the message hub.

    Facts besides hookline's own: `cfg`, `dataset_meta`, and `loop_stage`, which is `train`, `val` or `test`. Of several
    parameter groups, `train/lr` is the learning rate of the first, and `train/base_lr` that which all are multiples of.
    """

    priority = "VERY_HIGH"

    def _rates_of(self, optim: Optim) -> list[tuple[str, dict[str, Any]]]:
        base = getattr(optim, "base_param_settings", None)
        return [("base_lr", base)] * (base is not None) + [("lr", optim.optimizer.param_groups[0])]

    def before_run(self, runner: Any) -> None:
        """The facts that do not change."""
        super().before_run(runner)
        runner.hub.update_info("cfg", runner.cfg, resumed=False)

    def before_train(self, runner: Any) -> None:
        """What training begins with."""
        super().before_train(runner)
        hub = runner.hub
        hub.update_info("loop_stage", "train", resumed=False)
        hub.update_info("epoch", runner.epoch, resumed=False)
        hub.update_info("iter", runner.iter, resumed=False)
        meta = getattr(getattr(runner.train_dataloader, "dataset", None), "metainfo", None)
        hub.update_info("dataset_meta", meta, resumed=False)

    def before_val(self, runner: Any) -> None:
        """A validation may stand in the middle of training."""
        runner.hub.info["loop_stage"] = "val"

    def after_val(self, runner: Any) -> None:
        """What follows is training again."""
        self._stage_is_over(runner)

    def before_test(self, runner: Any) -> None:
        """A test."""
        runner.hub.update_info("loop_stage", "test", resumed=False)

    def after_test(self, runner: Any) -> None:
        """The end of a test."""
        self._stage_is_over(runner)

    def after_train(self, runner: Any) -> None:
        """The end of training."""
        super().after_train(runner)
        runner.hub.pop_info("loop_stage")

    def _stage_is_over(self, runner: Any) -> None:
        if runner.running == "train":
            runner.hub.info["loop_stage"] = "train"
        else:
            runner.hub.pop_info("loop_stage")
