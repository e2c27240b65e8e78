"""Hook, the base class, and the registry of hooks."""

from __future__ import annotations

from typing import Any, ClassVar

from hookline.dialects.pointrix.hook.points import POINTS
from hookline.dialects.pointrix.utils.registry import Registry
from hookline.plan.hook import not_a_point
from hookline.runner import hook

HOOK_REGISTRY = Registry(
    "HOOK",
    builtin={
        "CheckPointHook": "hookline.dialects.pointrix.hook.checkpoint_hook:CheckPointHook",
        "LogHook": "hookline.dialects.pointrix.hook.log_hook:LogHook",
    },
)


class Hook(hook.Hook):
    """An object whose methods are named after points of the trainer's loop (see `hook.points`), and take the trainer.

    A method with any other name runs when `trainer.call_hook` names it. A method whose name is a near miss of a point
    is refused. The methods here do nothing, and cost nothing unless they are overridden.
    """

    locations: ClassVar[tuple[str, ...]] = tuple(name for name in POINTS if name != "exception")

    @not_a_point
    def before_run(self, trainner: Any) -> None:
        """Run first of all, when the trainer has only `cfg`, `exp_dir` and `device`."""

    @not_a_point
    def after_load_checkpoint(self, trainner: Any, checkpoint: dict[str, Any]) -> None:
        """Run after a checkpoint was read and before any of it is used; shapes are checked afterwards."""

    @not_a_point
    def before_train(self, trainner: Any) -> None:
        """Run before the first step."""

    @not_a_point
    def before_train_iter(self, trainner: Any) -> None:
        """Run before a step; `global_step` is its number."""

    @not_a_point
    def after_train_iter(self, trainner: Any) -> None:
        """Run after a step; `loss_dict` has its losses."""

    @not_a_point
    def before_val(self, trainner: Any) -> None:
        """Run before a validation; `global_step` is the number of the next step."""

    @not_a_point
    def before_val_iter(self, trainner: Any) -> None:
        """Run before one item of a validation."""

    @not_a_point
    def after_val_iter(self, trainner: Any) -> None:
        """Run after one item of a validation; `metric_dict` has its metrics."""

    @not_a_point
    def after_val(self, trainner: Any) -> None:
        """Run after a validation."""

    @not_a_point
    def before_save_checkpoint(self, trainner: Any, checkpoint: dict[str, Any]) -> None:
        """Run before a checkpoint is written; entries may be changed and added."""

    @not_a_point
    def after_train(self, trainner: Any) -> None:
        """Run after the last step and its validation."""

    @not_a_point
    def after_run(self, trainner: Any) -> None:
        """Run last of all, if nothing failed."""

    @not_a_point
    def exception(self) -> None:
        """Run when anything failed."""
