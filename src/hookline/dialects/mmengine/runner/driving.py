"""Differences between MMEngine's loops and hookline's: `train()` and `eval()` at every pass, and loops of a project."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import torch

from hookline.common import modes
from hookline.common.plain import check_plain, without_numpy
from hookline.dialects.mmengine.model import BaseModel
from hookline.dialects.mmengine.runner import checkpoint, own_loops
from hookline.dialects.plain import plain_data
from hookline.engine.evaluation import Evaluation
from hookline.engine.training import Training
from hookline.errors import HookError
from hookline.plan.calls import compile_point
from hookline.plan.entry import is_custom
from hookline.resume.contract import RunContract
from hookline.run.hints import Hints
from hookline.runner.host import RunnerHost

if TYPE_CHECKING:
    from hookline.dialects.mmengine.runner.runner import Runner
    from hookline.engine.loop_specs import TrainLoop


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
    """Evaluates with hookline's loop, or with the project's loop."""

    def in_mode(self) -> AbstractContextManager[None]:
        """Return a context that leaves the modes to the loops, which call `eval()` as in MMEngine."""
        return torch.set_grad_enabled(False)

    def run(self, stage: Literal["val", "test"]) -> dict[str, Any]:
        """Evaluate with hookline's loop, or with the project's loop."""
        runner = cast("MMHost", self.host).runner
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


@dataclass
class MMHints(Hints):
    """The hints in messages, in the words of MMEngine."""

    closure: str = "override train_step in the model, and call optim_wrapper.optimizer.step(closure)"


class MMHost(RunnerHost):
    """Runs what a Runner of MMEngine was given. Its loops are built when they are needed."""

    runner: Runner
    strict_start: ClassVar[bool] = False
    training_class: ClassVar[type[Training]] = MMTraining
    evaluation_class: ClassVar[type[Evaluation]] = MMEvaluation
    contract_class: ClassVar[type[RunContract]] = MMContract
    hints_class: ClassVar[type[Hints]] = MMHints

    @property
    def train_loop(self) -> TrainLoop:
        """Return the training loop."""
        if self.loop_given is None:
            self.loop_given = self.runner._described_training()
        return self.loop_given

    @property
    def steps_are_custom(self) -> bool:
        """Return whether the model has its own `train_step`, which may call the optimizers as it likes."""
        return getattr(type(self.model), "train_step", None) is not BaseModel.train_step

    @property
    def seed_of_process(self) -> int:
        """Return the seed of this process's random numbers."""
        return self.seed + (self.strategy.rank if self.runner.diff_rank_seed else 0)

    def run_training(self) -> None:
        """Train with hookline's loop, or with the project's."""
        loop: Any = self.train_loop
        if getattr(loop, "is_own", False):
            own_loops.train(self.training, loop)
        else:
            super().run_training()

    def evaluate(self, stage: Literal["val", "test"]) -> dict[str, Any]:
        """Validate or test once. In the middle of a run, the user's hooks are called as in a run of its own."""
        if self.running is None:
            return super().evaluate(stage)
        self._call_custom("before_run")
        metrics = super().evaluate(stage)
        self._call_custom("after_run")
        return metrics

    def _call_custom(self, point: str) -> None:
        calls = tuple(call for call in self.plan.calls_at(point) if is_custom(call.method))
        compile_point(calls, "none", self.plan.ledger)()

    def more_facts(self) -> dict[str, Any]:
        """Return the config as text and the metadata of the dataset, which programs expect in a checkpoint."""
        dataset = getattr(self.runner.train_dataloader, "dataset", None) if self.has_training else None
        known = without_numpy(getattr(dataset, "metainfo", None))
        try:
            check_plain(known, "dataset_meta")
        except HookError:
            known = plain_data(known)
        return {"cfg": getattr(self.runner.cfg, "pretty_text", str(self.runner.cfg)), "dataset_meta": known}
