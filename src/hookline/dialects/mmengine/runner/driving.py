"""How MMEngine's loops differ from hookline's: `train()` and `eval()` at every pass, and loops of a project."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch

from hookline.common import modes
from hookline.dialects.mmengine.runner import checkpoint, own_loops
from hookline.engine.evaluation import Evaluation
from hookline.engine.training import Training
from hookline.resume.contract import RunContract

if TYPE_CHECKING:
    from hookline.dialects.mmengine.runner.runner import Runner


class MMTraining(Training):
    """Drives a training as MMEngine's loops do."""

    weighs_samples = False

    def in_mode(self) -> AbstractContextManager[None]:
        """Return a context that leaves the modes to the loops, which call `train()` as in MMEngine."""
        return torch.set_grad_enabled(True)

    def batches_left(self) -> int | None:
        """Return how many batches an accumulation window can have. A single optimizer is updated once per batch."""
        return self.batches_to_come() if len(self.optims) == 1 else None

    def open_batches(self) -> Iterable[tuple[Any, bool]]:
        """Start a pass over the training data. A hook may have changed modes, and MMEngine's loops call `train()`."""
        batches = super().open_batches()
        if self.loop.by_epoch:
            modes.train(self.compute.model)
            return batches
        return self._in_training_mode(batches)

    def _in_training_mode(self, batches: Iterable[tuple[Any, bool]]) -> Iterator[tuple[Any, bool]]:
        for pair in batches:
            modes.train(self.compute.model)
            yield pair


class MMEvaluation(Evaluation):
    """Evaluates with hookline's loop, or with that of the project."""

    def in_mode(self) -> AbstractContextManager[None]:
        """Return a context that leaves the modes to the loops, which call `eval()` as in MMEngine."""
        return torch.set_grad_enabled(False)

    def run(self, stage: Literal["val", "test"]) -> dict[str, Any]:
        """Evaluate with hookline's loop, or with that of the project."""
        runner = cast("Runner", self.host)
        loop: Any = runner.val_loop if stage == "val" else runner.test_loop
        runner.follow_loop()
        if getattr(loop, "is_own", False):
            return own_loops.evaluate(runner, loop, stage)
        return super().run(stage)


class MMContract(RunContract):
    """Also reads weights that MMEngine wrote."""

    def read_weights(self, path: Path) -> dict[str, Any]:
        """Read a checkpoint file, even one from MMEngine, without running any code in it."""
        found = checkpoint.read_checkpoint(path)
        if isinstance(found.get("state_dict"), Mapping):
            found["state_dict"] = checkpoint.inside_of(checkpoint.weights_of(found), self._runner.model)
        return found
