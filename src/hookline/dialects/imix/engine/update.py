"""An update that a hook makes: the loop hands the loss over, and OptimizerHook makes the update of it."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from hookline.engine.optim import Optim
from hookline.plan.hook import Hook

log = logging.getLogger("hookline")


class HookedOptim(Optim):
    """An Optim whose updates wait for the hook that makes them, in `after_train_iter`."""

    #: Whether there is such a hook.
    is_awaited = True
    _given: tuple[Tensor, dict[str, Any]] | None = None

    def update(self, loss: Tensor, outputs: dict[str, Any] | None = None) -> None:
        """Keep the loss for the hook."""
        if self.is_awaited:
            self._given = (loss, {} if outputs is None else outputs)

    def reset(self) -> None:
        """Forget an update that was cut off, and the graph of its loss."""
        super().reset()
        self._given = None

    def flush(self) -> None:
        """The hook ends a window itself, except where it is not called because the batch was left out."""
        if self._given is None:
            super().flush()

    def make(self, ends_window: bool) -> Tensor | None:
        """Make the update of the current iteration, if the loop has given a loss for it; gives that, detached."""
        if self._given is None:
            return None
        (loss, outputs), self._given = self._given, None
        detached: Tensor = outputs.get("loss", loss)  # the loop has detached it for its hooks
        outputs["loss"] = loss
        Optim.update(self, loss, outputs)
        if outputs["loss"] is not loss or detached.requires_grad:
            detached = outputs["loss"].detach()
        outputs["loss"] = detached
        if ends_window:
            Optim.flush(self)
        return detached


class WithoutUpdates(Hook):
    """Where no OptimizerHook is registered: says so, and lets go of the graph of a step when its hooks are through."""

    def __init__(self, engine: Any) -> None:
        self._engine = weakref.ref(engine)

    def before_train(self) -> None:
        """Before the first step."""
        log.warning(
            "no OptimizerHook is among the hooks of this engine, so nothing is trained, unless one of your hooks makes "
            "the updates: engine.register_hooks([OptimizerHook()])"
        )

    def around_train_iter(self) -> Iterator[None]:
        """A hook of the user's may need the graph until the last of them was called."""
        yield
        engine: Any = self._engine()
        engine.output, engine.model_output = without_graph(engine.output), without_graph(engine.model_output)


def without_graph(value: Any) -> Any:
    """The same values, as far as they are tensors, detached; containers are copied."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, Mapping):
        return {key: without_graph(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(without_graph(each) for each in value)
    return value
