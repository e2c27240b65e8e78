"""DistSamplerSeedHook: samplers learn which pass over the data this is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hookline.hook import Hook, every

if TYPE_CHECKING:
    from hookline.runner import Runner


class DistSamplerSeedHook(Hook):
    """Calls `set_epoch` on the training loader's sampler, or on its batch sampler's sampler, before every pass over the
    data, so that each pass has an order of its own. Loaders without such a sampler are left alone.

    Cost: one call a pass.
    """

    priority = "NORMAL"

    def idle_points(self, runner: Runner) -> list[str]:
        """By epochs, `before_train_epoch` is enough."""
        return ["before_train_iter"] if runner.has_training and runner.train_loop.by_epoch else []

    def before_train_epoch(self, runner: Runner) -> None:
        """The first pass, or, by epochs, each."""
        set_epoch(runner.train_loop.dataloader, runner.epoch)

    @every("1ep")
    def before_train_iter(self, runner: Runner) -> None:
        """By iterations, the epoch points come once; the next pass begins behind this batch, also if it is skipped."""
        set_epoch(runner.train_loop.dataloader, runner.epoch + 1)


def set_epoch(loader: Iterable[Any], epoch: int) -> None:
    """Tell the first of loader, sampler and batch sampler's sampler that wants to know."""
    sampler = getattr(loader, "sampler", None)
    inner = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
    candidates: tuple[Any, ...] = (loader, sampler, inner)
    for candidate in candidates:
        if hasattr(candidate, "set_epoch"):
            candidate.set_epoch(epoch)
            return
