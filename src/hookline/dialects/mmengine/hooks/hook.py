"""Hook, with a method for each of the 22 points and four methods that cover several points each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from hookline.errors import HookError
from hookline.runner import hook

if TYPE_CHECKING:
    from hookline.runner.runner import Runner as NativeRunner

#: The type of a loader's batches, for annotations.
DATA_BATCH = dict[str, Any] | tuple[Any, ...] | list[Any] | None

#: All points, in the order in which a run reaches them.
STAGES = (
    *("before_run", "after_load_checkpoint", "before_train", "before_train_epoch", "before_train_iter"),
    *("after_train_iter", "after_train_epoch", "before_val", "before_val_epoch", "before_val_iter", "after_val_iter"),
    *("after_val_epoch", "after_val", "before_save_checkpoint", "after_train", "before_test", "before_test_epoch"),
    *("before_test_iter", "after_test_iter", "after_test_epoch", "after_test", "after_run"),
)

#: The methods that cover several points, and those points.
UMBRELLAS = {
    f"_{when}_{what}": [f"{when}_{stage}_{what}" for stage in ("train", "val", "test")]
    for when in ("before", "after")
    for what in ("epoch", "iter")
}


class Hook(hook.Hook):
    """The base class of hooks. A subclass overrides the methods it needs.

    `_before_epoch`, `_after_epoch`, `_before_iter` and `_after_iter` are called for training, validation and testing,
    with `mode` set to `train`, `val` or `test`, unless the method of the point itself is overridden. All features of
    native hooks work here, too: `runs_after`, `around_<scope>`, `state_dict`, and so on.
    """

    priority: ClassVar[str | int] = "NORMAL"
    stages: ClassVar[tuple[str, ...]] = STAGES
    #: Methods of the original hook that hookline never calls. A subclass that overrides one of them is refused.
    never_called: ClassVar[tuple[str, ...]] = ()
    #: Parameters of the native constructor that the original does not have.
    left_out: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in cls.never_called:
            if hasattr(cls, name):
                raise HookError(
                    f"{cls.__name__} overrides {name}, which is never called here; move its code into a method for a "
                    "point, such as after_train_epoch or before_save_checkpoint"
                )

    _given_runner: Any = None

    @property
    def runner(self) -> NativeRunner:
        """Return the runner this hook is registered with, or the one that was assigned to it."""
        return self._given_runner if self._given_runner is not None else super().runner

    @runner.setter
    def runner(self, runner: Any) -> None:
        self._given_runner = runner

    def get_triggered_stages(self) -> list[str]:
        """Return the points at which this hook does something, in the order of the loop."""
        return triggered_stages(self, Hook)

    @staticmethod
    def is_last_train_epoch(runner: Any) -> bool:
        """Return whether this epoch is the last one. Iteration-based training is one long epoch."""
        loop = getattr(runner, "train_loop", None)
        return bool(not getattr(loop, "by_epoch", True) or runner.epoch + 1 == runner.max_epochs)

    # -- the run

    def before_run(self, runner: Any) -> None:
        """Run before anything else."""

    def after_run(self, runner: Any) -> None:
        """Run after everything else."""

    def before_save_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        """Run before a checkpoint is written. The hook may change its entries."""

    def after_load_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        """Run after a checkpoint was read and before any of it is used."""

    # -- training

    def before_train(self, runner: Any) -> None:
        """Run before training."""

    def after_train(self, runner: Any) -> None:
        """Run after training."""

    def before_train_epoch(self, runner: Any) -> None:
        """Run before every epoch."""
        self._before_epoch(runner, mode="train")

    def after_train_epoch(self, runner: Any) -> None:
        """Run after every epoch, before `runner.epoch` counts it."""
        self._after_epoch(runner, mode="train")

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        """Run before every iteration."""
        self._before_iter(runner, batch_idx=batch_idx, data_batch=data_batch, mode="train")

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: dict[str, Any] | None = None
    ) -> None:
        """Run after every iteration, before `runner.iter` counts it."""
        self._after_iter(runner, batch_idx=batch_idx, data_batch=data_batch, outputs=outputs, mode="train")

    # -- validation

    def before_val(self, runner: Any) -> None:
        """Run before a validation."""

    def after_val(self, runner: Any) -> None:
        """Run after a validation."""

    def before_val_epoch(self, runner: Any) -> None:
        """Run before the batches of a validation."""
        self._before_epoch(runner, mode="val")

    def after_val_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        """Run after the batches of a validation, with its metrics."""
        self._after_epoch(runner, mode="val")

    def before_val_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        """Run before every batch of a validation."""
        self._before_iter(runner, batch_idx=batch_idx, data_batch=data_batch, mode="val")

    def after_val_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Sequence[Any] | None = None
    ) -> None:
        """Run after every batch of a validation."""
        self._after_iter(runner, batch_idx=batch_idx, data_batch=data_batch, outputs=outputs, mode="val")

    # -- test

    def before_test(self, runner: Any) -> None:
        """Run before a test."""

    def after_test(self, runner: Any) -> None:
        """Run after a test."""

    def before_test_epoch(self, runner: Any) -> None:
        """Run before the batches of a test."""
        self._before_epoch(runner, mode="test")

    def after_test_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        """Run after the batches of a test, with its metrics."""
        self._after_epoch(runner, mode="test")

    def before_test_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        """Run before every batch of a test."""
        self._before_iter(runner, batch_idx=batch_idx, data_batch=data_batch, mode="test")

    def after_test_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Sequence[Any] | None = None
    ) -> None:
        """Run after every batch of a test."""
        self._after_iter(runner, batch_idx=batch_idx, data_batch=data_batch, outputs=outputs, mode="test")

    # -- training, validation and test

    def _before_epoch(self, runner: Any, mode: str = "train") -> None:
        """Run before the batches of an epoch, a validation or a test."""

    def _after_epoch(self, runner: Any, mode: str = "train") -> None:
        """Run after the batches of an epoch, a validation or a test."""

    def _before_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, mode: str = "train") -> None:
        """Run before every batch."""

    def _after_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None, mode: str = "train"
    ) -> None:
        """Run after every batch."""


def triggered_stages(given: object, base: type) -> list[str]:
    """Return the points whose method, or the method that covers them, differs from the base class."""

    def is_overridden(name: str) -> bool:
        method = getattr(given, name)
        return getattr(method, "__func__", method) is not getattr(base, name)

    umbrella = {stage: name for name, stages in UMBRELLAS.items() for stage in stages}
    return [stage for stage in STAGES if is_overridden(stage) or (stage in umbrella and is_overridden(umbrella[stage]))]


def unused_points(given: Any) -> frozenset[str]:
    """Return the points at which a hook only has the empty method of its base class."""
    stages = getattr(given, "get_triggered_stages", None)
    if stages is None or not hasattr(given, "stages"):
        return frozenset()
    own = getattr(given, "__dict__", {})  # MMEngine's hooks look only at their class
    return frozenset(STAGES).difference(stages(), own, *(covered for name, covered in UMBRELLAS.items() if name in own))
