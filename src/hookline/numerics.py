"""A loss that is not a number ends the run: found where the loss is read anyway, so that no step waits for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hookline.errors import NumericsError

if TYPE_CHECKING:
    from hookline.runner import Runner


def refuse_infinite_loss(runner: Runner) -> None:
    """End the run when the newest loss is NaN or Inf, before it is logged or saved as if it were a result."""
    history = runner.hub.scalars.get("train/loss")
    if history is not None and not math.isfinite(loss := history.current()):
        raise NumericsError(
            f"the loss has become {loss} by iteration {runner.iter + 1}, so training cannot go on; look at the "
            "learning rate, the data and the precision, or leave such batches out: runner.skip_step(reason) in a "
            "before_backward hook"
        )
