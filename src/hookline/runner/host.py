"""RunnerHost: the object behind a `Runner`. It checks, starts and resumes the run that the Runner was given."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from hookline.checks import optimizers
from hookline.checks.before_training import check_before_first_pass, check_before_training, refuse_empty_loaders
from hookline.engine.run import Run
from hookline.errors import ConfigError
from hookline.lifecycle.session import session
from hookline.resume import facts
from hookline.resume.contract import RunContract

if TYPE_CHECKING:
    from hookline.resume.start import Start
    from hookline.runner.runner import Runner


class RunnerHost(Run):
    """Runs what a Runner was given."""

    #: The object that hooks see.
    runner: Runner
    start: Start
    #: The rules for continuing from a checkpoint. A dialect may replace them.
    contract_class: ClassVar[type[RunContract]] = RunContract

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    def train(self) -> None:
        """Train to the end, or to a stop."""
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
        refuse_empty_loaders({"train": loop, **evaluations})
        with self.acceleration.threads_set(), session(self, "train", self.start):
            self.report_finished()
            self.run_training()

    def evaluate(self, stage: Literal["val", "test"]) -> dict[str, Any]:
        """Validate or test once, and return the metrics."""
        loops_of_stage = self.val_loops if stage == "val" else self.test_loops
        if not loops_of_stage:
            added = (
                f"Runner(..., {stage}=EvalLoop(loader, ...))"
                if self.config is None
                else f"the section '{stage}' of the config"
            )
            raise ConfigError(f"this run has no {stage} loop; add one: {added}")
        refuse_empty_loaders({f"{stage} {name}".strip(): loop for name, loop in loops_of_stage.items()})
        with self.acceleration.threads_set(), session(self, stage, self.start):
            return self.evaluation.run(stage)

    def report_finished(self) -> None:
        """Report it if there is nothing left to train. Let a run that was stopped for now continue."""
        stopped = self.requests.stopped
        if self.train_loop.is_over(self.position):
            self.terminal.say(
                f"training is already finished: {self.epoch} epochs, {self.iter} iterations; "
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
        if value is not None and value < (self.iter if limit == "max_iters" else self.epoch):
            return f"{limit} is only {value}"
        return f"to train longer, increase {limit}"

    def before_training(self) -> None:
        """Record the config, and run the checks that are possible before the first step."""
        if self.span is not None:
            self.span.start_at(self.position)
        self.training.losses_since = self.position.iter
        self.training.before_first_pass = partial(check_before_first_pass, self)
        self.training.recheck = partial(optimizers.refuse_emptied, self)
        if self.config is not None:
            self.writers.write_config("config", self.config, self.iter)
        check_before_training(self)

    def report_changes(self) -> None:
        """Refuse an optimizer that has no parameters left, and warn about parameters that no optimizer has."""
        optimizers.refuse_emptied(self)
        optimizers.report_untrained(self)

    def note_what_is_asked(self) -> None:
        """Remember what this run was asked to do. A second training of this runner goes on with what the first did."""
        now = facts.asked(self)
        if self.loading.started and self.asked:
            changeable = ("max_epochs", "max_iters", "hooks", "parts")
            now = {**self.asked, **{key: now[key] for key in changeable}}
        self.asked = now

    def asked_by_now(self) -> dict[str, Any]:
        """Return what this run was asked to do, with the hooks that joined it since."""
        if not self.asked:
            return {}
        hooks = {entry.name: self.asked["hooks"].get(entry.name) for entry in self.plan}
        missing = {entry.name: facts.parameters_of(entry) for entry in self.plan if hooks[entry.name] is None}
        return {**self.asked, "hooks": {**hooks, **missing}}
