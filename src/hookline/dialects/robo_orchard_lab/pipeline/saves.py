"""The saves of a training: hooks request them, and they are written at the end of the step, the epoch or the loop.

Only then have all hooks run and all counters advanced. So a run that resumes from there is exactly the same run.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hookline.checkpoint import store
from hookline.common.files import real_path, storage_errors
from hookline.dialects.robo_orchard_core.utils.function_info import logger_of
from hookline.dialects.robo_orchard_lab.pipeline import contents, folders
from hookline.dialects.robo_orchard_lab.pipeline.folder_writer import (
    FolderRequest,
    Target,
    checkpoint_target,
    is_model,
    write_folder,
)
from hookline.errors import StorageError, blame
from hookline.lifecycle import ledger_file
from hookline.resume.contract import Contract
from hookline.resume.start import Source, SourceKind, Start
from hookline.run.keep import Choices
from hookline.rundir import control, journal, moves, ownership
from hookline.state.saving import Saving

if TYPE_CHECKING:
    from hookline.dialects.robo_orchard_lab.pipeline.hook_based_trainer import HookBasedTrainer
    from hookline.run.save_request import SaveRequest

log = logger_of(__name__)

#: The files of a run in its folder, besides its saves and its records.
FILES = ("run.log", "plan.txt", "report.html", ledger_file.NAME, journal.NAME, control.NAME)


@dataclass(frozen=True)
class FolderSource(Source):
    """The checkpoint that a trainer has resumed from: a folder in `checkpoints/` of the run, or in `save_root`."""

    def is_inside(self, folders: Iterable[Path]) -> bool:
        """Return whether it is in one of these folders of the run, or in a folder of theirs."""
        known = {real_path(folder) for folder in folders}
        return not known.isdisjoint(list(real_path(self.path).parents)[:2])


class FolderSaving(Saving):
    """Writes the saves of a trainer as folders, with accelerate. After a signal, training ends with a checkpoint."""

    def __init__(self, trainer: HookBasedTrainer) -> None:
        super().__init__(trainer)
        self._trainer = trainer
        #: True if the newest save was the one after a signal.
        self._saved_at_end = False
        #: The first checkpoint number, as the user set it in the project. accelerate continues counting from there.
        self._given: int | None = None
        #: The epoch and the batch at which this run began, if it resumed; otherwise None.
        self._began: tuple[int, int] | None = None
        #: The folders from which earlier saves were moved away.
        self.entered: set[Path] = set()
        #: The locks for hooks that are registered during training, and their folders.
        self._locks = contextlib.ExitStack()
        self._locked: set[Path] = set()

    def request(self, request: FolderRequest) -> None:
        """Request a save. Requests for the same folder become one, with the model if any of them wants it."""
        self.enter([request.target])  # the hook may have been registered during training
        requests = self._trainer.requests
        for number, known in enumerate(requests.saves):
            if isinstance(known, FolderRequest) and known.destination == request.destination:
                requests.saves[number] = replace(known, with_model=known.with_model or request.with_model)
                return
        requests.ask_save(request)

    def save(self) -> None:
        """Write the requested saves. After a signal, every hook that saves checkpoints first requests one."""
        self._saved_at_end = bool(self._trainer.requests.signal)
        if self._saved_at_end:
            self.last_path = None
            self._trainer.request_checkpoints()
        super().save()

    def save_in_window(self) -> None:
        """Write the requested models; checkpoints wait until no gradients are being accumulated."""
        requests = self._trainer.requests
        if not any(map(is_model, requests.saves)):
            return
        taken = requests.take_saves()
        requests.saves = [request for request in taken if is_model(request)]
        super().save()
        requests.saves = [request for request in taken if not is_model(request)]

    def save_before_end(self) -> str:
        """Save a checkpoint for every hook that saves them, unless that is done; return a message for the user."""
        if not self._saved_at_end:
            self.save()
        if not self.last_path:
            return "nothing was saved, because no hook saves checkpoints"
        resume = f"ResumeCheckpointConfig(resume_from='{self.last_path}')"
        self._trainer.hints.command = f"{type(self._trainer).__name__}(..., resume_from={resume})()"
        return f"saved {self.last_path}"

    def _save(self, requests: list[SaveRequest]) -> None:
        for request in requests:
            try:
                self._write_folder(request if isinstance(request, FolderRequest) else self._at_usual_place(request))
            except StorageError as error:
                self._tolerate(error, [request])

    def _at_usual_place(self, request: SaveRequest) -> FolderRequest:
        """Return a request that comes from outside as one for a checkpoint where this run saves them."""
        trainer = self._trainer
        target = checkpoint_target(trainer.accelerator, str(trainer.work_dir))
        self.enter([target])
        return FolderRequest(needed=request.needed, done=request.done, failed=request.failed, target=target)

    def _write_folder(self, request: FolderRequest) -> None:
        trainer, step = self._trainer, self._trainer.position.iter
        try:
            state = {} if is_model(request) else contents.own_state(trainer)
            written = write_folder(trainer.accelerator, request, state, step)
        except Exception as error:
            blame(error, f"while saving to {request.target.parent}; earlier saves there are unchanged")
            raise
        if request.label is None:
            self.last_path, self.saved_at = written, step
        if request.label is None and trainer.folders:
            file = os.path.relpath(written, trainer.work_dir)
            trainer.journal.note("save", file=file, best=None, complete=True)
        if trainer.accelerator.is_main_process:
            when = f", requested at the end of {request.when}" if request.when else ""
            log.info("saved after step %d%s: %s", step, when, written)
            if request.done is not None:
                request.done(written)

    # -- before and after a training

    @contextmanager
    def locks(self) -> Iterator[None]:
        """Keep the folders of hooks that are registered during training locked until it ends."""
        trainer = self._trainer
        self._saved_at_end, self._locked = False, {real_path(folder) for folder in trainer.folders}
        if self._given is None:
            self._given = trainer.accelerator.project_configuration.iteration
            position = trainer.position
            self._began = (position.epoch, position.batch) if trainer.resumed is not None else None
        with contextlib.ExitStack() as self._locks:
            yield

    def check_folders(self) -> None:
        """At the end of a run, report that its folder was deleted."""
        if lost := self._host.strategy.on_main(lambda: ownership.find_lost(self._host.folders)):
            raise ownership.lost_error(lost, [])

    def enter(self, targets: list[Target]) -> None:
        """Lock the folders of these targets. Where this run has not saved yet, move earlier saves away."""
        trainer = self._trainer
        new = [target for target in targets if target.parent.resolve() not in self.entered]
        if trainer.accelerator.is_main_process:
            for target in targets:
                if (folder := real_path(target.beside)) not in self._locked:
                    ownership.claim(target.beside)
                    self._locks.enter_context(ownership.locked(target.beside))
                    self._locked.add(folder)
                    store.sweep(target.beside)
                    for line in moves.finish([target.beside], self._trainer.start.origin_of):
                        log.warning("%s", line)
            self._move_aside(new)
        resumed = trainer.resumed
        if resumed is not None and any(_holds(target, resumed) for target in targets):
            project, following = trainer.accelerator.project_configuration, folders.number_of(resumed) + 1
            project.iteration = max(project.iteration, following) if self.entered else following
        self.entered.update(target.parent.resolve() for target in new)

    def _move_aside(self, targets: list[Target]) -> None:
        """Move the saves of other runs, and those later than the checkpoint of this run, to `old-1/`."""
        left: dict[Path, list[Path]] = {}
        for target in targets:
            left.setdefault(target.beside, []).extend(self.find_leftovers(target))
        with storage_errors(Path("the folder of the saves"), "used", inside=True):
            files = {beside: dict.fromkeys(found) for beside, found in left.items()}
            archives = moves.move_all(files, self._trainer.start.origin_of)
        for beside, old in archives.items():
            where = " and ".join(dict.fromkeys(str(one.parent) for one in left[beside]))
            log.warning("moved the saves of an earlier run from %s to %s", where, old)

    def find_leftovers(self, target: Target) -> list[Path]:
        """Return the saves of other runs in the folder in which this run saves."""
        given, resumed, found = self._given, self._trainer.resumed, folders.checkpoints(target.parent)
        if resumed is not None and _holds(target, resumed):
            found = [one for one in found if folders.number_of(one) > folders.number_of(resumed)]
        elif given:  # the user has set the first number
            taken = [one for one in found if folders.number_of(one) >= given]
            if taken:
                raise StorageError(
                    f"{taken[0]} already exists, and a run that counts from iteration {given} would overwrite it; set "
                    f"the iteration of the ProjectConfiguration above {folders.number_of(taken[-1])}, or resume from "
                    "that checkpoint"
                )
            found = []
        return found + folders.models(target.parent, self._began)


class FolderContract(Contract):
    """How a trainer continues: also after a stop."""

    def begin_again(self) -> None:
        """Forget a stop: the next call continues."""
        self._host.requests.resume_training()


class FolderStart(Start):
    """The checkpoint that a trainer has loaded when it was created."""

    def __init__(self, trainer: HookBasedTrainer) -> None:
        super().__init__(trainer, FolderContract(trainer, Choices()))
        self._trainer = trainer

    def read_source(self, found: tuple[Path, SourceKind] | None) -> Source | None:
        """Return the position of the checkpoint, which the trainer has already loaded."""
        position = {"position": self._trainer.position.state_dict()}
        return None if found is None else FolderSource(found[0], position, found[1])

    def load(self, source: Source | None) -> None:
        """Get the folders of this run ready. The trainer has loaded its checkpoint when it was created."""
        trainer = self._trainer
        trainer.loading.started = True
        if trainer.loading.pending and (source is None or not source.is_inside(trainer.folders)):
            trainer.loading.pending.pop("writers", None)  # they are records of a run in another folder
        trainer.saving.enter(trainer.targets)

    def earlier_files(self, folder: Path, records: Iterable[str]) -> list[Path]:
        """Return the files and saves of an earlier run. Other files of the project belong to the user."""
        found = [path for name in (*FILES, *records) if os.path.lexists(path := folder / name)]
        for target in self._trainer.targets:
            if real_path(target.beside) == real_path(folder):
                found += self._trainer.saving.find_leftovers(target)
                self._trainer.saving.entered.add(target.parent.resolve())
        return list(dict.fromkeys(found))

    def origin_of(self, path: Path, folder: Path) -> Path:
        """Return where an archived file or save of a folder was."""
        for target in self._trainer.targets:
            kind = folders.MODEL if target.parent.name == "saved_models" else folders.NAME
            if real_path(target.beside) == real_path(folder) and kind.fullmatch(path.name):
                return target.parent / path.name
        return folder / path.name


def _holds(target: Target, checkpoint: Path) -> bool:
    return checkpoint.resolve().parent == target.parent.resolve()
