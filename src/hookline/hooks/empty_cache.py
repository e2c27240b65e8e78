"""EmptyCacheHook: gives memory that the allocator holds on to back to the device."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hookline.plan.hook import Hook

if TYPE_CHECKING:
    from hookline.engine.runner import Runner

STAGES = ("train", "val", "test")


class EmptyCacheHook(Hook):
    """Gives memory that torch holds on to, but does not use, back to the device.

    For CUDA, MPS and XPU. It helps where training and validation need memory in different shapes, or where others use
    the same device. It is the same for training, validation and test. Training by iterations has one epoch, around all
    of it; validations come again and again there, too.

    With `garbage_collection`, Python first collects objects that refer to each other in circles, since their tensors
    are in use until then. On a CPU that is all there is to do.

    Cost: a wait for the device, and afterwards new memory is slower to come by, so `after_iter` slows down every step;
    a collection takes about 0.1 s in a large process. Points that were not asked for cost nothing.

    Example:
        from hookline.hooks import EmptyCacheHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[EmptyCacheHook(garbage_collection=True)]).train()

    YAML:
        custom_hooks:
          - {type: EmptyCacheHook, before_epoch: true, garbage_collection: true}

    Args:
        before_epoch: Do it before every epoch.
        after_epoch: Do it after every epoch.
        after_iter: Do it after every iteration.
        garbage_collection: Let Python collect garbage before that.
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
        """Those that were not asked for; all of them where there is nothing to empty and nothing to collect."""
        works = self.garbage_collection or self._empty_cache(runner) is not None
        asked = {
            "before_{}_epoch": self.before_epoch,
            "after_{}_epoch": self.after_epoch,
            "after_{}_iter": self.after_iter,
        }
        return [point.format(stage) for point, on in asked.items() if not (on and works) for stage in STAGES]

    def before_train_epoch(self, runner: Runner) -> None:
        """Collect garbage, if asked for, and empty the cache, where there is one."""
        if self.garbage_collection:
            gc.collect()
        empty_cache = self._empty_cache(runner)
        if empty_cache is not None:
            empty_cache()

    before_val_epoch = before_test_epoch = before_train_epoch
    after_train_epoch = after_val_epoch = after_test_epoch = before_train_epoch
    after_train_iter = after_val_iter = after_test_iter = before_train_epoch

    def _empty_cache(self, runner: Runner) -> Callable[[], Any] | None:
        from hookline.common.devices import device_function  # it needs torch, and a hook's parameters are read without

        return device_function(runner.device, "empty_cache")
