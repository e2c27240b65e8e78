"""Leftovers of a plain loop in the body of a session: calls that run.step makes, so that they would act twice.

The first window of a run is looked at, and the code between epochs. A loop repeats itself, so later steps cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.errors import HooklineError

if TYPE_CHECKING:
    from contextlib import ExitStack

    from torch.optim import Optimizer

    from hookline.engine.run import Run
    from hookline.optim.optims import Optims


class Leftovers:
    """Finds calls in the body that belong to `run.step`.

    Args:
        optims: The optims of the run.
    """

    def __init__(self, optims: Optims) -> None:
        self._optims = optims
        #: True until the first update, which shows whether the body is right.
        self.is_new = True
        #: True once an optimizer was stepped, and once one was stepped with gradients.
        self._was_stepped = self._was_trained = False
        self._has_gradients = False
        self._counts: list[tuple[str, object]] = []
        self._handles: list[Any] = []

    def start(self, leaving: ExitStack) -> None:
        """Note the state before the loop begins, and look at the first steps of the optimizers."""
        for optim in self._optims.values():
            handle = optim.optimizer.register_step_pre_hook(lambda optimizer, *_: self._see_step(optimizer))
            self._handles.append(handle)
        leaving.callback(self._look_no_more)
        self.begin()

    def _see_step(self, optimizer: Optimizer) -> None:
        self._was_stepped = True
        groups = optimizer.param_groups
        if any(parameter.grad is not None for group in groups for parameter in group["params"]):
            self._was_trained = True

    def _look_no_more(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def begin(self) -> None:
        """Note the state before code of the user runs: the body of the loop, or code between epochs."""
        self._has_gradients = self._find_gradients()
        self._counts = self._count_schedulers()

    def refuse_backward(self) -> None:
        """Refuse gradients that the body has computed or dropped itself before `run.step`."""
        if len(self._optims) != 1 or self._optims.sole.keep_gradients:
            return
        has_gradients = self._find_gradients()
        if self._has_gradients and not has_gradients:
            raise HooklineError(
                "the body of the loop has dropped the gradients of an open accumulation window, and run.step(loss) "
                "would update with the rest of it; leave out optimizer.zero_grad(), because run.step(loss) calls it"
            )
        if has_gradients and not self._has_gradients:
            raise HooklineError(
                "the body of the loop has called backward() itself, and run.step(loss) would add its gradients to "
                "these; leave out backward(), or call run.stepped(loss) after your own optimizer step"
            )

    def refuse_schedules(self) -> None:
        """Refuse a scheduler that the user's code has stepped, because hookline steps it."""
        for before, (name, count) in zip(self._counts, self._count_schedulers(), strict=False):
            if before != (name, count):
                raise HooklineError(
                    f"the loop has called step() of {name} itself, but a session steps its schedulers; leave out that "
                    "call, or the scheduler in session(schedulers=...)"
                )

    def has_updated(self) -> bool:
        """Return whether there was an update. Refuse one without a gradient."""
        if self._was_stepped and not self._was_trained:
            raise HooklineError(
                "after the first backward pass, no parameter of the optimizer has a gradient, so nothing would be "
                "trained; compute the loss with the model that was given to session(), and give the optimizer its "
                "parameters"
            )
        if self._was_trained:
            self._look_no_more()
        return self._was_trained

    def refuse_no_step(self) -> None:
        """Refuse a loop with its own steps that has made none."""
        if not self._was_trained:
            what = "had a gradient in any step" if self._was_stepped else "was stepped"
            raise HooklineError(
                f"run.stepped(loss) was called, but no parameter of the optimizer {what} since the session began; call "
                "loss.backward() and optimizer.step() before it, or run.step(loss) instead of all three"
            )

    def _find_gradients(self) -> bool:
        return any(parameter.grad is not None for optim in self._optims.values() for parameter in optim.parameters())

    def _count_schedulers(self) -> list[tuple[str, object]]:
        return [
            (type(scheduled.scheduler).__name__, getattr(scheduled.scheduler, "last_epoch", None))
            for optim in self._optims.values()
            for scheduled in optim.schedulers
        ]


def refuse_own_steps(run: Run) -> None:
    """Refuse what has no effect in a loop that makes its own backward passes and steps."""
    for point in ("before_backward", "after_backward", "around_backward"):
        for call in run.plan.calls_at(point):
            raise HooklineError(
                f"{call.who} works at {point}, which a loop with its own backward pass does not reach; use "
                "run.step(loss), or remove the hook"
            )
    if run.optims and any(optim.scaler is not None for optim in run.optims.values()):
        raise HooklineError("precision='fp16' scales the loss in run.step(loss); use that, or precision='bf16'")
    if any(optim.accumulate > 1 for optim in run.optims.values()):
        raise HooklineError(
            "accumulate has no effect in a loop that steps its optimizer itself; leave it out, and step when you "
            "want, or use run.step(loss)"
        )
