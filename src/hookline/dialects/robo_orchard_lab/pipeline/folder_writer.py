"""The saves of a training as folders: where they are written, and how, with accelerate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.checkpoint import store
from hookline.checkpoint.seal import Note
from hookline.common import rng
from hookline.dialects.errors import SettingValueError
from hookline.dialects.robo_orchard_lab.pipeline import contents, folders
from hookline.errors import StorageError
from hookline.run.save_request import SaveRequest

if TYPE_CHECKING:
    from accelerate import Accelerator  # type: ignore[import-untyped]


@dataclass(frozen=True)
class Target:
    """The destination of saves: numbered or named folders in `parent`, which are first written in `beside`."""

    parent: Path
    beside: Path
    limit: int | None = None
    #: Whether links beside the checkpoints lead to the files of the newest one.
    links: bool = False


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

    @property
    def destination(self) -> tuple[Target, str | None]:
        """Return where it is written: requests with the same destination are one save."""
        return self.target, self.label


def checkpoint_target(accelerator: Accelerator, save_root: str | None) -> Target:
    """Return the destination of checkpoints: `checkpoints/` of accelerate's project, or `save_root`.

    In `save_root`, only the newest checkpoint is kept, as in RoboOrchard, unless the project has a `total_limit`. Its
    files are also found in `save_root` itself, through links.
    """
    project = accelerator.project_configuration
    if project.automatic_checkpoint_naming:
        folder = _project_dir(accelerator)
        return Target(folder / "checkpoints", folder, project.total_limit)
    root = Path(_require_root(save_root))
    return Target(root, root, project.total_limit or 1, links=True)


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


def is_model(request: SaveRequest) -> bool:
    """Return whether a request is for the weights only."""
    return isinstance(request, FolderRequest) and request.label is not None


def write_folder(accelerator: Accelerator, request: FolderRequest, state: dict[str, Any], step: int) -> Path:
    """Write a requested save: a checkpoint with the trainer's own state, or only the weights."""
    if request.label is None:
        return _write_checkpoint(accelerator, request, state, step)
    return _write_model(accelerator, request, request.label, step)


def _write_checkpoint(accelerator: Accelerator, request: FolderRequest, state: dict[str, Any], step: int) -> Path:
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
    store.write_verified(own, partial / contents.rng_name(accelerator), Note(step))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        folders.seal_folder(partial, state, step)
        folders.publish(partial, folder)
        if target.links:
            folders.link_files(folder)
        if target.limit is not None:
            folders.keep_newest(target.parent, target.limit, target.beside)
    accelerator.wait_for_everyone()
    return folder


def _write_model(accelerator: Accelerator, request: FolderRequest, label: str, step: int) -> Path:
    """Write the weights to their own folder."""
    contents.refuse_infinite(accelerator, step)
    folder = request.target.parent / label
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
        store.sweep(target.beside)
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
