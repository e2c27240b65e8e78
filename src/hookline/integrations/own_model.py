"""The model that the body of a session has to call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.nn.parallel import DistributedDataParallel

from hookline.errors import HooklineError

if TYPE_CHECKING:
    from contextlib import ExitStack

    from torch import nn

    from hookline.engine.run import Run


class OwnModel:
    """Finds out whether the body calls the model that several processes or a compiler need.

    Args:
        run: The run.
        given: The model that the user has given, which the user may have compiled.
    """

    def __init__(self, run: Run, given: nn.Module | None) -> None:
        self._run, self._given = run, given
        #: True if the body has to call `run.model`.
        self.must_be_called = False
        #: True if it was called for the current batch.
        self.was_called = False

    def watch(self, leaving: ExitStack) -> None:
        """Find out whether the body has to call `run.model`, and watch its calls until the end of the session."""
        compute = self._run.compute
        self.must_be_called = compute.wrapped is not compute.model and compute.wrapped is not self._given
        if isinstance(compute.wrapped, DistributedDataParallel):

            def note(*_: Any) -> None:
                self.was_called = True

            leaving.callback(compute.wrapped.register_forward_pre_hook(note).remove)

    def taken(self) -> nn.Module:
        """Return the model to call."""
        wrapped = self._run.compute.wrapped
        if not isinstance(wrapped, DistributedDataParallel):  # only there, code may use both without a difference
            self.must_be_called = False
        return wrapped

    def refuse_uncalled(self) -> None:
        """Refuse a body that has not called it."""
        if not self.must_be_called or self.was_called:
            return
        alone = self._run.strategy.acts_alone
        why = "it is the compiled model" if alone else "several processes share their gradients only through it"
        raise HooklineError(f"the body of the loop did not call run.model; call it, not your model, because {why}")
