"""An update that a hook makes: the loop hands the loss over, and OptimizerHook makes the update of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.optim import Optim

if TYPE_CHECKING:
    from torch import Tensor


class HookedOptim(Optim):
    """An Optim whose updates wait for the hook that makes them, in `after_train_iter`."""

    _given: tuple[Tensor, dict[str, Any]] | None = None

    def update(self, loss: Tensor, outputs: dict[str, Any] | None = None) -> None:
        """Keep the loss for the hook."""
        self._given = (loss, {} if outputs is None else outputs)

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
