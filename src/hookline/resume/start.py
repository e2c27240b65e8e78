"""Start: which checkpoint a run begins with, and how it is loaded.

    source = start.find_source("train")   # the newest intact checkpoint, a path, the file of load_from, or nothing
    start.load(source)                    # compare it with this run, load it, report what differs

Hook states, records and random generators are loaded later, where the run continues: see `hookline.state.loading`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from hookline.checkpoint import folders, frozen, seal, store
from hookline.common.escape import escaped
from hookline.common.files import real_path, storage_errors
from hookline.errors import HooklineError, StorageError
from hookline.rundir import archive, loss_bits, moves
from hookline.state import snapshot

if TYPE_CHECKING:
    from hookline.resume.contract import Contract
    from hookline.state.host import Host

log = logging.getLogger("hookline")


#: A whole checkpoint; its weights, for an evaluation; a file of weights.
SourceKind = Literal["resume", "weights", "load_from"]


@dataclass(frozen=True)
class Source:
    """The start of a run: a whole checkpoint, or only its weights."""

    path: Path
    checkpoint: dict[str, Any]
    kind: SourceKind

    def is_inside(self, folders: Iterable[Path]) -> bool:
        """Return whether it is in one of these folders of the run, so that the records there belong to it."""
        return real_path(self.path).parent in [real_path(folder) for folder in folders]


class Start:
    """Finds and loads the checkpoint that a run begins with."""

    def __init__(self, host: Host, contract: Contract) -> None:
        self._host, self._loading, self.contract = host, host.loading, contract
        #: True once a checkpoint was loaded.
        self._loaded = False
        self._base_is_loaded = False
        #: The position of the host before it evaluated a checkpoint.
        self._position_before: dict[str, Any] | None = None

    def forget(self) -> None:
        """Forget what was loaded, so that the next run of this host begins like the first."""
        self._loading.resumed_at, self._loading.started, self._loaded = -1, False, False

    # -- the files of an earlier run

    def earlier_files(self, folder: Path, records: Iterable[str]) -> list[Path]:
        """Return the files of an earlier run in a folder, which a fresh run moves to an archive."""
        return archive.files_of_run(folder, records)

    def origin_of(self, path: Path, folder: Path) -> Path:
        """Return where a file in the archive of a folder was."""
        return folder / path.name

    # -- loading

    def find_source(self, verb: str) -> Source | None:
        """Read the checkpoint that this run starts from; None if it starts from scratch or was already started."""
        host, choices = self._host, self.contract.choices
        if self._loading.started or (self._loaded and verb != "train"):
            return None
        path: Path | None = None
        if choices.resume is True:
            path = store.newest_intact(
                host.folders, lambda text: log.warning("skipped: %s", text), host.checkpoint_names
            )
            if path is None:
                keep = f"; keep {', '.join(choices.keep.words)} has no effect" if choices.keep else ""
                host.terminal.say(f"there is no checkpoint in {host.work_dir} yet: starting from scratch{keep}")
        elif choices.resume:
            path = Path(choices.resume)
        if path is not None:
            return self.read_source((path, "resume" if verb == "train" else "weights"))
        if choices.load_from is not None:
            return self.read_source((Path(choices.load_from), "load_from"))
        return None

    def read_source(self, found: tuple[Path, SourceKind] | None) -> Source | None:
        """Read the checkpoint that this run starts from, as `find_source` found it in the main process."""
        if found is None:
            return None
        host, choices, (path, kind) = self._host, self.contract.choices, found
        if kind != "load_from":
            if folders.exists(path) and seal.read_note(path) is None:
                raise StorageError(
                    f"{path} cannot be resumed: {seal.damage(path)}; to load only the weights of an intact file, use "
                    "load_from without resume"
                )
            # With `resume=True`, it was verified just now.
            checkpoint = host.strategy.checkpoints.read(path, sealed=True, verified=choices.resume is True)
            if kind == "resume":
                _refuse_half_step(path, checkpoint)
            return Source(path, checkpoint, kind)
        return Source(path, _as_checkpoint(self.contract.read_weights(path), path), kind)

    def load(self, source: Source | None) -> None:
        """Load the weights now. The rest of a run that is resumed is loaded when its position is reached."""
        host = self._host
        before = self._loading.started, self._loaded
        is_new, self._loading.started = not self._loading.started, self._loading.started or host.running == "train"
        try:
            self._load_all(source, is_new)
        except HooklineError:
            if self._loading.refused:
                self._loading.started, self._loaded = before
            raise
        except BaseException:
            self._loading.refused = False
            raise

    def _load_all(self, source: Source | None, is_new: bool) -> None:
        host = self._host
        if source is not None and source.kind == "load_from":
            self._load(source)
        leaves_out = not host.strategy.checkpoints.are_sharded and any(entry.saves_only_trained for entry in host.plan)
        if is_new and host.running == "train" and leaves_out:
            if source is not None and source.kind == "resume":
                self._load_base()
            host.saving.built = frozen.FrozenRest(host.contents.parts["state_dict"].state_dict())
        if source is not None and source.kind != "load_from":
            self._load(source)

    def _load_base(self) -> None:
        """Load the weights that a checkpoint with only the trained parameters builds on, if they come from a file."""
        base = self.contract.base_weights()
        if base is not None and not self._base_is_loaded:
            self._base_is_loaded = True
            source = self.read_source((base, "load_from"))
            assert source is not None
            if frozen.is_partial(source.checkpoint):
                self._complete(source)
            self.contract.load_weights(source.checkpoint, str(base))

    def _complete(self, source: Source) -> None:
        """Add the frozen rest of the model, which is not in the checkpoint, after its hashes were compared."""
        host = self._host
        if host.strategy.checkpoints.are_sharded:
            raise StorageError(
                f"{source.path} has only the trained parameters (params: trainable), which the strategy "
                f"'{host.strategy.name}' cannot complete; make it a whole one first: hookline export FILE --base BASE "
                "--out whole.pth"
            )
        self._load_base()
        own, trains = (
            host.contents.parts["state_dict"].state_dict(),
            source.kind == "load_from" and host.running == "train",
        )
        wrong = frozen.complete(source.checkpoint, own, source.path, tolerant=trains)
        if wrong:
            host.terminal.say(
                f"{escaped(source.path)} has only the trained parameters, and the frozen rest of this model is not the "
                f"one that it was trained with: {wrong[0]}"
            )

    def _load(self, source: Source) -> None:
        host = self._host
        self._loading.refused = source.kind == "resume" and source.is_inside(
            host.folders
        )  # until nothing speaks against it
        self._loaded, self._loading.source = True, source.path
        checkpoint, path = source.checkpoint, str(source.path)
        if frozen.is_partial(checkpoint):
            self._complete(source)
        host.plan.call("after_load_checkpoint", {"checkpoint": checkpoint})
        if source.kind != "resume":
            self.contract.load_weights(checkpoint, path)
            if host.running != "train":
                self._move_to_checkpoint(source)
            return
        loading, saving, contract = self._loading, host.saving, self.contract
        loading.resume_loader(None)
        contract.check(checkpoint, source.path)
        self._loading.refused = False
        snapshot.load(host, checkpoint, path)
        contract.apply()
        if source.is_inside(host.folders):
            host.strategy.on_main(lambda: self._archive_later(source.path))
        else:
            checkpoint.pop("writers", None)
        loading.pending, saving.saved_at, loading.resumed_at, saving.last_path = (
            checkpoint,
            host.position.iter,
            host.position.iter,
            source.path,
        )
        contract.report(checkpoint)
        stopped = host.requests.stopped
        if stopped:
            gone = stopped.by not in {entry.name for entry in host.plan}
            if gone or stopped.for_now or stopped.parameters != host.plan.parameters_of(stopped.by):
                host.requests.resume_training()

    def _move_to_checkpoint(self, source: Source) -> None:
        """Move to the position of the checkpoint to evaluate: its results belong to that iteration of that run."""
        position, host = source.checkpoint.get("position"), self._host
        part = host.contents.parts.get("position")
        if isinstance(position, dict) and not (part is not None and part.malformed(position)):
            self._position_before = host.position.state_dict()
            host.position.load_state_dict(position)
        if source.is_inside(host.folders):
            host.records.rejoin(source.checkpoint.get("writers", {}))

    def move_back(self) -> None:
        """Return to the position before a checkpoint was evaluated, so that training starts from there."""
        if self._position_before is not None:
            self._host.position.load_state_dict(self._position_before)
            self._position_before = None

    def _archive_later(self, path: Path) -> None:
        """Archive the checkpoints that are later than the resumed one: the run will reach those steps again."""
        note, host = seal.read_note(path), self._host
        assert note is not None, "a checkpoint that is resumed has a seal"
        with storage_errors(host.work_dir, "used", inside=True):
            files = {folder: archive.later_checkpoints(folder, note) for folder in host.folders}
            # The later part of these records is about to be removed.
            cut_back = [*host.records.files_cut_back(), loss_bits.NAME]
            copies = {folder: [folder / name for name in cut_back] for folder in files}
            for folder, old in moves.move_all(files, self.origin_of, copies).items():
                if real_path(path).parent == real_path(folder):
                    store.point_to(path, path.parent, seal.digest(path), note.step)
                else:
                    (folder / store.POINTER).unlink(missing_ok=True)
                host.terminal.say(f"moved the checkpoints that are later than {path.name} to {old}")


def _as_checkpoint(found: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a file of weights as a checkpoint that has only weights. Many programs store them under `model`."""
    if "state_dict" in found:
        return found
    if isinstance(found.get("model"), dict):
        return {"state_dict": found["model"]}
    if found and all(isinstance(value, Tensor) for value in found.values()):
        return {"state_dict": found}
    raise StorageError(
        f"{path} contains no weights: it has {', '.join(map(str, list(found)[:8]))}, but no 'state_dict'"
    )


def _refuse_half_step(path: Path, checkpoint: Mapping[str, Any]) -> None:
    """Refuse to resume from a checkpoint that has everything, but from the middle of a step."""
    note = seal.read_note(path)
    if note is not None and not note.complete and store.describe_gap(checkpoint) == store.HALF_STEP:
        raise StorageError(
            f"{path} cannot be resumed: it was saved {store.HALF_STEP}; to load only its weights, use load_from "
            "without resume"
        )
