"""DistSamplerSeedHook: samplers learn which pass over the data this is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hookline.plan.hook import Hook, every

if TYPE_CHECKING:
    from hookline.engine.runner import Runner


class DistSamplerSeedHook(Hook):
    """Tells samplers which pass over the data begins, so that each has an order of its own.

    Calls `set_epoch` on the training loader, its sampler, or its batch sampler's sampler, whichever has it first.
    Loaders without one are left alone.

    Cost: one call a pass; nothing where there is nobody to tell.

    Example:
        from hookline.testing import toy_runner

        toy_runner(default_hooks={"sampler_seed": None}).train()  # it is there unless it is left out

    YAML:
        default_hooks:
          sampler_seed: {priority: NORMAL}
    """

    priority = "NORMAL"

    def idle_points(self, runner: Runner) -> list[str]:
        """By epochs, `before_train_epoch` is enough; without a sampler that wants to know, neither is needed."""
        if not runner.has_training or listener(runner.train_loop.dataloader) is None:
            return ["before_train_epoch", "before_train_iter"]
        return ["before_train_iter"] if runner.train_loop.by_epoch else []

    def before_train_epoch(self, runner: Runner) -> None:
        """The first pass, or, by epochs, each."""
        self._tell(runner, runner.epoch)

    @every("1ep")
    def before_train_iter(self, runner: Runner) -> None:
        """By iterations, the epoch points come once; the next pass begins behind this batch, also if it is skipped."""
        self._tell(runner, runner.epoch + 1)

    def _tell(self, runner: Runner, epoch: int) -> None:
        found = listener(runner.train_loop.dataloader)
        if found is not None:
            found.set_epoch(epoch)


def listener(loader: Iterable[Any]) -> Any:
    """The first of loader, sampler and batch sampler's sampler that wants to know the pass; None where none does."""
    sampler = getattr(loader, "sampler", None)
    inner = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
    candidates: tuple[Any, ...] = (loader, sampler, inner)
    return next((candidate for candidate in candidates if hasattr(candidate, "set_epoch")), None)
