"""RunnerHost: the object behind a `Runner`. It checks, starts and resumes the run that the Runner was given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from hookline.checks.before_training import check_loaders
from hookline.engine.run import Run
from hookline.errors import ConfigError
from hookline.lifecycle import rerun
from hookline.lifecycle.session import session
from hookline.plan.scopes import NOTHING
from hookline.resume.contract import RunContract
from hookline.run.hints import Hints

if TYPE_CHECKING:
    from hookline.resume.start import Start
    from hookline.runner.stages import RunStages
    from hookline.state.host import Verb


class RunnerHost(Run):
    """Runs what a Runner was given."""

    #: The Runner, which hooks see. A dialect narrows the type.
    runner: Any
    start: Start
    #: Returns the context of the rules about imports, if a config has built the run.
    import_rules: Callable[[], AbstractContextManager[None]] = nullcontext
    stages: RunStages
    #: The words of messages. A dialect may replace them.
    hints_class: ClassVar[type[Hints]] = Hints
    #: The rules for continuing from a checkpoint. A dialect may replace them.
    contract_class: ClassVar[type[RunContract]] = RunContract

    def __init__(self, runner: Any) -> None:
        self.runner, self.hints = runner, self.hints_class()

    def train(self) -> None:
        """Train to the end, or to a stop."""
        with self.training_session():
            self.run_training()

    @contextmanager
    def training_session(self) -> Iterator[None]:
        """Surround a training, whoever owns its loop: checks, folder, signals, records, the points of a run."""
        with self._repeated("train"), self._session_of_training():
            yield

    @contextmanager
    def _session_of_training(self) -> Iterator[None]:
        loop = self.train_loop
        if self.needs_optim and not self.optims:
            raise ConfigError("training needs an optim; add one: Runner(..., optim=Optim(optimizer))")
        if self.optims.are_named and not loop.updates_itself:
            raise ConfigError(
                f"there are {len(self.optims)} optims ({', '.join(self.optims)}), so the step must choose which one to "
                "update: give it a parameter named optim, and call optim['name'].update(loss)"
            )
        evaluations = {f"val {name}".strip(): each for name, each in self.val_loops.items()}
        if self.trial_batch and self.strict_start:
            evaluations |= {f"test {name}".strip(): each for name, each in self.test_loops.items()}
        check_loaders({"train": loop, **evaluations})
        with self.import_rules(), self.acceleration.threads_set(), session(self, "train", self.start, self.stages):
            self.report_finished()
            yield

    def evaluate(self, stage: Literal["val", "test"]) -> dict[str, Any]:
        """Validate or test once, and return the metrics. A hook may call this in the middle of a run."""
        loops_of_stage = self.val_loops if stage == "val" else self.test_loops
        if not loops_of_stage:
            added = (
                f"Runner(..., {stage}=EvalLoop(loader, ...))"
                if self.config is None
                else f"the section '{stage}' of the config"
            )
            raise ConfigError(f"this run has no {stage} loop; add one: {added}")
        check_loaders({f"{stage} {name}".strip(): loop for name, loop in loops_of_stage.items()})
        if self.running is not None:
            self.share_data()  # a loop may have been added since the run began
            return self.evaluation.run_inside(stage)
        with (
            self._repeated(stage),
            self.import_rules(),
            self.acceleration.threads_set(),
            session(self, stage, self.start, self.stages),
        ):
            return self.evaluation.run(stage)

    def _repeated(self, verb: Verb) -> AbstractContextManager[None]:
        """Return the context of a session in which steps are repeated; nothing outside of a replay."""
        if rerun.active is not None:
            return rerun.active.around(self, verb)
        if rerun.VARIABLE in os.environ:
            rerun.refuse(self.work_dir)
        return NOTHING

    def report_finished(self) -> None:
        """Report it if there is nothing left to train. Let a run that was stopped for now continue."""
        stopped = self.requests.stopped
        if self.train_loop.is_over(self.position) and not self.position.between_epochs:
            self.terminal.say(
                f"training is already finished: {self.epoch} epochs, {self.position.iter} iterations; "
                + self._how_to_train_longer()
            )
        elif stopped and stopped.for_now:
            self.requests.resume_training()
        elif stopped:
            who = f" by {stopped.by}" if stopped.by else ""
            self.terminal.say(
                f"this run was stopped{who}: {stopped.reason}. To continue, change the parameters of that hook or "
                "remove it, and resume"
            )

    def _how_to_train_longer(self) -> str:
        limit = "max_iters" if self.train_loop.max_epochs is None else "max_epochs"
        found, value = self.start.contract.resumption, getattr(self.train_loop, limit)
        differing = [each for each in found.differences if each.key == limit] if found is not None else []
        if found is not None and differing and differing[0].winner == "checkpoint":
            choice = found.hint(f"{limit}=config")
            return f"{limit} is {value} as in the checkpoint, not {differing[0].config}; to change that, use {choice}"
        if value is not None and value < (self.position.iter if limit == "max_iters" else self.epoch):
            return f"{limit} is only {value}"
        return f"to train longer, increase {limit}"
