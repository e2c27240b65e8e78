"""The side of a trainer that a session, saving and the loop's requests see; see `hookline.state.host`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common.files import real_path
from hookline.common.forwarding import forwarded
from hookline.dialects.robo_orchard_lab.pipeline.folder_writer import is_model
from hookline.dialects.robo_orchard_lab.pipeline.hooks.validation import ValidationHook
from hookline.hooks.report import write_report
from hookline.lifecycle.session import explained
from hookline.state.host import Host

if TYPE_CHECKING:
    from accelerate import Accelerator  # type: ignore[import-untyped]

    from hookline.dialects.robo_orchard_lab.pipeline.folder_writer import Target
    from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import PipelineHookArgs, PipelineHooks
    from hookline.dialects.robo_orchard_lab.pipeline.log_terminal import LogTerminal
    from hookline.dialects.robo_orchard_lab.pipeline.records import Records
    from hookline.dialects.robo_orchard_lab.pipeline.saves import FolderSaving
    from hookline.state.host import Verb
    from hookline.writers.base import Outcome
    from hookline.writers.router import Writers


class TrainerHost(Host):
    """A trainer without its loop: folders, records, requests and validations."""

    accelerator: Accelerator
    hooks: PipelineHooks
    model: Any
    optimizer: Any
    saving: FolderSaving
    terminal: LogTerminal
    records: Records
    #: The destinations of the hooks that save, when training began.
    targets: list[Target]
    #: Write report.html, a page about the run, when it has ended.
    writes_report = True
    #: True when the loop has ended.
    has_ended: bool

    def arguments(self) -> PipelineHookArgs:
        """Return the arguments of hooks for one pass through a channel."""
        raise NotImplementedError

    epoch: int = forwarded("position.epoch", "Return the number of finished passes over the data.")
    rank: int = forwarded("accelerator.process_index", "Return the number of this process.")
    writers: Writers = forwarded("records.writers", "Return the writers of the records.")
    device: Any = forwarded("accelerator.device", "Return the device of the model.")

    def note_failure(self, args: Any) -> None:
        """Do nothing: notes on errors have the counters of the trainer. A channel of its own stores them here."""

    @property
    def progress_text(self) -> str:
        """Return how far the run is, for messages."""
        return f"step {self.position.iter}"

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

    def begin_session(self, verb: Verb) -> None:
        """Let the processes agree on requests."""
        self.strategy.start(self.requests, self.accelerator.device)

    def clear_requests(self) -> None:
        """Forget the requests of an earlier call, and a stop: the next call continues."""
        super().clear_requests()
        self.requests.resume_training()

    @contextmanager
    def points_of_run(self) -> Iterator[None]:
        """Explain failures before the processes are ended: a launcher ends the others with a signal."""
        with explained(self), self.terminal.keeping():
            yield

    def record_files(self) -> Iterable[str]:
        """Return the file of the records."""
        return self.records.writers.files()

    def records_cut_back(self) -> Iterable[str]:
        """Return the file of the records, which is cut back when the run resumes."""
        return self.records.writers.files_cut_back()

    def open_records(self, resuming: bool) -> None:
        """Open the records."""
        self.records.open(resuming)

    def close_records(self, outcome: Outcome) -> None:
        """Close the records."""
        self.records.close(outcome)

    def when_closed(self) -> None:
        """Write report.html."""
        if self.writes_report:
            write_report(self.work_dir, self.terminal)

    def tensor_holders(self) -> Iterable[Any]:
        """Return the model and the optimizer."""
        return self.model, self.optimizer

    @property
    def can_validate(self) -> bool:
        """Return whether there is a ValidationHook."""
        return bool(self._validations)

    @property
    def _validations(self) -> list[ValidationHook]:
        return [hook for hook in self.hooks.members() if isinstance(hook, ValidationHook)]

    def validate_now(self) -> None:
        """Run a validation that was requested from outside. The hooks themselves run those that are due."""
        for hook in self._validations:
            hook.evaluate(self.arguments())

    def note_validation(self, found: Any, step: int) -> None:
        """Record a validation and its numbers."""
        self.position.validations += 1
        self.journal.note("validation", step=step)
        self.records.write_metrics(found, step)

    @property
    def accumulating(self) -> bool:
        """Return whether gradients are being accumulated, and training continues."""
        return not self.has_ended and not self.accelerator.sync_gradients

    def while_accumulating(self) -> None:
        """Write requested models; checkpoints wait."""
        if any(map(is_model, self.requests.saves)):
            self.saving.save_models()
