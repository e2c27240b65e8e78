"""The saves of a training: hooks request them, and they are written at the end of the step, the epoch or the loop.

Only then have all hooks run and all counters advanced. So a run that resumes from there is exactly the same run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.checkpoint import store
from hookline.checkpoint.seal import Note
from hookline.common import rng
from hookline.common.durations import clock
from hookline.common.files import storage_errors
from hookline.dialects.robo_orchard_core.refusals import SettingValueError
from hookline.dialects.robo_orchard_core.utils.function_info import logger_of
from hookline.dialects.robo_orchard_lab.pipeline import contents, folders
from hookline.engine import hook_states
from hookline.engine.requests import SaveRequest
from hookline.engine.saving import Saving
from hookline.engine.session import end_if_copy, explained, refuse_inside_a_run, running
from hookline.errors import StorageError, blame
from hookline.rundir import archive, ownership

if TYPE_CHECKING:
    from accelerate import Accelerator  # type: ignore[import-untyped]

    from hookline.dialects.robo_orchard_lab.pipeline.hook_based_trainer import HookBasedTrainer

log = logger_of(__name__)


@dataclass(frozen=True)
class Target:
    """The destination of saves: numbered or named folders in `parent`, which are first written in `beside`."""

    parent: Path
    beside: Path
    limit: int | None = None


@dataclass(frozen=True)
class FolderRequest(SaveRequest):
    """A requested save: a numbered checkpoint, or, with a label, the weights in a folder of that name."""

    target: Target = Target(Path(), Path())
    #: The step, epoch or training at whose end it was requested, for messages.
    when: str = ""
    label: str | None = None
    with_model: bool = False
    #: All processes ask for it at the same step, and accelerate writes it in all of them.
    together: bool = True


def checkpoint_target(accelerator: Accelerator, save_root: str | None) -> Target:
    """Return the destination of checkpoints: `checkpoints/` of accelerate's project, or `save_root`.

    In `save_root`, only the newest checkpoint is kept, as in RoboOrchard, unless the project has a `total_limit`.
    """
    project = accelerator.project_configuration
    if project.automatic_checkpoint_naming:
        folder = _project_dir(accelerator)
        return Target(folder / "checkpoints", folder, project.total_limit)
    root = Path(_require_root(save_root))
    return Target(root, root, project.total_limit or 1)


def model_target(accelerator: Accelerator, save_root: str | None) -> Target:
    """Return the destination of weights: `saved_models/` of accelerate's project, or `save_root`."""
    if accelerator.project_configuration.automatic_checkpoint_naming:
        folder = _project_dir(accelerator)
        return Target(folder / "saved_models", folder)
    root = Path(_require_root(save_root))
    return Target(root, root)


def _project_dir(accelerator: Accelerator) -> Path:
    if accelerator.project_dir is None:
        raise SettingValueError("automatic_checkpoint_naming needs a project_dir in the ProjectConfiguration")
    return Path(accelerator.project_dir)


def _require_root(save_root: str | None) -> str:
    if save_root is None:
        raise SettingValueError(
            "there is no folder to save to: set save_root, or pass the Accelerator a "
            "ProjectConfiguration(project_dir=..., automatic_checkpoint_naming=True)"
        )
    return save_root


class FolderSaving(Saving):
    """Writes the saves of a trainer as folders, with accelerate. After a signal, training ends with a checkpoint."""

    def __init__(self, trainer: HookBasedTrainer) -> None:
        super().__init__(trainer)
        self._trainer = trainer
        self._resumed: Path | None = None
        #: True if the newest save was the one after a signal.
        self._saved_at_end = False
        #: The first checkpoint number, as the user set it in the project. accelerate continues counting from there.
        self._given: int | None = None
        #: The epoch and the batch at which this run began, if it resumed; otherwise None.
        self._began: tuple[int, int] | None = None
        #: The folders from which earlier saves were moved away; then the locks of a session, and the locked folders.
        self._entered: set[Path] = set()
        self._locks = contextlib.ExitStack()
        self._locked: set[Path] = set()

    def request(self, request: FolderRequest) -> None:
        """Request a save. Requests for the same folder become one, with the model if any of them wants it."""
        self._enter([request.target])  # the hook may have been registered during training
        requests = self._trainer.requests
        for number, known in enumerate(requests.saves):
            assert isinstance(known, FolderRequest)
            if (known.target, known.label) == (request.target, request.label):
                requests.saves[number] = replace(known, with_model=known.with_model or request.with_model)
                return
        requests.ask_save(request)

    def save(self) -> None:
        """Write the requested saves. After a signal, every hook that saves checkpoints first requests one."""
        self._saved_at_end = bool(self._trainer.requests.signal)
        if self._saved_at_end:
            self.last_path = None
            self._trainer.request_checkpoints()
        self._write_requested(self._trainer.requests.take_saves())

    def save_models(self) -> None:
        """Write the requested models; checkpoints wait until no gradients are being accumulated."""
        requests = self._trainer.requests
        taken = requests.take_saves()
        self._write_requested([request for request in taken if is_model(request)])
        requests.saves = [request for request in taken if not is_model(request)]

    def save_before_end(self) -> str:
        """Save a checkpoint for every hook that saves them, unless that is done; return a message for the user."""
        if not self._saved_at_end:
            self.save()
        saved = self.last_path
        if not saved:
            return "nothing was saved, because no hook saves checkpoints"
        return f"saved {saved}; to continue, pass resume_from=ResumeCheckpointConfig(resume_from='{saved}')"

    def _write_requested(self, requests: Iterable[SaveRequest]) -> None:
        trainer, began = self._trainer, clock()
        for request in requests:
            assert isinstance(request, FolderRequest)
            try:
                if request.label is None:
                    written = write_checkpoint(trainer.accelerator, request, self._state(), trainer.place.step)
                    self.last_path = written
                else:
                    written = write_model(trainer.accelerator, request, trainer.place.step)
            except Exception as error:
                blame(error, f"while saving to {request.target.parent}; earlier saves there are unchanged")
                raise
            if trainer.accelerator.is_main_process:
                step, when = trainer.place.step, request.when
                log.info("saved after step %d, requested at the end of %s: %s", step, when, written)
        self.seconds += clock() - began

    def _state(self) -> dict[str, Any]:
        trainer = self._trainer
        return {
            "place": trainer.place.state_dict(),
            "seed": trainer.passes.seed,
            "batches": trainer.passes.length,
            "kinds": contents.kinds_of(trainer.accelerator),
            "hooks": hook_states.collect(contents.find_stateful(trainer.hooks)),
            "hook_names": [one.name for one in contents.find_stateful(trainer.hooks)],
        }

    # -- before and after a training

    @contextmanager
    def session(self, targets: list[Target], resumed: Path | None) -> Iterator[None]:
        """Lock the folders against other runs, and move earlier saves away, for the duration of a training."""
        refuse_inside_a_run(self._trainer, "train")
        accelerator = self._trainer.accelerator
        self._resumed, self._locked, self._saved_at_end = resumed, set(), False
        if self._given is None:
            self._given = accelerator.project_configuration.iteration
            self._began = (self._trainer.place.epoch, self._trainer.place.batch) if resumed is not None else None
        with contextlib.ExitStack() as self._locks:
            self._locks.enter_context(running(self._trainer, "train"))
            self._trainer.strategy.start(self._trainer.requests, accelerator.device)
            # Inside of `running`: a launcher ends the others with a signal, which must not cut off their reason.
            self._locks.enter_context(explained(self._trainer))
            self._locks.push(partial(end_if_copy, self._trainer))
            self._enter(targets)
            accelerator.wait_for_everyone()
            yield

    def _enter(self, targets: list[Target]) -> None:
        """Lock the folders of these targets. Where this run has not saved yet, move earlier saves away."""
        accelerator, resumed = self._trainer.accelerator, self._resumed
        if accelerator.is_main_process:
            for target in targets:
                if (folder := target.beside.resolve()) not in self._locked:
                    ownership.claim(target.beside)
                    self._locks.enter_context(ownership.locked(target.beside))
                    self._locked.add(folder)
                    folders.sweep(target.beside)
        new = [target for target in targets if target.parent.resolve() not in self._entered]
        if new and accelerator.is_main_process:
            self._move_aside(new, resumed)
        if resumed is not None and any(_holds(target, resumed) for target in new):
            project, following = accelerator.project_configuration, folders.number_of(resumed) + 1
            project.iteration = max(project.iteration, following) if self._entered else following
        self._entered.update(target.parent.resolve() for target in new)

    def _move_aside(self, targets: list[Target], resumed: Path | None) -> None:
        """Move the saves of other runs, and those later than the checkpoint of this run, to `old-1/`."""
        left: dict[Path, list[Path]] = {}
        for target in targets:
            left.setdefault(target.beside, []).extend(self._find_leftovers(target, resumed))
        for beside, found in left.items():
            with storage_errors(beside, "used", inside=True):
                old = archive.move_to_archive(beside, dict.fromkeys(found))
            if old is not None:
                where = " and ".join(dict.fromkeys(str(one.parent) for one in found))
                log.warning("moved the saves of an earlier run from %s to %s", where, old)

    def _find_leftovers(self, target: Target, resumed: Path | None) -> list[Path]:
        """Return the saves of other runs in the folder in which this run saves."""
        given, found = self._given, folders.checkpoints(target.parent)
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


def is_model(request: SaveRequest) -> bool:
    """Return whether a request is for the weights only."""
    return isinstance(request, FolderRequest) and request.label is not None


def _holds(target: Target, checkpoint: Path) -> bool:
    return checkpoint.resolve().parent == target.parent.resolve()


def write_checkpoint(accelerator: Accelerator, request: FolderRequest, state: dict[str, Any], step: int) -> Path:
    """Write a numbered checkpoint: accelerate's files, our own files and the seal. Then remove old checkpoints."""
    target, project = request.target, accelerator.project_configuration
    folder = target.parent / f"checkpoint_{project.iteration}"
    partial = _begin(accelerator, folder, target)
    contents.refuse_unreadable(accelerator)
    contents.refuse_infinite(accelerator, step)
    automatic, project.automatic_checkpoint_naming = project.automatic_checkpoint_naming, False
    try:  # with automatic names, accelerate would first remove an old checkpoint and write under the final name
        accelerator.save_state(str(partial))
    finally:
        project.automatic_checkpoint_naming = automatic
    if request.with_model:
        _save_models(accelerator, partial, "model" if len(accelerator._models) == 1 else "model_{}")
    own = {"rng": rng.state(), "gradients": contents.collect_open_gradients(accelerator)}
    store.write(own, partial / contents.rng_name(accelerator), Note(step))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        folders.seal_folder(partial, state, step)
        folders.publish(partial, folder)
        if target.limit is not None:
            folders.keep_newest(target.parent, target.limit, target.beside)
    accelerator.wait_for_everyone()
    return folder


def write_model(accelerator: Accelerator, request: FolderRequest, step: int) -> Path:
    """Write the weights to their own folder."""
    assert request.label is not None
    contents.refuse_infinite(accelerator, step)
    folder = request.target.parent / request.label
    partial = _begin(accelerator, folder, request.target)
    _save_models(accelerator, partial, "{}")
    if accelerator.is_main_process:
        folders.sync_files(partial)
        folders.publish(partial, folder)
    accelerator.wait_for_everyone()
    return folder


def _begin(accelerator: Accelerator, folder: Path, target: Target) -> Path:
    partial = folders.partial_of(folder, target.beside)
    if accelerator.is_main_process:
        folders.sweep(target.beside)
        try:
            partial.mkdir(parents=True)
        except OSError as error:
            raise StorageError(f"{folder} cannot be written: {error.strerror or error}") from error
    accelerator.wait_for_everyone()
    return partial


def _save_models(accelerator: Accelerator, folder: Path, name: str) -> None:
    for number, model in enumerate(accelerator._models):
        accelerator.save_model(model, str(folder / name.format(number)))
    accelerator.wait_for_everyone()
