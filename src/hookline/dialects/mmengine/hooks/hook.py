"""Hook: all 22 points as methods, and the four that stand for several of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from hookline.errors import HookError
from hookline.plan import hook

if TYPE_CHECKING:
    from hookline.engine.runner import Runner as NativeRunner

#: What a loader gives, for annotations.
DATA_BATCH = dict[str, Any] | tuple[Any, ...] | list[Any] | None

#: In the order in which a run comes across them.
STAGES = (
    *("before_run", "after_load_checkpoint", "before_train", "before_train_epoch", "before_train_iter"),
    *("after_train_iter", "after_train_epoch", "before_val", "before_val_epoch", "before_val_iter", "after_val_iter"),
    *("after_val_epoch", "after_val", "before_save_checkpoint", "after_train", "before_test", "before_test_epoch"),
    *("before_test_iter", "after_test_iter", "after_test_epoch", "after_test", "after_run"),
)

#: The methods that stand for several points.
UMBRELLAS = {
    f"_{when}_{what}": [f"{when}_{stage}_{what}" for stage in ("train", "val", "test")]
    for when in ("before", "after")
    for what in ("epoch", "iter")
}


class Hook(hook.Hook):
    """The base of hooks; a subclass overrides what it needs.

    `_before_epoch`, `_after_epoch`, `_before_iter` and `_after_iter` are called for training, validation and test, with
    `mode` as `train`, `val` or `test`, unless the method of the point itself is overridden. All that natively holds for
    hooks holds here, too: `runs_after`, `around_<scope>`, `state_dict`, and so on.
    """

    priority: ClassVar[str | int] = "NORMAL"
    stages: ClassVar[tuple[str, ...]] = STAGES
    #: Methods of the original hook that nothing here calls; a subclass that has one of them would wait in vain.
    never_called: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in cls.never_called:
            if hasattr(cls, name):
                raise HookError(
                    f"{cls.__name__} has a {name} of its own, which nothing calls here; what it does belongs into a "
                    "method for a point, such as after_train_epoch or before_save_checkpoint"
                )

    _given_runner: Any = None

    @property
    def runner(self) -> NativeRunner:
        """The runner that this hook is registered with, or the one that it was given by hand."""
        return self._given_runner if self._given_runner is not None else super().runner

    @runner.setter
    def runner(self, runner: Any) -> None:
        self._given_runner = runner

    def get_triggered_stages(self) -> list[str]:
        """The points at which this hook does something, in the order of the loop."""
        return triggered_stages(self, Hook)

    @staticmethod
    def is_last_train_epoch(runner: Any) -> bool:
        """Whether no epoch comes after this one; training by iterations is one long epoch."""
        return not runner.train_loop.by_epoch or runner.epoch + 1 == runner.max_epochs

    # -- the run

    def before_run(self, runner: Any) -> None:
        """Before anything else."""

    def after_run(self, runner: Any) -> None:
        """After everything else."""

    def before_save_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        """Before a checkpoint is written: entries may be changed."""

    def after_load_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        """After a checkpoint was read, before anything of it is used."""

    # -- training

    def before_train(self, runner: Any) -> None:
        """Before training."""

    def after_train(self, runner: Any) -> None:
        """After training."""

    def before_train_epoch(self, runner: Any) -> None:
        """Before every epoch."""
        self._before_epoch(runner, mode="train")

    def after_train_epoch(self, runner: Any) -> None:
        """After every epoch, which is not yet counted."""
        self._after_epoch(runner, mode="train")

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        """Before every iteration."""
        self._before_iter(runner, batch_idx=batch_idx, data_batch=data_batch, mode="train")

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: dict[str, Any] | None = None
    ) -> None:
        """After every iteration, which is not yet counted."""
        self._after_iter(runner, batch_idx=batch_idx, data_batch=data_batch, outputs=outputs, mode="train")

    # -- validation

    def before_val(self, runner: Any) -> None:
        """Before a validation."""

    def after_val(self, runner: Any) -> None:
        """After a validation."""

    def before_val_epoch(self, runner: Any) -> None:
        """Before the batches of a validation."""
        self._before_epoch(runner, mode="val")

    def after_val_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        """After the batches of a validation, with what came of them."""
        self._after_epoch(runner, mode="val")

    def before_val_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        """Before every batch of a validation."""
        self._before_iter(runner, batch_idx=batch_idx, data_batch=data_batch, mode="val")

    def after_val_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Sequence[Any] | None = None
    ) -> None:
        """After every batch of a validation."""
        self._after_iter(runner, batch_idx=batch_idx, data_batch=data_batch, outputs=outputs, mode="val")

    # -- test

    def before_test(self, runner: Any) -> None:
        """Before a test."""

    def after_test(self, runner: Any) -> None:
        """After a test."""

    def before_test_epoch(self, runner: Any) -> None:
        """Before the batches of a test."""
        self._before_epoch(runner, mode="test")

    def after_test_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        """After the batches of a test, with what came of them."""
        self._after_epoch(runner, mode="test")

    def before_test_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        """Before every batch of a test."""
        self._before_iter(runner, batch_idx=batch_idx, data_batch=data_batch, mode="test")

    def after_test_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Sequence[Any] | None = None
    ) -> None:
        """After every batch of a test."""
        self._after_iter(runner, batch_idx=batch_idx, data_batch=data_batch, outputs=outputs, mode="test")

    # -- all three

    def _before_epoch(self, runner: Any, mode: str = "train") -> None:
        """Before the batches of an epoch, a validation or a test."""

    def _after_epoch(self, runner: Any, mode: str = "train") -> None:
        """After the batches of an epoch, a validation or a test."""

    def _before_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, mode: str = "train") -> None:
        """Before every batch."""

    def _after_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None, mode: str = "train"
    ) -> None:
        """After every batch."""


def triggered_stages(given: object, base: type) -> list[str]:
    """The points whose methods, or those that stand for them, are others than those of a base class."""

    def is_own(name: str) -> bool:
        method = getattr(given, name)
        return getattr(method, "__func__", method) is not getattr(base, name)

    umbrella = {stage: name for name, stages in UMBRELLAS.items() for stage in stages}
    return [stage for stage in STAGES if is_own(stage) or (stage in umbrella and is_own(umbrella[stage]))]


def unused_points(given: Any) -> frozenset[str]:
    """The points at which a hook has a method only because its base class has all of them."""
    stages = getattr(given, "get_triggered_stages", None)
    if stages is None or not hasattr(given, "stages"):
        return frozenset()
    return frozenset(STAGES) - frozenset(stages())
