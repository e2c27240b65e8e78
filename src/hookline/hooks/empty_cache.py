"""EmptyCacheHook: returns unused memory of torch's allocator to the device."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.runner.runner import Runner

STAGES = ("train", "val", "test")


class EmptyCacheHook(Hook):
    """Returns memory that torch holds but does not use to the device.

    This works on CUDA, MPS and XPU, in training, validation and test. It helps if training and validation need memory
    of different sizes, or if other processes use the same device. When training by iterations, all of training is one
    epoch.

    With `garbage_collection`, Python first collects objects that refer to each other in cycles. On a CPU, this is the
    only effect.

    Cost: a wait for the device. New memory is slower to allocate afterwards, so `after_iter` slows down every step. A
    garbage collection takes about 0.1 s in a large process.

    Example:
        from hookline.hooks import EmptyCacheHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[EmptyCacheHook(garbage_collection=True)]).train()

    YAML:
        custom_hooks:
          - {type: EmptyCacheHook, before_epoch: true, garbage_collection: true}

    Args:
        before_epoch: Empty the cache before every epoch.
        after_epoch: Empty the cache after every epoch.
        after_iter: Empty the cache after every iteration.
        garbage_collection: Run Python's garbage collection first.
    """

    priority = "NORMAL"
    role = "observer"
    draws_random_numbers = False

    def __init__(
        self,
        before_epoch: bool = False,
        after_epoch: bool = True,
        after_iter: bool = False,
        garbage_collection: bool = False,
    ) -> None:
        self.before_epoch = before_epoch
        self.after_epoch = after_epoch
        self.after_iter = after_iter
        self.garbage_collection = garbage_collection

    def idle_points(self, runner: Runner) -> list[str]:
        """Return the points to skip: points that are off, or all of them if there is nothing to empty or collect."""
        works = self.garbage_collection or self._empty_cache(runner) is not None
        asked = {
            "before_{}_epoch": self.before_epoch,
            "after_{}_epoch": self.after_epoch,
            "after_{}_iter": self.after_iter,
        }
        return [point.format(stage) for point, on in asked.items() if not (on and works) for stage in STAGES]

    def before_train_epoch(self, runner: Runner) -> None:
        """Collect garbage if that is on, and empty the cache if the device has one."""
        if self.garbage_collection:
            gc.collect()
        empty_cache = self._empty_cache(runner)
        if empty_cache is not None:
            empty_cache()

    before_val_epoch = before_test_epoch = before_train_epoch
    after_train_epoch = after_val_epoch = after_test_epoch = before_train_epoch
    after_train_iter = after_val_iter = after_test_iter = before_train_epoch

    def _empty_cache(self, runner: Runner) -> Callable[[], Any] | None:
        from hookline.common.devices import device_function  # it imports torch, and `hookline hooks` must not

        return device_function(runner.device, "empty_cache")
