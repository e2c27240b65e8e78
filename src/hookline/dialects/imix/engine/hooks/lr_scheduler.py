"""LRSchedulerHook: recording the learning rate and stepping a scheduler."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from hookline.dialects.imix.engine.hooks.base_hook import HookBase, PriorityStatus
from hookline.errors import HookError

if TYPE_CHECKING:
    from hookline.dialects.imix.engine.parts import Parts


class LRSchedulerHook(HookBase):
    """Records the learning rate that the step used as `lr`, and then steps a torch scheduler.

    The scheduler steps after every iteration. With gradient accumulation, it steps after every update instead, unless
    the engine's `is_lr_accumulation` is false. Every checkpoint contains the state of the scheduler.

    Args:
        optimizer: The optimizer. The default is the engine's.
        scheduler: The scheduler. Without one, the hook only records the learning rate.
        by_epoch: Step after every epoch instead.
    """

    _level = PriorityStatus.HIGH
    runs_after = ("OptimizerHook",)  # records the rate that the step used

    def __init__(self, optimizer: Any = None, scheduler: Any = None, by_epoch: bool = False) -> None:
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._by_epoch = by_epoch
        self._group: dict[str, Any] = {}
        self._updates = 0

    def _prepare(self, parts: Parts) -> None:
        if self._scheduler is not None:
            # The native Optim saves and restores the scheduler, but this hook steps it.
            parts.schedulers.append((self._scheduler, "epoch" if self._by_epoch else "iter"))

    def before_train(self) -> None:
        """Find the group to record: as in iMIX, the one whose learning rate applies to most parameters."""
        optimizer = self._optimizer if self._optimizer is not None else self.trainer.optimizer
        if optimizer is None:
            raise HookError(
                "LRSchedulerHook has no optimizer whose learning rate it could record; pass one: "
                "LRSchedulerHook(optimizer)"
            )
        groups = optimizer.param_groups
        sizes = Counter[float]()
        for group in groups:
            sizes[group["lr"]] += len(group["params"])
        usual = sizes.most_common(1)[0][0]
        self._group = next(group for group in groups if group["lr"] == usual)
        self._updates = self.trainer.runner.updates

    def after_train_iter(self) -> None:
        """Record the learning rate, then step the scheduler."""
        trainer: Any = self._trainer()  # type: ignore[misc]  # self.trainer without the cost of a property call
        trainer.log_buffer.put_scalar("lr", self._group["lr"], smoothing_hint=False)
        if self._by_epoch or self._scheduler is None:
            return
        updates = trainer.runner.updates
        if not trainer.is_lr_accumulation or trainer.gradient_accumulation_steps == 1 or updates > self._updates:
            self._step()
        self._updates = updates

    def after_train_epoch(self) -> None:
        """Step the scheduler if it steps by epochs."""
        if self._by_epoch and self._scheduler is not None:
            self._step()

    def _step(self) -> None:
        for scheduled in self.trainer.runner.optim.schedulers:
            if scheduled.scheduler is self._scheduler:
                scheduled.step()
