"""The side of a trainer that a session, saving and the loop's requests see; see `hookline.state.host`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common.files import real_path
from hookline.common.forwarding import forwarded
from hookline.dialects.robo_orchard_lab.pipeline.hooks.validation import ValidationHook
from hookline.hooks.report import write_report
from hookline.lifecycle.session import explained
from hookline.lifecycle.stages import Stages
from hookline.run.handling import RequestedValidations, Windows
from hookline.state.host import Host

if TYPE_CHECKING:
    from accelerate import Accelerator  # type: ignore[import-untyped]

    from hookline.dialects.robo_orchard_lab.pipeline.folder_writer import Target
    from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import PipelineHookArgs, PipelineHooks
    from hookline.dialects.robo_orchard_lab.pipeline.log_terminal import LogTerminal
    from hookline.dialects.robo_orchard_lab.pipeline.records import StepRecords
    from hookline.dialects.robo_orchard_lab.pipeline.saves import FolderSaving
    from hookline.state.host import Verb
    from hookline.writers.router import Writers


class TrainerStages(Stages):
    """What a trainer adds to a session: its processes, its failures and its report."""

    def __init__(self, trainer: TrainerHost) -> None:
        super().__init__(trainer)
        self._trainer = trainer

    @contextmanager
    def begun(self, verb: Verb) -> Iterator[None]:
        """Let the processes agree on requests."""
        self._trainer.strategy.start(self._trainer.requests, self._trainer.accelerator.device)
        yield

    @contextmanager
    def points(self) -> Iterator[None]:
        """Explain failures before the processes are ended: a launcher ends the others with a signal."""
        with explained(self._trainer), self._trainer.terminal.keeping():
            yield

    def when_closed(self) -> None:
        """Write report.html."""
        if self._trainer.writes_report:
            write_report(self._trainer.work_dir, self._trainer.terminal)


class HookValidations(RequestedValidations):
    """The validations that are requested from outside. The hooks themselves run those that are due."""

    def __init__(self, trainer: TrainerHost) -> None:
        super().__init__(trainer.requests)
        self._trainer = trainer

    @property
    def _hooks(self) -> list[ValidationHook]:
        return [hook for hook in self._trainer.hooks.members() if isinstance(hook, ValidationHook)]

    @property
    def possible(self) -> bool:
        """Return whether there is a ValidationHook."""
        return bool(self._hooks)

    def validate(self) -> None:
        """Let the hooks validate."""
        for hook in self._hooks:
            hook.evaluate(self._trainer.arguments())


class AcceleratorWindows(Windows):
    """The accumulation windows of a trainer, which accelerate opens and closes."""

    def __init__(self, trainer: TrainerHost) -> None:
        self._trainer = trainer

    @property
    def accumulating(self) -> bool:
        """Return whether gradients are being accumulated, and training continues."""
        return not self._trainer.has_ended and not self._trainer.accelerator.sync_gradients


class TrainerHost(Host):
    """A trainer without its loop: folders, records, requests and validations."""

    accelerator: Accelerator
    hooks: PipelineHooks
    model: Any
    optimizer: Any
    saving: FolderSaving
    terminal: LogTerminal
    records: StepRecords
    #: The destinations of the hooks that save, when training began.
    targets: list[Target]
    #: Write report.html, a page about the run, when it has ended.
    writes_report = True
    stages: TrainerStages
    #: True when the loop has ended.
    has_ended: bool

    def arguments(self) -> PipelineHookArgs:
        """Return the arguments of hooks for one pass through a channel."""
        raise NotImplementedError

    epoch: int = forwarded("position.epoch", "Return the number of finished passes over the data.")
    iter: int = forwarded("position.iter", "Return the number of finished steps.")
    validations: int = forwarded("position.validations", "Return the number of finished validations.")
    #: Channels have no frequency by epochs.
    ends_epoch = False
    rank: int = forwarded("accelerator.process_index", "Return the number of this process.")
    writers: Writers = forwarded("records.writers", "Return the writers of the records.")
    device: Any = forwarded("accelerator.device", "Return the device of the model.")

    def note_failure(self, args: Any) -> None:
        """Do nothing: notes on errors have the counters of the trainer. A channel of its own stores them here."""

    @property
    def folders(self) -> list[Path]:
        """Return the folders that this run writes to, the project's folder first. Without any, it writes nothing."""
        project = self.accelerator.project_dir
        found = [Path(project)] if project is not None else []
        found += [target.beside for target in self.targets]
        return list({real_path(folder): folder for folder in found}.values())

    @property
    def work_dir(self) -> Path:  # type: ignore[override]  # known to users as project_dir
        """Return the folder of the run."""
        return self.folders[0]

    @property
    def experiment_name(self) -> str:  # type: ignore[override]  # the name of the folder
        """Return the name of the run."""
        return self.work_dir.resolve().name

    def note_validation(self, found: Any, step: int) -> None:
        """Record a validation and its numbers."""
        self.position.validations += 1
        self.journal.note("validation", step=step)
        self.records.write_metrics(found, step)
