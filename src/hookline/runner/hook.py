"""Hook: the base class of the hooks of a Runner, the built-in ones and yours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookline.plan.hook import BaseHook

if TYPE_CHECKING:
    from hookline.runner.runner import Runner  # noqa: F401  # in the quotes below


class Hook(BaseHook["Runner"]):
    """An object whose methods are named after points of the loop (see `hookline.plan.points`).

        class CheckLoss(Hook):
            def after_train_iter(self, runner, outputs):
                if not outputs["loss"].isfinite():
                    runner.stop("the loss is not finite")

    A method takes the runner and, by name, any of the arguments of its point. It may also take nothing and use
    `self.runner`. `around_<scope>` is a generator with one `yield`. A mistake (a misspelled point, an argument that the
    point does not have) is refused when the hook is registered.

    The contract: a point is called in the training process, and training waits for it. A method should therefore do
    little, and leave tensors on their device. A method that raises ends the run, and the error names the hook.
    """
