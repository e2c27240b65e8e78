"""Saving: the checkpoints of a host, written, verified, and reported to those who requested them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.checkpoint import frozen, seal, shards, store
from hookline.checkpoint.background import Background
from hookline.checkpoint.copies import Copies
from hookline.checkpoint.names import NAMES
from hookline.common.checks import check_name
from hookline.common.files import real_path
from hookline.errors import StorageError, blame
from hookline.run.save_request import SaveRequest
from hookline.rundir import failures, ownership
from hookline.state import snapshot
from hookline.state.finite import check_weights_are_finite

if TYPE_CHECKING:
    from hookline.state.host import Host

log = logging.getLogger("hookline")

#: Save the optimizers, save the schedulers, and save only what training changes.
Options = tuple[bool, bool, bool]
USUAL = SaveRequest()
#: A file of fewer bytes is verified at once: this takes less time than a step. Others are verified in the background.
SMALL = 1 << 20


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
        #: The iteration of the newest checkpoint that a run can resume from, and that checkpoint.
        self.saved_at = -1
        self.last_path: Path | None = None
        #: The seconds that training has waited for saves.
        self.seconds = 0.0
        #: The seconds of the newest save until its files were verified, even in the background; 0 before the first.
        self.took = 0.0
        self._background = Background(lambda: host.requests.note_failure())
        self._copies, self._kept_copies = Copies(), Copies()
        self._kept: tuple[dict[str, Any], seal.Note, Path] | None = None
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
        lost = host.strategy.on_main(lambda: ownership.find_lost(host.folders))
        host.contents.check()
        self.finish_before_another()
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
            weights=host.contents.weight_names(),
            step=host.position.iter,
            validations=host.position.validations,
        )
        in_background = [path for path, same in by_path.items() if all(request.background for request in same)]
        beside = {path: by_path[path] for path in in_background if not lost}
        now = {path: same for path, same in by_path.items() if path not in beside}
        if now:
            self._on_writers(partial(self._write_now, partial(write, taken, by_path=now), began))
        if beside and host.strategy.checkpoints.written_here:
            copied = self._copies.take({str(parts): checkpoint for parts, checkpoint in taken.items()})
            later = partial(write, {parts: copied[str(parts)] for parts in taken}, by_path=beside)
            self._background.start(partial(self._write_beside, later, began))
        if lost:
            raise ownership.lost_error(lost, [path for path in by_path if path.exists()])

    def _on_writers(self, write: Callable[[], None]) -> None:
        """Write files in the processes that do so. The others wait for them, and know then what was saved."""

        def write_and_tell() -> tuple[int, Path | None]:
            write()
            return self.saved_at, self.last_path

        self.saved_at, self.last_path = self._host.strategy.checkpoints.on_writers(write_and_tell)

    def _options(self, requests: list[SaveRequest]) -> Options:
        """Return the options of a file: a part that at least one of the requests wants is saved."""
        default = "all" if self.built is None else "trainable"
        return (
            any(request.optimizer for request in requests),
            any(request.schedulers for request in requests),
            all((request.params or default) == "trainable" for request in requests),
        )

    def save_in_window(self) -> None:
        """Write what need not wait for the end of an accumulation window: nothing, because half a step is no state."""

    def check_folders(self) -> None:
        """At the end of a run, report that its folder was deleted. The last state of a training is saved again."""
        lost = self._host.strategy.on_main(lambda: ownership.find_lost(self._host.folders))
        if lost and self._host.running == "train" and self._host.position.iter:
            self._host.requests.ask_save(SaveRequest(together=True))
            self.save()  # it raises the error
        if lost:
            raise ownership.lost_error(lost, [])

    def path(self, request: SaveRequest = USUAL) -> Path:
        """Return where a requested checkpoint would be written now."""
        folder = request.folder if request.folder is not None else self._host.folders[0]
        name = self._host.checkpoint_name(request)
        check_name("the file name of a checkpoint", name)
        return folder / (
            name.removesuffix(".pth") + self._host.strategy.checkpoints.suffix if name.endswith(".pth") else name
        )

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
            checkpoint, complete = snapshot.with_meta(taken[parts], more), self._is_complete(parts)
            self._check_weights(checkpoint, weights, step)
            try:
                written.append(self._write(checkpoint, path, seal.Note(step, validations, complete), requests))
            except StorageError as error:
                self._tolerate(error, requests)

    def _is_complete(self, parts: tuple[Any, ...]) -> bool:
        """Return whether a run can resume from a file with these parts."""
        return self._host.contents.is_resumable and all(parts[:2])

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
        host.contents.check()
        checkpoint = snapshot.with_meta(snapshot.take(host, optimizer, schedulers), meta or {})
        step, validations = host.position.iter, host.position.validations
        host.strategy.checkpoints.on_writers(
            partial(self._check_weights, checkpoint, host.contents.weight_names(), step)
        )
        self._on_writers(partial(self._write_verified, checkpoint, path, seal.Note(step, validations, complete)))
        return path

    def forget(self) -> None:
        """Forget what was saved, so that the next run of this host begins like the first."""
        self.saved_at, self.last_path = -1, None

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
            sha256 = self._host.strategy.checkpoints.write(checkpoint, path, note)
        if note.complete:
            self.saved_at, self.last_path = note.step, path
        return Written(path, note, checkpoint.get("meta", {}).get("epoch"), sha256, requests or [])

    def _verify(self, written: Written) -> None:
        path, note = written.path, written.note
        self._host.strategy.checkpoints.verify(path)
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
        self._host.strategy.checkpoints.together(partial(check_weights_are_finite, own, weights, step))

    @property
    def busy(self) -> bool:
        """Return whether a checkpoint is requested, or is being written or verified in the background."""
        return self._background.busy or self._host.requests.files_wanted

    def is_saved(self) -> bool:
        """Return whether a checkpoint has the current state, and its folder was not deleted since."""
        return self.saved_at == self._host.position.iter and not ownership.find_lost(self._host.folders)

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

        This is an exit callback for `contextlib.ExitStack`.
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

    def finish_before_another(self) -> None:
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
        complete = host.contents.is_resumable
        self._kept = (copied, seal.Note(host.position.iter, host.position.validations, complete), path)

    def write_kept(self) -> Path | None:
        """Write the copy in memory, and return its path. Return None if there is no copy, or if it is already saved."""
        kept, self._kept = self._kept, None
        self._background.join()
        if kept is None or kept[1].step <= self.saved_at or not self._host.strategy.is_main:
            return None
        checkpoint, note, path = kept
        check_weights_are_finite(checkpoint["state_dict"], self._host.contents.weight_names(), note.step)
        self._write_verified(checkpoint, path, note)
        return path
