"""PruningHook: reports validations to an Optuna study, and ends a run that is worse than the others."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common import studies
from hookline.common.checks import check_choice, check_int, check_name
from hookline.common.files import real_path
from hookline.common.monitor import BestSoFar
from hookline.common.monitor import monitor as watch
from hookline.errors import ConfigError, StorageError
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from optuna.trial import Trial

    from hookline.runner.runner import Runner

log = logging.getLogger("hookline")

#: The attributes of a trial: the folder of its run, and how its last process ended.
FOLDER, END = "folder", "end"
#: The possible ends of a trial's process: the run is over, it was pruned, or it was stopped and has to be resumed.
FINISHED, PRUNED, UNFINISHED = "finished", "pruned", "unfinished"


class PruningHook(Hook):
    """Ends a run early if it is worse than the other runs of an Optuna study.

    After every validation, the value of a metric is reported to the study. The pruner compares it with the values of
    other trials at the same validation, and may end this run. A pruned run does not continue when it is resumed, unless
    the parameters of this hook change. The last validation of a run prunes nothing.

    `hookline sweep` adds this hook to its trials. In a run that you start in another way, it creates a trial, and the
    study if necessary. The value of a trial is the best of its validations. A resumed run continues its trial.

    If the study cannot be reached, training continues, and the values are sent after a later validation.

    Cost: a few accesses to the study's storage per validation.

    Example:
        from hookline.hooks import PruningHook
        from hookline.testing import toy_runner

        hook = PruningHook("accuracy", study="digits", storage="sqlite:///runs/digits.db")
        toy_runner(max_epochs=3, custom_hooks=[hook]).train()

    YAML:
        custom_hooks:
          - {type: PruningHook, monitor: accuracy, study: digits, storage: "sqlite:///runs/digits.db"}

    Args:
        monitor: The name of a validation metric.
        study: The name of the study.
        storage: Where the study is stored: a URL that Optuna accepts, or `journal:FILE`. By default,
            `sqlite:///runs/<study>/study.db`.
        trial: The number of an existing trial of the study. By default, the run becomes a new trial.
        pruner: `median`, `hyperband`, or `none`, which only reports.
        rule: `greater` or `less`, whichever is better. By default, it is inferred from the metric's name.
    """

    priority = "LOWEST"
    exchanges = True

    def __init__(
        self,
        monitor: str,
        study: str,
        storage: str | None = None,
        trial: int | None = None,
        pruner: str = "median",
        rule: str | None = None,
    ) -> None:
        for name, value in (("monitor", monitor), ("study", study)):
            if not isinstance(value, str) or not value:
                raise ConfigError(f"PruningHook: {name} must be a name, not {value!r}")
            check_name(f"PruningHook: {name}", value)
        check_choice("PruningHook: pruner", pruner, studies.PRUNERS)
        if trial is not None:
            check_int("PruningHook: trial", trial, least=0)
        studies.import_optuna()
        self.monitor = monitor
        self.study = study
        # Not `storage`: parameters are part of checkpoints, and a URL may have a password.
        self._storage = storage if storage is not None else studies.default_storage(Path("runs") / study)
        self.trial = trial
        self.pruner = pruner
        self.best = BestSoFar(watch(monitor, rule, who="PruningHook"))
        #: The number of validations during training. `runner.validations` also counts calls of `runner.val()`.
        self.validations = 0
        #: Values that could not be reported yet, by the number of the validation.
        self._unsent: dict[int, float] = {}
        self._trial: Trial | None = None

    def watched_metrics(self) -> tuple[str, ...]:
        """Return the metric, so that a misspelled one is refused before training."""
        return (self.monitor,)

    def before_train(self, runner: Runner) -> None:
        """Find the trial of this run in the study, or add one."""
        if not runner.may_validate:
            raise ConfigError("PruningHook: this run has no validation; add `val` to the Runner or to the config")
        self._trial = None
        runner.strategy.on_main(lambda: self._join(runner))  # so that all processes see its error

    def after_val_epoch(self, runner: Runner, metrics: Mapping[str, Any]) -> None:
        """Report the metric, and stop the run if the pruner says so."""
        if runner.running != "train":
            return
        value = self.best.monitor.value(metrics, "PruningHook")
        self.validations = number = self.validations + 1
        self.best.take(value, f"validation {number}")
        if self._trial is None:  # only the main process has it
            return
        self._unsent[number] = value
        if self._report() and not runner.train_loop.is_over(runner.position) and self._should_prune():
            runner.stop(
                f"{self.monitor} is {value:.6g} at validation {number}, worse than in other trials of the study "
                f"'{self.study}'"
            )

    def after_train(self, runner: Runner) -> None:
        """Record how the run ended. Without that, the trial would look unfinished."""
        runner.strategy.on_main(lambda: self._record_end(runner))

    def state_dict(self) -> dict[str, Any]:
        """Return the best value, the number of validations, and the values that could not be reported yet."""
        unsent = {str(number): value for number, value in self._unsent.items()}
        return {**self.best.state_dict(), "validations": self.validations, "unsent": unsent}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self.best.load_state_dict(state, "PruningHook")
        self.validations = state["validations"]
        self._unsent = {int(number): float(value) for number, value in state["unsent"].items()}

    # -- the study, in the main process

    def _join(self, runner: Runner) -> None:
        with studies.study_errors(self._storage):
            self._trial = self._given_trial() if self.trial is not None else self._own_trial(runner)

    def _record_end(self, runner: Runner) -> None:
        if self._trial is None:  # registered during training
            return
        stopped = runner.stopped
        pruned = stopped and stopped.by == type(self).__name__
        end = UNFINISHED if stopped and stopped.for_now else PRUNED if pruned else FINISHED
        with studies.study_errors(self._storage):
            self._send()
            self._trial.set_user_attr(END, end)
            if self.trial is None and end != UNFINISHED:
                self._tell(end)

    def _given_trial(self) -> Trial:
        study = studies.find_study(self.study, studies.open_storage(self._storage), studies.make_pruner(self.pruner))
        trial = studies.find_trial(study, self.trial) if study is not None and self.trial is not None else None
        if trial is None:
            what = f"the study '{self.study}'" if study is None else f"trial {self.trial} of the study '{self.study}'"
            raise ConfigError(f"PruningHook: {what} does not exist in {studies.without_password(self._storage)}")
        return trial

    def _own_trial(self, runner: Runner) -> Trial:
        """Return the trial of this folder if the run is resumed and its trial is not finished, or else a new one."""
        optuna = studies.import_optuna()
        direction = "maximize" if self.best.monitor.rule == "greater" else "minimize"
        study = optuna.create_study(
            study_name=self.study,
            storage=studies.open_storage(self._storage),
            pruner=studies.make_pruner(self.pruner),
            direction=direction,
            load_if_exists=True,
        )
        if study.direction.name.lower() != direction:
            raise ConfigError(
                f"PruningHook: the study '{self.study}' has the direction '{study.direction.name.lower()}', but "
                f"{self.monitor} needs '{direction}'; choose another study"
            )
        folder = str(real_path(runner.work_dir))
        for frozen in reversed(study.get_trials(deepcopy=False)) if runner.iter else ():
            if frozen.user_attrs.get(FOLDER) == folder and not frozen.state.is_finished():
                found = studies.find_trial(study, frozen.number)
                assert found is not None
                return found
        trial: Trial = study.ask()
        trial.set_user_attr(FOLDER, folder)
        return trial

    def _report(self) -> bool:
        """Report the values that are not reported yet, and return whether that was possible."""
        try:
            with studies.study_errors(self._storage):
                self._send()
        except StorageError as error:
            log.warning("%s (training continues; %s will be reported later)", error, self.monitor)
            return False
        return True

    def _send(self) -> None:
        assert self._trial is not None
        for number, value in sorted(self._unsent.items()):
            self._trial.report(value, number)  # ignored if a killed process has already reported it
            del self._unsent[number]

    def _should_prune(self) -> bool:
        assert self._trial is not None
        try:
            with studies.study_errors(self._storage):
                return self._trial.should_prune()
        except StorageError as error:
            log.warning("%s (training continues; nothing is pruned)", error)
            return False

    def _tell(self, end: str) -> None:
        """Finish a trial that this run has added."""
        assert self._trial is not None
        states, study = studies.import_optuna().trial.TrialState, self._trial.study
        if end == PRUNED:
            study.tell(self._trial, state=states.PRUNED)
        elif self.best.value is None:
            study.tell(self._trial, state=states.FAIL)
        else:
            study.tell(self._trial, self.best.value)
        self._trial = None
