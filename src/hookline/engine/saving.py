"""Saving and loading the checkpoints of a host: handling requests, choosing paths, and finding a run's start."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from hookline.checkpoint import folders, frozen, seal, shards, store
from hookline.checkpoint.background import Background
from hookline.checkpoint.copies import Copies
from hookline.checkpoint.names import NAMES
from hookline.common.checks import check_name
from hookline.common.escape import escaped
from hookline.common.files import real_path, storage_errors
from hookline.engine import lost_folders, resuming, snapshot
from hookline.engine.numerics import check_weights_are_finite
from hookline.errors import HooklineError, StorageError, blame
from hookline.run import signals
from hookline.run.requests import SaveRequest
from hookline.rundir import archive, failures, moves

if TYPE_CHECKING:
    from hookline.engine.host import Host

log = logging.getLogger("hookline")

#: Save the optimizers, save the schedulers, and save only what training changes.
Options = tuple[bool, bool, bool]
USUAL = SaveRequest()
#: A file of fewer bytes is verified at once: this takes less time than a step. Others are verified in the background.
SMALL = 1 << 20


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


@dataclass(frozen=True)
class Written:
    """A checkpoint that was written, and is not verified yet."""

    path: Path
    note: seal.Note
    #: The epoch of the checkpoint, for the journal: the run may have gone on since.
    epoch: int | None
    sha256: str
    requests: list[SaveRequest]

    @property
    def is_small(self) -> bool:
        """Return whether it takes less time to verify it than to start a thread that does."""
        try:
            return self.path.stat().st_size < SMALL
        except OSError:  # the verification reports it
            return True


class Saving:
    """The checkpoints of one host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        #: The checkpoint that is being resumed, until its position is reached.
        self.pending: dict[str, Any] | None = None
        #: The iteration of the newest checkpoint that a run can resume from, and that checkpoint.
        self.saved_at = -1
        self.last_path: Path | None = None
        #: The iteration of the checkpoint that the run was resumed from.
        self.resumed_at = -1
        #: The checkpoint that was loaded last.
        self.source: Path | None = None
        #: What differed when the run was resumed; None if it was not.
        self.resumption: resuming.Resumption | None = None
        #: The seconds that training has waited for saves.
        self.seconds = 0.0
        #: The seconds of the newest save until its files were verified, even in the background; 0 before the first.
        self.took = 0.0
        #: True once a run of this host has begun. A second call of `train` then continues from the current state.
        self.started = False
        self._loaded = False
        #: True if the run in this folder was not resumed, because its checkpoint does not fit or a decision is missing.
        self.refused = False
        #: The position of the host before it evaluated a checkpoint.
        self._position_before: dict[str, Any] | None = None
        self._loader_state: tuple[bool, dict[str, Any] | None] = (False, None)
        self._background = Background(lambda: host.requests.note_failure())
        self._copies, self._kept_copies = Copies(), Copies()
        self._kept: tuple[dict[str, Any], seal.Note, Path] | None = None
        self._base_is_loaded = False
        #: The model as it was built, if checkpoints leave out what training does not change.
        self.built: frozen.FrozenRest | None = None
        #: True once the warning was shown that the state cannot be kept in memory.
        self._warned_not_kept = False

    # -- saving

    def save(self) -> None:
        """Write the requested checkpoints. Several requests for the same file are one."""
        began = time.perf_counter()
        pending = self._host.requests.take_saves()
        requests = [request for request in pending if not request.in_memory]
        kept = [request for request in pending if request.in_memory]
        with self._host.plan.ledger.part("saving"):
            if requests:
                self._save(requests)
            elif kept:
                self._keep_copy(self.path(kept[-1]), self._options(kept)[2])
        self.seconds += time.perf_counter() - began

    def _save(self, requests: list[SaveRequest]) -> None:
        host, began = self._host, time.perf_counter()
        lost = host.strategy.on_main(lambda: lost_folders.find(host.folders))
        host.check_loss()
        host.report_changes()
        self._finish_before_another()
        by_path: dict[Path, list[SaveRequest]] = {}
        for request in requests:
            by_path.setdefault(self.path(request), []).append(request)
        try:
            wanted = {self._options(same) for same in by_path.values()}
            taken = {
                (optimizer, schedulers, trained): snapshot.take(host, optimizer, schedulers, partial=trained)
                for optimizer, schedulers, trained in wanted
            }
        except StorageError as error:  # records that a checkpoint refers to cannot be written
            self._tolerate(error, requests)
            return
        write = partial(
            self._write_all,
            weights=host.weight_names(),
            step=host.position.iter,
            validations=host.position.validations,
        )
        in_background = [path for path, same in by_path.items() if all(request.background for request in same)]
        beside = {path: by_path[path] for path in in_background if not lost}
        now = {path: same for path, same in by_path.items() if path not in beside}
        if now:
            self._on_writers(partial(self._write_now, partial(write, taken, by_path=now), began))
        if beside and host.strategy.writes:
            copied = self._copies.take({str(parts): checkpoint for parts, checkpoint in taken.items()})
            later = partial(write, {parts: copied[str(parts)] for parts in taken}, by_path=beside)
            self._background.start(partial(self._write_beside, later, began))
        if lost:
            raise lost_folders.error(lost, [path for path in by_path if path.exists()])

    def _on_writers(self, write: Callable[[], None]) -> None:
        """Write files in the processes that do so. The others wait for them, and know then what was saved."""

        def write_and_tell() -> tuple[int, Path | None]:
            write()
            return self.saved_at, self.last_path

        self.saved_at, self.last_path = self._host.strategy.on_writers(write_and_tell)

    def _options(self, requests: list[SaveRequest]) -> Options:
        """Return the options of a file: a part that at least one of the requests wants is saved."""
        default = "all" if self.built is None else "trainable"
        return (
            any(request.optimizer for request in requests),
            any(request.schedulers for request in requests),
            all((request.params or default) == "trainable" for request in requests),
        )

    def check_folders(self) -> None:
        """At the end of a run, report that its folder was deleted. The last state of a training is saved again."""
        lost = self._host.strategy.on_main(lambda: lost_folders.find(self._host.folders))
        if lost and self._host.running == "train" and self._host.position.iter:
            self._host.requests.ask_save(SaveRequest(together=True))
            self.save()  # it raises the error
        if lost:
            raise lost_folders.error(lost, [])

    def path(self, request: SaveRequest = USUAL) -> Path:
        """Return where a requested checkpoint would be written now."""
        folder = request.folder if request.folder is not None else self._host.folders[0]
        name = self._host.checkpoint_name(request)
        check_name("the file name of a checkpoint", name)
        return folder / (name.removesuffix(".pth") + self._host.strategy.suffix if name.endswith(".pth") else name)

    def _write_all(
        self,
        taken: dict[Options, dict[str, Any]],
        by_path: dict[Path, list[SaveRequest]],
        weights: list[str],
        step: int,
        validations: int,
        written: list[Written],
    ) -> None:
        """Write the files, and add each one to `written`, which is to be confirmed even if a later one fails."""
        for path, requests in by_path.items():
            if all(request.replaces for request in requests) and not path.exists():
                continue
            parts = self._options(requests)
            more = {name: fact for each in requests for name, fact in each.meta.items()}
            checkpoint, complete = snapshot.with_meta(taken[parts], more), all(parts[:2])
            self._check_weights(checkpoint, weights, step)
            try:
                written.append(self._write(checkpoint, path, seal.Note(step, validations, complete), requests))
            except StorageError as error:
                self._tolerate(error, requests)

    def _write_now(self, write: Callable[..., None], began: float) -> None:
        """Write files while training waits. It does not wait for the verification of large ones."""
        written: list[Written] = []
        try:
            write(written=written)
        finally:
            if all(each.is_small for each in written):
                self._confirm(written, began)
            else:
                self._background.start(partial(self._confirm, written, began))

    def _write_beside(self, write: Callable[..., None], began: float) -> None:
        """Write files in the background."""
        written: list[Written] = []
        try:
            write(written=written)
        finally:
            self._confirm(written, began)

    def _confirm(self, written: Iterable[Written], began: float) -> None:
        """Verify files. Only then point to them, and call the requesters back: they remove old checkpoints."""
        for each in written:
            try:
                self._verify(each)
            except StorageError as error:
                self.saved_at, self.last_path = -1, None
                self._tolerate(error, each.requests)
                continue
            for request in each.requests:
                if request.done is not None and self._host.strategy.is_main:
                    request.done(each.path)
        self.took = time.perf_counter() - began

    def write_now(
        self,
        path: Path,
        *,
        complete: bool,
        optimizer: bool = True,
        schedulers: bool = True,
        meta: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write a checkpoint of the current state at once. It is not `complete` if it may contain half a step."""
        host = self._host
        host.check_loss()
        checkpoint = snapshot.with_meta(snapshot.take(host, optimizer, schedulers), meta or {})
        step, validations = host.position.iter, host.position.validations
        host.strategy.on_writers(partial(self._check_weights, checkpoint, host.weight_names(), step))
        self._on_writers(partial(self._write_verified, checkpoint, path, seal.Note(step, validations, complete)))
        return path

    def forget(self) -> None:
        """Forget what was saved and loaded, so that the next run of this host begins like the first."""
        self.saved_at = self.resumed_at = -1
        self.last_path, self.started, self._loaded = None, False, False

    def _tolerate(self, error: StorageError, requests: list[SaveRequest]) -> None:
        """Continue without a checkpoint if it is not needed; otherwise raise the error."""
        if any(request.needed for request in requests):
            raise error
        log.warning("%s. The run continues without this checkpoint.", error)
        for request in requests:
            if request.failed is not None:
                request.failed()

    def _write(
        self, checkpoint: dict[str, Any], path: Path, note: seal.Note, requests: list[SaveRequest] | None = None
    ) -> Written:
        self._host.requests.refuse_copy()
        with self._host.terminal.working(f"saving {path.name}") if not self._background.busy else nullcontext():
            sha256 = self._host.strategy.write_checkpoint(checkpoint, path, note)
        if note.complete:
            self.saved_at, self.last_path = note.step, path
        return Written(path, note, checkpoint.get("meta", {}).get("epoch"), sha256, requests or [])

    def _verify(self, written: Written) -> None:
        path, note = written.path, written.note
        self._host.strategy.verify_checkpoint(path)
        self._host.terminal.detail(partial("saved {}".format, path))
        self._note_save(written)
        if note.complete:
            if self._host.strategy.is_main:
                store.point_to(path, path.parent, written.sha256, note.step)
            failures.forget(self._host.work_dir, passed=note.step)

    def _write_verified(self, checkpoint: dict[str, Any], path: Path, note: seal.Note) -> None:
        self._verify(self._write(checkpoint, path, note))

    def _note_save(self, written: Written) -> None:
        """Note a checkpoint in the journal, at the position that it holds."""
        path, note, known = written.path, written.note, NAMES.fullmatch(written.path.name)
        file = path.name if real_path(path.parent) == real_path(self._host.work_dir) else str(path)
        best = known["metric"] if known is not None else None
        self._host.journal.note(
            "save", step=note.step, epoch=written.epoch, file=file, best=best, complete=note.complete
        )

    def _check_weights(self, checkpoint: dict[str, Any], weights: list[str], step: int) -> None:
        """Refuse to save weights of NaN or Inf. A process that has only a part of the weights checks that part."""
        own = shards.own_weights(checkpoint) if shards.KEY in checkpoint else checkpoint["state_dict"]
        self._host.strategy.together(partial(check_weights_are_finite, own, weights, step))

    @property
    def busy(self) -> bool:
        """Return whether a checkpoint is requested, or is being written or verified in the background."""
        return self._background.busy or self._host.requests.files_wanted

    def end_if_signaled(self) -> None:
        """After a signal, save the current state and end the run. Without one, raise the error of a background save.

        The signal may also have ended the workers of the loader. Then an accumulation window is saved as it is, open.
        """
        host, requests = self._host, self._host.requests
        if requests.failure or requests.signal:
            requests.failure = False
            self._finish_before_another()
        if not requests.signal:
            return
        number, where = requests.signal, self.save_before_end()
        to = "" if requests.signaled_rank is None else f" to rank {requests.signaled_rank}"
        host.journal.note("signal", name=signal.Signals(number).name, rank=requests.signaled_rank)
        host.report(f"ended by {signal.Signals(number).name}{to} after {host.progress_text}: {where}")
        raise signals.ending(number, reported=True)

    def is_saved(self) -> bool:
        """Return whether a checkpoint has the current state, and its folder was not deleted since."""
        return self.saved_at == self._host.position.iter and not lost_folders.find(self._host.folders)

    def is_saved_at_last(self) -> bool:
        """Wait for a save in the background, and return whether a checkpoint has the current state."""
        self._background.join()
        return self.is_saved()

    def save_before_end(self) -> str:
        """Save the current state, unless it is already saved. Return the end of the message about it."""
        host = self._host
        self.saved_at, self.last_path = host.strategy.on_main(lambda: (self.saved_at, self.last_path))
        if host.position.iter and not host.strategy.on_main(self.is_saved):
            host.requests.ask_save(SaveRequest(together=True))
            self.save()
            self.finish()
        if self.last_path is None:
            return "there was nothing to save yet"
        return f"saved {self.last_path}"

    def finish_at_exit(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Wait for a save in the background when the run ends, even if the run has failed.

        The signature is that of an exit callback of `contextlib.ExitStack`.
        """
        try:
            self.finish()
        except Exception as another:
            if error is None:
                raise
            blame(error, f"writing a checkpoint in the background failed, too: {another}")

    def finish(self) -> None:
        """Wait for a save in the background, and raise its error if it failed."""
        try:
            self._background.wait()
        except StorageError:
            if self._host.strategy.acts_alone:
                self.check_folders()
            raise

    def _finish_before_another(self) -> None:
        """Wait for a save in the background. Its error ends the run, unless a signal does: then a new save follows."""
        if not self._host.requests.signal:
            self.finish()
            return
        try:
            self._background.wait()
        except StorageError as error:
            self.saved_at, self.last_path = -1, None
            log.warning("%s. The run ends after a signal, and saves its state again.", error)

    # -- a copy of the state in memory, in case the run fails

    def _keep_copy(self, path: Path, partial: bool) -> None:
        """Copy the current state, which is written if the run fails later. If this fails, the previous copy stays."""
        host = self._host
        try:
            taken = snapshot.take(host, partial=partial)
        except StorageError as error:  # records that a checkpoint refers to cannot be written
            if not self._warned_not_kept:
                log.warning("%s. The run continues without a newer state in memory.", error)
            self._warned_not_kept = True
            return
        self._warned_not_kept = False
        self._kept = None  # the new copy reuses the memory of the old one
        copied = self._kept_copies.take(taken)
        self._kept = (copied, seal.Note(host.position.iter, host.position.validations, complete=True), path)

    def write_kept(self) -> Path | None:
        """Write the copy in memory, and return its path. Return None if there is no copy, or if it is already saved."""
        kept, self._kept = self._kept, None
        self._background.join()
        if kept is None or kept[1].step <= self.saved_at or not self._host.strategy.is_main:
            return None
        checkpoint, note, path = kept
        check_weights_are_finite(checkpoint["state_dict"], self._host.weight_names(), note.step)
        self._write_verified(checkpoint, path, note)
        return path

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
        host = self._host
        if self.started or (self._loaded and verb != "train"):
            return None
        path: Path | None = None
        if host.resume is True:
            path = store.newest_intact(
                host.folders, lambda text: log.warning("skipped: %s", text), host.checkpoint_names
            )
            if path is None:
                keep = f"; keep {', '.join(host.keep.words)} has no effect" if host.keep else ""
                host.terminal.say(f"there is no checkpoint in {host.work_dir} yet: starting from scratch{keep}")
        elif host.resume:
            path = Path(host.resume)
        if path is not None:
            return self.read_source((path, "resume" if verb == "train" else "weights"))
        if host.load_from is not None:
            return self.read_source((Path(host.load_from), "load_from"))
        return None

    def read_source(self, found: tuple[Path, SourceKind] | None) -> Source | None:
        """Read the checkpoint that this run starts from, as `find_source` found it in the main process."""
        if found is None:
            return None
        host, (path, kind) = self._host, found
        if kind != "load_from":
            if folders.exists(path) and seal.read_note(path) is None:
                raise StorageError(
                    f"{path} cannot be resumed: {seal.damage(path)}; to load only the weights of an intact file, use "
                    "load_from without resume"
                )
            # With `resume=True`, it was verified just now.
            checkpoint = host.strategy.read_checkpoint(path, sealed=True, verified=host.resume is True)
            if kind == "resume":
                _refuse_half_step(path, checkpoint)
            return Source(path, checkpoint, kind)
        return Source(path, _as_checkpoint(host.read_weights(path), path), kind)

    def resume_loader(self, state: dict[str, Any] | None) -> None:
        """Let the first pass of the resumed run start from this state of its loader."""
        self._loader_state = (True, state)

    def take_loader_state(self) -> tuple[bool, dict[str, Any] | None]:
        """Return whether this pass over the data is the first of a resumed run, and the loader state to resume with."""
        taken, self._loader_state = self._loader_state, (False, None)
        return taken

    def load(self, source: Source | None) -> None:
        """Load the weights now. The rest of a run that is resumed is loaded when its position is reached."""
        host = self._host
        before = self.started, self._loaded
        is_new, self.started = not self.started, self.started or host.running == "train"
        try:
            self._load_all(source, is_new)
        except HooklineError:
            if self.refused:
                self.started, self._loaded = before
            raise
        except BaseException:
            self.refused = False
            raise

    def _load_all(self, source: Source | None, is_new: bool) -> None:
        host = self._host
        if source is not None and source.kind == "load_from":
            self._load(source)
        leaves_out = not host.strategy.shards and any(entry.saves_only_trained for entry in host.plan)
        if is_new and host.running == "train" and leaves_out:
            if source is not None and source.kind == "resume":
                self._load_base()
            self.built = frozen.FrozenRest(host.parts["state_dict"].state_dict())
        if source is not None and source.kind != "load_from":
            self._load(source)

    def _load_base(self) -> None:
        """Load the weights that a checkpoint with only the trained parameters builds on, if they come from a file."""
        base = self._host.base_weights()
        if base is not None and not self._base_is_loaded:
            self._base_is_loaded = True
            source = self.read_source((base, "load_from"))
            assert source is not None
            if frozen.is_partial(source.checkpoint):
                self._complete(source)
            self._host.load_weights(source.checkpoint, str(base))

    def _complete(self, source: Source) -> None:
        """Add the frozen rest of the model, which is not in the checkpoint, after its hashes were compared."""
        host = self._host
        if host.strategy.shards:
            raise StorageError(
                f"{source.path} has only the trained parameters (params: trainable), which the strategy "
                f"'{host.strategy.name}' cannot complete; make it a whole one first: hookline export FILE --base BASE "
                "--out whole.pth"
            )
        self._load_base()
        own, trains = host.parts["state_dict"].state_dict(), source.kind == "load_from" and host.running == "train"
        wrong = frozen.complete(source.checkpoint, own, source.path, tolerant=trains)
        if wrong:
            host.terminal.say(
                f"{escaped(source.path)} has only the trained parameters, and the frozen rest of this model is not the "
                f"one that it was trained with: {wrong[0]}"
            )

    def _load(self, source: Source) -> None:
        host = self._host
        self.refused = source.kind == "resume" and source.is_inside(host.folders)  # until nothing speaks against it
        self._loaded, self.source = True, source.path
        checkpoint, path = source.checkpoint, str(source.path)
        if frozen.is_partial(checkpoint):
            self._complete(source)
        host.plan.call("after_load_checkpoint", {"checkpoint": checkpoint})
        if source.kind != "resume":
            host.load_weights(checkpoint, path)
            if host.running != "train":
                self._move_to_checkpoint(source)
            return
        self.resume_loader(None)
        snapshot.check(host, checkpoint, path)
        found = resuming.compare_with(host, checkpoint, source.path)
        host.before_loading(found, checkpoint)
        self.refused = False
        snapshot.load(host, checkpoint, path)
        host.after_loading(found)
        if source.is_inside(host.folders):
            host.strategy.on_main(lambda: self._archive_later(source.path))
        else:
            checkpoint.pop("writers", None)
        self.pending, self.saved_at, self.resumed_at, self.last_path = (
            checkpoint,
            host.position.iter,
            host.position.iter,
            source.path,
        )
        host.after_resume(checkpoint)
        for line in found.lines:
            host.terminal.say(f"  {line}")
        self.resumption = found
        if host.strategy.is_main:
            resuming.record(host, found)
        stopped = host.requests.stopped
        if stopped:
            gone = stopped.by not in {entry.name for entry in host.plan}
            if gone or stopped.for_now or stopped.parameters != host.plan.parameters_of(stopped.by):
                host.requests.resume_training()

    def _move_to_checkpoint(self, source: Source) -> None:
        """Move to the position of the checkpoint to evaluate: its results belong to that iteration of that run."""
        position, host = source.checkpoint.get("position"), self._host
        part = host.parts.get("position")
        if isinstance(position, dict) and not (part is not None and part.malformed(position)):
            self._position_before = host.position.state_dict()
            host.position.load_state_dict(position)
        if source.is_inside(host.folders):
            host.rejoin_records(source.checkpoint.get("writers", {}))

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
            copies = {folder: [folder / name for name in host.records_cut_back()] for folder in files}
            for folder, old in moves.move_all(files, self.origin_of, copies).items():
                if real_path(path).parent == real_path(folder):
                    store.point_to(path, path.parent, seal.digest(path), note.step)
                else:
                    (folder / store.POINTER).unlink(missing_ok=True)
                host.terminal.say(f"moved the checkpoints that are later than {path.name} to {old}")

    def restore(self) -> bool:
        """Load the late parts of a run that is being resumed, once, where it continues; return whether it did."""
        checkpoint, self.pending = self.pending, None
        if checkpoint is None:
            return False
        snapshot.load_late(self._host, checkpoint, str(self.source))
        return True


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
