"""Hook, the base class, and the registry of hooks."""

from __future__ import annotations

from typing import Any, ClassVar

from hookline.dialects.pointrix.hook.points import POINTS
from hookline.dialects.pointrix.utils.registry import Registry
from hookline.plan import hook
from hookline.plan.hook import not_a_point

HOOK_REGISTRY = Registry(
    "HOOK",
    builtin={
        "CheckPointHook": "hookline.dialects.pointrix.hook.checkpoint_hook:CheckPointHook",
        "LogHook": "hookline.dialects.pointrix.hook.log_hook:LogHook",
    },
)


class Hook(hook.Hook):
    """An object whose methods are named after points of the trainer's loop (see `hook.points`), and take the trainer.

    A method of any other name runs when `trainer.call_hook` names it. What is nearly the name of a point is refused.
    The methods in here do nothing, and cost nothing where they are not overridden.
    """

    locations: ClassVar[tuple[str, ...]] = tuple(name for name in POINTS if name != "exception")

    @not_a_point
    def before_run(self, trainner: Any) -> None:
        """The first thing of all; only `cfg`, `exp_dir` and `device` are there."""

    @not_a_point
    def after_load_checkpoint(self, trainner: Any, checkpoint: dict[str, Any]) -> None:
        """A checkpoint was read, and nothing of it is used yet; shapes are checked after this."""

    @not_a_point
    def before_train(self, trainner: Any) -> None:
        """Before the first step."""

    @not_a_point
    def before_train_iter(self, trainner: Any) -> None:
        """Before a step; `global_step` is its number."""

    @not_a_point
    def after_train_iter(self, trainner: Any) -> None:
        """After a step; `loss_dict` is there."""

    @not_a_point
    def before_val(self, trainner: Any) -> None:
        """Before a validation; `global_step` is the next step's number."""

    @not_a_point
    def before_val_iter(self, trainner: Any) -> None:
        """Before one item of a validation."""

    @not_a_point
    def after_val_iter(self, trainner: Any) -> None:
        """After one item of a validation; `metric_dict` is there."""

    @not_a_point
    def after_val(self, trainner: Any) -> None:
        """After a validation."""

    @not_a_point
    def before_save_checkpoint(self, trainner: Any, checkpoint: dict[str, Any]) -> None:
        """A checkpoint is about to be written; entries may be changed and added."""

    @not_a_point
    def after_train(self, trainner: Any) -> None:
        """After the last step and its validation."""

    @not_a_point
    def after_run(self, trainner: Any) -> None:
        """The last thing of all, when nothing failed."""

    @not_a_point
    def exception(self) -> None:
        """Something failed."""
