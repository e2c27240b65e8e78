"""DistSamplerSeedHook: tells samplers the number of the current epoch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hookline.plan.hook import every
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.runner.runner import Runner


class DistSamplerSeedHook(Hook):
    """Calls `set_epoch` on samplers, so that each pass over the data has its own order.

    It calls `set_epoch` on the training loader, on its sampler, or on its batch sampler's sampler, whichever is the
    first to have it.

    Cost: one call per pass over the data. Nothing for loaders without `set_epoch`.

    Example:
        from hookline.testing import toy_runner

        toy_runner(default_hooks={"sampler_seed": None}).train()  # a default hook; None removes it

    YAML:
        default_hooks:
          sampler_seed: {priority: NORMAL}
    """

    priority = "NORMAL"

    def idle_points(self, runner: Runner) -> list[str]:
        """Return the points to skip: both without `set_epoch`, the iteration point when training by epochs."""
        if not runner.has_training or find_epoch_listener(runner.train_loop.dataloader) is None:
            return ["before_train_epoch", "before_train_iter"]
        return ["before_train_iter"] if runner.train_loop.by_epoch else []

    def before_train_epoch(self, runner: Runner) -> None:
        """Set the epoch for this pass. When training by iterations, this is only the first one."""
        self._set_epoch(runner, runner.epoch)

    @every("1ep")
    def before_train_iter(self, runner: Runner) -> None:
        """When training by iterations, set the epoch for the next pass, which begins after this batch.

        This point is used because the epoch points are called only once then, and because `after_train_iter` is not
        called for a skipped batch.
        """
        self._set_epoch(runner, runner.epoch + 1)

    def _set_epoch(self, runner: Runner, epoch: int) -> None:
        listener = find_epoch_listener(runner.train_loop.dataloader)
        if listener is not None:
            listener.set_epoch(epoch)


def find_epoch_listener(loader: Iterable[Any]) -> Any:
    """Return the first of loader, sampler and batch sampler's sampler that has `set_epoch`, or None."""
    sampler = getattr(loader, "sampler", None)
    inner = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
    candidates: tuple[Any, ...] = (loader, sampler, inner)
    return next((candidate for candidate in candidates if hasattr(candidate, "set_epoch")), None)
