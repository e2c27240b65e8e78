"""The loop of a sweep: claim a trial, start its process, wait, and tell the study the result."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hookline.common import studies
from hookline.errors import HooklineError, NumericsError, StorageError
from hookline.launching.signals import Signals
from hookline.sweeps.claims import Claims, read_home
from hookline.sweeps.studies import ATTEMPTS, HOME, REASON, SECONDS, Settings
from hookline.sweeps.trials import OUTPUT, Job, Outcome, Process, judge, last_step, read_error, start

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

#: The seconds between two looks at processes, and at the study, if there is nothing to start.
PERIOD, RESCAN = 0.05, 3.0
#: A trial that no process has claimed for this many seconds was left by one that was killed at that moment.
ABANDONED = 30.0
#: If this many trials fail in the same way before one succeeds, the sweep ends. NaN depends on the values, so it takes
#: more of them.
SAME_FAILURES, SAME_NUMERICS = 3, 10


class SweepError(HooklineError):
    """The sweep cannot continue because of its trials. The exit code comes from the trials."""

    @classmethod
    def from_trial(cls, job: Job, outcome: Outcome, why: str = "") -> SweepError:
        """Return the error about a failed trial."""
        error = cls(
            f"{why}Trial {job.number} ended with exit code {outcome.exit_code}: {outcome.reason}\n"
            f"  its output is in {job.folder / OUTPUT}; the same command continues the sweep and repeats these trials"
        )
        error.exit_code = outcome.exit_code
        return error


@dataclass
class Running:
    """A trial whose process is running."""

    job: Job
    process: Process
    began: float
    #: The step of the newest checkpoint at the start.
    step: int


@dataclass
class Failures:
    """Trials that failed before any trial succeeded. They are not reported to the study until the reason is clear."""

    held: list[tuple[Job, Outcome]] = field(default_factory=list)

    def are_all_the_same(self) -> bool:
        """Return whether there are enough of them to conclude that every trial would fail."""
        kinds = {(outcome.exit_code, re.sub(r"[-+.\d]+(e[-+]?\d+)?", "0", outcome.reason)) for _, outcome in self.held}
        codes = {code for code, _ in kinds}
        limit = SAME_NUMERICS if codes == {NumericsError.exit_code} else SAME_FAILURES
        return len(kinds) == 1 and len(self.held) >= limit


class Sweep:
    """Runs the trials of a study that are left to run.

    Args:
        settings: What to do.
        study: The study.
        started: Starts the process of a trial.
        ended: Called with every trial that has ended, after the study knows.
        progress: Called when the numbers of trials have changed.
    """

    def __init__(
        self,
        settings: Settings,
        study: Study,
        *,
        started: Callable[[Settings, Job], Process] = start,
        ended: Callable[[Job, Outcome], None] = lambda job, outcome: None,
        progress: Callable[[Sweep], None] = lambda sweep: None,
    ) -> None:
        self.settings, self.study = settings, study
        self._start_process, self._show_end, self._show_progress = started, ended, progress
        self.home = read_home(settings.folder)
        self.claims = Claims()
        self.running: dict[int, Running] = {}
        self.signals = Signals(self._send, settings.grace)
        self._failures = Failures()
        #: When a trial without an owner was first seen, and whether the last look at the study has found one.
        self._unclaimed: dict[int, float] = {}
        self._waits = False
        self._next_scan = 0.0

    def run(self) -> int:
        """Run until nothing is left to do here, and return the signal that ended it earlier, or else 0."""
        try:
            with self.signals.forwarded():
                while True:
                    self._collect()
                    if not self.signals.first:
                        self._fill()
                    if not self.running and (self.signals.first or not self._waits):
                        break
                    if time.monotonic() > self.signals.deadline:
                        self._kill()
                    time.sleep(PERIOD)
            self._tell_held()
            return self.signals.first
        except SweepError:
            self._wind_down()
            raise
        finally:
            self._kill()
            self.claims.release_all()

    # -- starting

    def _fill(self) -> None:
        """Start trials until all jobs are busy or nothing is left."""
        while len(self.running) < self.settings.jobs and time.monotonic() >= self._next_scan:
            job = self._next_job()
            if job is None:
                self._next_scan = time.monotonic() + RESCAN
                return
            self._start(job)

    def _next_job(self) -> Job | None:
        """Return an unfinished trial that nobody owns, or else a new one; None if there is neither."""
        with studies.study_errors(self.settings.storage):
            trials = self.study.get_trials(deepcopy=False)
            states = studies.import_optuna().trial.TrialState
            self._waits = False
            for trial in trials:
                if trial.number < self.settings.total and trial.state == states.RUNNING:
                    job = self._claim(trial)
                    if job is not None:
                        return job
            waiting = any(trial.state == states.WAITING and trial.number < self.settings.total for trial in trials)
            return self._ask() if waiting or len(trials) < self.settings.total else None

    def _claim(self, trial: FrozenTrial) -> Job | None:
        """Become the owner of a trial that another process has begun, if it is here and that process has ended."""
        home, folder = trial.user_attrs.get(HOME), self.settings.folder_of(trial.number)
        if home is None and not self._is_abandoned(trial.number):
            self._waits = True
            return None
        if home not in (self.home, None) or not self.claims.take(folder):
            return None
        now = studies.find_trial(self.study, trial.number)
        assert now is not None
        frozen = self.study.get_trials(deepcopy=False)[trial.number]
        if frozen.state.is_finished() or frozen.user_attrs.get(HOME) != home:  # another sweep was faster
            self.claims.release(folder)
            return None
        if home is None:
            for key, distribution in self.settings.space.distributions().items():
                studies.suggest(now, key, distribution)  # returns the values that it already has
            now.set_user_attr(HOME, self.home)
        return Job(trial.number, now.params, folder, resume=True)

    def _is_abandoned(self, number: int) -> bool:
        return time.monotonic() - self._unclaimed.setdefault(number, time.monotonic()) >= ABANDONED

    def _ask(self) -> Job | None:
        trial = self.study.ask(self.settings.space.distributions())
        folder = self.settings.folder_of(trial.number)
        if trial.number >= self.settings.total:  # another sweep was faster; it is kept for a larger number of trials
            trial.set_user_attr(HOME, self.home)
            return None
        if not self.claims.take(folder):
            raise StorageError(f"{folder} is in use by another run; wait for it, or choose another --study")
        trial.set_user_attr(HOME, self.home)
        return Job(trial.number, trial.params, folder)

    def _start(self, job: Job) -> None:
        began, step = time.monotonic(), last_step(job.folder)
        self.running[job.number] = Running(job, self._start_process(self.settings, job), began, step)
        if self.signals.first:  # it came while the process was being started
            self._send(self.signals.first)
        self._show_progress(self)

    # -- ending

    def _collect(self) -> None:
        """Tell the study about the processes that have ended."""
        for trial in list(self.running.values()):
            code = trial.process.poll()
            if code is not None:
                del self.running[trial.job.number]
                self._next_scan = 0.0
                self._end(trial, code)
                self._show_progress(self)

    def _end(self, ended: Running, code: int) -> None:
        job = ended.job
        if code == StorageError.exit_code:
            raise SweepError.from_trial(job, Outcome("failed", None, read_error(job.folder), code))
        trial = self._frozen(job)
        self._set(job, SECONDS, float(trial.user_attrs.get(SECONDS, 0.0)) + time.monotonic() - ended.began)
        outcome = judge(self.settings, job, code, trial, progress=last_step(job.folder) > ended.step)
        if outcome.state == "unfinished":
            self._continue(job, outcome)
        elif outcome.state == "failed" and not self._has_results():
            self._hold(job, outcome)
        else:
            self._tell_held()
            self._tell(job, outcome)

    def _continue(self, job: Job, outcome: Outcome) -> None:
        """Start the process of an unfinished trial again, unless the sweep was told to end."""
        if self.signals.first:
            self.claims.release(job.folder)
            self._show_end(job, outcome)
            return
        self._set(job, ATTEMPTS, outcome.attempts)
        self._start(replace(job, resume=True))

    def _hold(self, job: Job, outcome: Outcome) -> None:
        self._failures.held.append((job, outcome))
        self._show_end(job, outcome)
        if self._failures.are_all_the_same():
            count = len(self._failures.held)
            why = f"the first {count} trials failed in the same way, so the sweep ends. "
            raise SweepError.from_trial(job, outcome, why)

    def _tell_held(self) -> None:
        """Mark the trials that failed at the beginning as failed: others fail in other ways, or not at all."""
        while self._failures.held:
            self._tell(*self._failures.held.pop(0), shown=True)

    def _tell(self, job: Job, outcome: Outcome, shown: bool = False) -> None:
        states = studies.import_optuna().trial.TrialState
        with studies.study_errors(self.settings.storage):
            if outcome.state == "complete":
                self.study.tell(job.number, outcome.value)
            elif outcome.state == "pruned":
                self.study.tell(job.number, state=states.PRUNED)
            else:
                self._set(job, REASON, f"exit code {outcome.exit_code}: {outcome.reason}"[:1000])
                self.study.tell(job.number, state=states.FAIL)
        self.claims.release(job.folder)
        if not shown:
            self._show_end(job, outcome)

    def _has_results(self) -> bool:
        states = studies.import_optuna().trial.TrialState
        with studies.study_errors(self.settings.storage):
            return bool(self.study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED)))

    def _frozen(self, job: Job) -> FrozenTrial:
        with studies.study_errors(self.settings.storage):
            return self.study.get_trials(deepcopy=False)[job.number]

    def _set(self, job: Job, name: str, value: Any) -> None:
        with studies.study_errors(self.settings.storage):
            trial = studies.find_trial(self.study, job.number)
            assert trial is not None
            trial.set_user_attr(name, value)

    # -- signals

    def _send(self, number: int) -> None:
        for trial in list(self.running.values()):
            trial.process.send(number)

    def _wind_down(self) -> None:
        """Let the other trials save and end, after an error that ends the sweep."""
        self._send(signal.SIGTERM)
        deadline = time.monotonic() + self.settings.grace
        while self.running and time.monotonic() < deadline:
            for trial in [trial for trial in self.running.values() if trial.process.poll() is not None]:
                del self.running[trial.job.number]
            time.sleep(PERIOD)

    def _kill(self) -> None:
        for trial in list(self.running.values()):
            trial.process.kill()
