"""Updates that a hook performs: the loop stores the loss, and OptimizerHook updates the weights with it."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from hookline.optim.optim import Optim
from hookline.runner.hook import Hook

log = logging.getLogger("hookline")


class HookedOptim(Optim):
    """An Optim whose updates wait until a hook performs them, in `after_train_iter`."""

    #: Whether the engine has such a hook.
    is_awaited = True
    _given: tuple[Tensor, dict[str, Any]] | None = None

    def update(self, loss: Tensor, outputs: dict[str, Any] | None = None) -> None:
        """Store the loss for the hook."""
        if self.is_awaited:
            self._given = (loss, {} if outputs is None else outputs)

    def reset(self) -> None:
        """Drop an update that was interrupted, with the graph of its loss."""
        super().reset()
        self._given = None

    def flush(self) -> None:
        """End a window whose last batch was skipped. In all other cases the hook ends the window itself."""
        if self._given is None:
            super().flush()

    def perform(self, ends_window: bool) -> Tensor | None:
        """Perform the update of the current iteration, if the loop has stored a loss. Return that loss, detached."""
        if self._given is None:
            return None
        (loss, outputs), self._given = self._given, None
        detached: Tensor = outputs.get("loss", loss)  # the loop has already detached it for its hooks
        outputs["loss"] = loss
        Optim.update(self, loss, outputs)
        if outputs["loss"] is not loss or detached.requires_grad:
            detached = outputs["loss"].detach()
        outputs["loss"] = detached
        if ends_window:
            Optim.flush(self)
        return detached


class WithoutUpdates(Hook):
    """Warns that no OptimizerHook is registered, and drops the graph of each step after all its hooks have run."""

    def __init__(self, engine: Any) -> None:
        self._engine = weakref.ref(engine)

    def before_train(self) -> None:
        """Warn before the first step."""
        log.warning(
            "this engine has no OptimizerHook, so nothing is trained unless one of your own hooks updates the weights; "
            "to add it: engine.register_hooks([OptimizerHook()])"
        )

    def around_train_iter(self) -> Iterator[None]:
        """Drop the graph after the last hook, because the user's hooks may need it until then."""
        yield
        engine: Any = self._engine()
        engine.output, engine.model_output = without_graph(engine.output), without_graph(engine.model_output)


def without_graph(value: Any) -> Any:
    """Return the value with all its tensors detached. Containers are copied."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, Mapping):
        return {key: without_graph(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(without_graph(each) for each in value)
    return value
