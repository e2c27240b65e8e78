"""A tiny config, and trials that are not run: their values come from a function."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common import studies
from hookline.hooks.pruning import END, FINISHED
from hookline.sweeps.preparation import Request, prepare
from hookline.sweeps.sweep import Sweep

if TYPE_CHECKING:
    from hookline.sweeps.studies import Settings
    from hookline.sweeps.trials import Job, Outcome

CONFIG = """\
model: {type: DigitsNet, width: 2}
train:
  dataloader: {dataset: {type: Digits, split: train}, batch_size: 16, shuffle: true}
  step: cross_entropy
  max_epochs: 2
  limit_batches: 2
val:
  dataloader: {dataset: {type: Digits, split: val}, batch_size: 16}
  step: predict
  metrics: {accuracy: accuracy}
  loss: cross_entropy
  limit_batches: 2
optim:
  optimizer: {type: SGD, lr: 0.1}
default_hooks:
  checkpoint: {save_best: accuracy}
device: cpu
"""


def write_config(folder: Path, more: str = "", name: str = "tiny.yaml") -> Path:
    path = folder / name
    path.write_text(CONFIG + more)
    return path


@dataclass
class End:
    """How the process of a trial ends."""

    code: int = 0
    values: tuple[float, ...] = ()
    #: What the hook records as the end of the run; None if the process was killed before.
    end: str | None = FINISHED
    output: str = ""


@dataclass
class FakeProcess:
    """A process that has done its work when it is started, or one that waits for a signal."""

    ends: End
    waits: bool = False
    signals: list[int] = field(default_factory=list)
    killed: bool = False

    def poll(self) -> int | None:
        return None if self.waits else self.ends.code

    def send(self, number: int) -> None:
        self.signals.append(number)
        self.waits = False
        self.ends = End(128 + number, (), None)

    def kill(self) -> None:
        self.killed, self.waits, self.ends = True, False, End(-signal.SIGKILL, (), None)


class Starter:
    """Starts fake processes: `ends` returns how a trial ends, by its number and values."""

    def __init__(self, ends: Callable[[Job, Mapping[str, Any]], End | FakeProcess]) -> None:
        self.ends = ends
        self.jobs: list[Job] = []
        self.processes: dict[int, FakeProcess] = {}

    def __call__(self, settings: Settings, job: Job) -> FakeProcess:
        self.jobs.append(job)
        found = self.ends(job, job.labels)
        process = found if isinstance(found, FakeProcess) else FakeProcess(found)
        self.processes[job.number] = process
        if not process.waits:
            report(settings, job, process.ends)
        return process

    @property
    def started(self) -> list[tuple[int, bool]]:
        """Return the numbers of the trials that were started, and whether each was resumed."""
        return [(job.number, job.resume) for job in self.jobs]


def report(settings: Settings, job: Job, end: End) -> None:
    """Do what the hook in the process of a trial does."""
    with studies.study_errors(settings.storage):
        study = studies.find_study(settings.study, studies.open_storage(settings.storage))
        assert study is not None
        trial = studies.find_trial(study, job.number)
        assert trial is not None
        for number, value in enumerate(end.values, 1):
            trial.report(value, number)
        if end.end is not None:
            trial.set_user_attr(END, end.end)
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / "output.log").write_text(end.output)


def request(config: Path, *words: str, **options: Any) -> Request:
    """Return a request. The study is in a journal, which takes a tenth of the time of sqlite."""
    given = {"metric": "accuracy", "storage": "journal:study.log", **options}
    return Request(config, words or ("optim.optimizer.lr=0.01..1.0:log",), **given)


class Runs:
    """One sweep after the other on the same study, with the lines that each would show."""

    def __init__(self, given: Request) -> None:
        self.settings, self.study = prepare(given)
        self.ended: list[tuple[int, Outcome]] = []

    def sweep(self, starter: Starter, **changes: Any) -> Sweep:
        return Sweep(
            replace(self.settings, **changes),
            self.study,
            started=starter,
            ended=lambda job, outcome: self.ended.append((job.number, outcome)),
        )

    def states(self) -> list[str]:
        return [each.state.name for each in self.study.get_trials()]

    def values(self) -> list[float | None]:
        return [each.value for each in self.study.get_trials()]


def accuracies(*values: float) -> Iterator[End]:
    return iter([End(values=(value,)) for value in values])
