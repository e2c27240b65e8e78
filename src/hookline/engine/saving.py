"""Saving and loading, as the runner sees it: what is asked for, where it goes, and what a run starts from."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from hookline.checkpoint import compatibility, seal, store
from hookline.checkpoint.background import Background
from hookline.checkpoint.copies import Copies
from hookline.checkpoint.export import averages_in
from hookline.common import rng
from hookline.engine import hook_states, snapshot
from hookline.engine.numerics import refuse_infinite_loss, refuse_infinite_weights
from hookline.errors import StorageError, blame
from hookline.rundir import archive

if TYPE_CHECKING:
    from hookline.engine.requests import Request
    from hookline.engine.runner import Runner

log = logging.getLogger("hookline")

#: Whether a checkpoint has its optimizers, and whether its schedulers.
Parts = tuple[bool, bool]


@dataclass(frozen=True)
class Source:
    """What a run starts from: all of a checkpoint, or just its weights."""

    path: Path
    checkpoint: dict[str, Any]
    kind: Literal["resume", "weights"]

    def is_inside(self, folders: Iterable[Path]) -> bool:
        """Whether it lies in one of these folders of a run, so that the run's records belong to it."""
        return self.path.resolve().parent in [folder.resolve() for folder in folders]


class Saving:
    """The checkpoints of one runner."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.asked: list[Request] = []
        #: The checkpoint that is being resumed, until its position is reached.
        self.pending: dict[str, Any] | None = None
        #: The iteration of the newest checkpoint that a run can go on from, and that checkpoint.
        self.saved_at = -1
        self.last_path: Path | None = None
        #: The iteration of the checkpoint that the run went on from.
        self.resumed_at = -1
        #: The time that training has waited for saves.
        self.seconds = 0.0
        #: How long the newest save took until its files were verified, also beside the training; 0 before the first.
        self.took = 0.0
        #: Whether a run of this runner has begun; then it goes on from where it is.
        self.started = False
        self._loaded = False
        #: Where the runner stood before it evaluated a checkpoint.
        self._stood_at: dict[str, Any] | None = None
        self._loader_state: tuple[bool, dict[str, Any] | None] = (False, None)
        self._background = Background(self._look)
        self._copies, self._kept_copies = Copies(), Copies()
        self._kept: tuple[dict[str, Any], seal.Note, Path] | None = None
        #: Whether it was said that the state cannot be kept.
        self._said_not_kept = False

    @property
    def folders(self) -> list[Path]:
        """Where checkpoints of this run lie: its folder, and where hooks put them."""
        said = [entry.hook.checkpoint_folder(self._runner) for entry in self._runner.plan if _saves(entry.hook)]
        return list({folder.resolve(): folder for folder in [*said, self._runner.work_dir]}.values())

    # -- saving

    def ask(self, request: Request) -> None:
        """Note a request; the loop has it written where nothing is half done."""
        self.asked.append(replace(request, meta=copy.deepcopy(request.meta)) if request.meta else request)
        self._runner.asked = True

    def save(self) -> None:
        """Write what was asked for; requests for the same file are one."""
        began = time.perf_counter()
        requests = [request for request in self.asked if not request.in_memory]
        kept = [request for request in self.asked if request.in_memory]
        self.asked = []
        if requests:
            self._save(requests)
        elif kept:
            self._keep_copy(self.path(kept[-1]))
        self.seconds += time.perf_counter() - began

    def _save(self, requests: list[Request]) -> None:
        runner, began = self._runner, time.perf_counter()
        refuse_infinite_loss(runner)
        self.finish()
        by_path: dict[Path, list[Request]] = {}
        for request in requests:
            by_path.setdefault(self.path(request), []).append(request)
        try:
            taken = {parts: snapshot.take(runner, *parts) for parts in {_parts(same) for same in by_path.values()}}
        except StorageError as error:  # records that a checkpoint counts on
            self._tolerate(error, requests)
            return
        weights = [name for name, _ in runner.model.named_parameters()]
        write = partial(
            self._write_all,
            weights=weights,
            step=runner.iter,
            validations=runner.validations,
            began=began,
        )
        beside = {path: same for path, same in by_path.items() if all(request.background for request in same)}
        now = {path: same for path, same in by_path.items() if path not in beside}
        if now:
            write(taken, by_path=now)
        if beside:
            copied = self._copies.take({str(parts): checkpoint for parts, checkpoint in taken.items()})
            self._background.start(partial(write, {parts: copied[str(parts)] for parts in taken}, by_path=beside))

    def path(self, request: Request) -> Path:
        """Where a request would be written now."""
        at, loop = self._runner.position, self._runner.train_loop
        folder = request.folder if request.folder is not None else self.folders[0]
        if request.name is not None:
            return folder / request.name(at)
        wanted = loop.by_epoch if request.by_epoch is None else request.by_epoch
        by_epoch = wanted and at.batch == 0  # in the middle of an epoch only the iteration says where
        own = request.template if by_epoch == wanted else None
        template = own or ("epoch_{}.pth" if by_epoch else "iter_{}.pth")
        return folder / (request.prefix + template.format(at.epoch if by_epoch else at.iter))

    def _write_all(
        self,
        taken: dict[Parts, dict[str, Any]],
        by_path: dict[Path, list[Request]],
        weights: list[str],
        step: int,
        validations: int,
        began: float,
    ) -> None:
        """Write, verify, and only then tell those who asked: they remove old ones."""
        for path, requests in by_path.items():
            parts, more = _parts(requests), {name: fact for each in requests for name, fact in each.meta.items()}
            checkpoint, complete = snapshot.with_meta(taken[parts], more), all(parts)
            refuse_infinite_weights(checkpoint["state_dict"], weights, step)
            try:
                self._write(checkpoint, path, seal.Note(step, validations, complete))
            except StorageError as error:
                self._tolerate(error, requests)
                continue
            for request in requests:
                if request.done is not None:
                    request.done(path)
        self.took = time.perf_counter() - began

    def _tolerate(self, error: StorageError, requests: list[Request]) -> None:
        """Go on without a checkpoint if nobody needs it; else raise."""
        if any(request.needed for request in requests):
            raise error
        log.warning("%s. The run goes on without this checkpoint.", error)
        for request in requests:
            if request.failed is not None:
                request.failed()

    def _write(self, checkpoint: dict[str, Any], path: Path, note: seal.Note) -> None:
        if not self._background.busy:
            self._runner.terminal.working(f"saving {path.name}")
        sha256 = store.write(checkpoint, path, note)
        self._runner.terminal.detail(partial("saved {}".format, path))
        if note.complete:
            store.point_to(path, path.parent, sha256, note.step)
            self.saved_at, self.last_path = note.step, path

    def _look(self) -> None:
        """Something went wrong beside the training: it is raised where the loop acts next."""
        self._runner.asked = True

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is asked for, or is being written beside the training."""
        return self._background.busy or any(not request.in_memory for request in self.asked)

    def raise_failure(self) -> None:
        """Raise what went wrong in a save beside the training, if anything did."""
        if self._background.failed:
            self.finish()

    def leave(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """The run ends: a save that is under way is finished, whatever else went wrong."""
        try:
            self.finish()
        except Exception as another:
            if error is None:
                raise
            blame(error, f"a checkpoint that was being written failed, too: {another}")

    def finish(self) -> None:
        """Wait for a save that is under way; raises what went wrong in it."""
        self._background.wait()

    # -- the state in memory, for the case of a failure

    def _keep_copy(self, path: Path) -> None:
        """Copy the state as it is now; it is written if the run fails later. If it cannot be, the last one is kept."""
        runner = self._runner
        try:
            taken = snapshot.take(runner)
        except StorageError as error:  # records that a checkpoint counts on
            if not self._said_not_kept:
                log.warning("%s. The run goes on without a newer state in memory.", error)
            self._said_not_kept = True
            return
        self._said_not_kept = False
        self._kept = None  # the memory of the old copy is used for the new one
        copied = self._kept_copies.take(taken)
        self._kept = (copied, seal.Note(runner.iter, runner.validations, complete=True), path)

    def write_kept(self) -> Path | None:
        """Write the state that was kept, unless a checkpoint of it is there already; gives where it is."""
        kept, self._kept = self._kept, None
        self._background.join()
        if kept is None or kept[1].step <= self.saved_at:
            return None
        checkpoint, note, path = kept
        names = [name for name, _ in self._runner.model.named_parameters()]
        refuse_infinite_weights(checkpoint["state_dict"], names, note.step)
        self._write(checkpoint, path, note)
        return path

    # -- loading

    def find_source(self, verb: str) -> Source | None:
        """Read what this run starts from; a runner that has started already goes on from where it is."""
        runner = self._runner
        if self.started or (self._loaded and verb != "train"):
            return None
        path: Path | None = None
        if runner.resume is True:
            path = store.newest_intact(self.folders, lambda text: log.warning("passed over: %s", text))
            if path is None:
                runner.terminal.say(f"there is no checkpoint in {runner.work_dir} yet: starting afresh")
        elif runner.resume:
            path = Path(runner.resume)
        if path is not None:
            # The newest intact one was verified just now.
            if path.is_file() and seal.read_note(path) is None:
                raise StorageError(
                    f"{path} cannot be resumed: {seal.damage(path)}; load_from, without resume, takes the weights of a "
                    "whole one"
                )
            checkpoint = store.read(path, sealed=True, verified=runner.resume is True)
            return Source(path, checkpoint, "resume" if verb == "train" else "weights")
        if runner.load_from is not None:
            path = Path(runner.load_from)
            return Source(path, _as_checkpoint(runner.read_weights(path), path), "weights")
        return None

    def take_loader_state(self) -> tuple[bool, dict[str, Any] | None]:
        """For a pass over the data: whether it is the first of a resumed run, and the state of its loader then."""
        taken, self._loader_state = self._loader_state, (False, None)
        return taken

    def load(self, source: Source | None) -> None:
        """Take the weights now, and the rest of a run that is resumed when its position is reached."""
        runner = self._runner
        self.started = self.started or runner.running == "train"
        if source is None:
            return
        self._loaded = True
        checkpoint, path = source.checkpoint, str(source.path)
        runner.plan.after_load_checkpoint(checkpoint)
        if source.kind == "weights":
            if runner.running != "train":
                compatibility.refuse_lacking(runner.model, checkpoint["state_dict"], path)
                self._stand_at(source)
            left_out = snapshot.load_fitting(runner.model, checkpoint["state_dict"], path)
            runner.terminal.say("\n  ".join([f"weights from {path}" + (", except:" if left_out else ""), *left_out]))
            unused = [name for name in averages_in(checkpoint) if name not in {entry.name for entry in runner.plan}]
            if unused:
                runner.terminal.say(f"the averaged weights in it ({', '.join(unused)}) are not used without that hook")
            return
        snapshot.load(runner, checkpoint, path)
        at = runner.position
        at.load_state_dict(checkpoint["position"])
        if source.is_inside(self.folders):
            self._make_way(source.path)
        else:
            checkpoint.pop("writers", None)
        self.pending, self.saved_at, self.resumed_at, self.last_path = checkpoint, at.iter, at.iter, source.path
        self._loader_state = (True, checkpoint["position"].get("loader"))
        runner.terminal.say(f"resumed from {path}: epoch {at.epoch}, iteration {at.iter}")
        if not runner.seed_is_chosen:
            runner.seed = checkpoint["meta"].get("seed", runner.seed)
        for difference in compatibility.changed_surroundings(checkpoint["meta"], snapshot.meta(runner)):
            log.warning("%s", difference)
        gone = at.stopped_by not in {entry.name for entry in runner.plan}
        if gone or at.stopped_for_now or at.stopped_with != runner.plan.parameters_of(at.stopped_by):
            at.go_on()
        runner.asked = runner.asked or bool(at.stop_asked)

    def _stand_at(self, source: Source) -> None:
        """What is recorded about a checkpoint stands at its iteration, and belongs to the run that it is of."""
        at, runner = source.checkpoint.get("position"), self._runner
        if isinstance(at, dict):
            self._stood_at = runner.position.state_dict()
            runner.position.load_state_dict(at)
        if source.is_inside(self.folders):
            runner.writers.rejoin(source.checkpoint.get("writers", {}))

    def stand_back(self) -> None:
        """The evaluation of a checkpoint is over: training would start from where the runner stood."""
        if self._stood_at is not None:
            self._runner.position.load_state_dict(self._stood_at)
            self._stood_at = None

    def _make_way(self, path: Path) -> None:
        """Checkpoints that are later in the run than the one that is resumed go aside: it will come there anew."""
        note = seal.read_note(path)
        assert note is not None, "what is resumed has a seal"
        for folder in self.folders:
            old = archive.set_later_aside(folder, note)
            if old is not None:
                for name in self._runner.writers.files_cut_back():
                    archive.copy_aside(folder / name, old)  # they are cut back soon
                if path.resolve().parent == folder.resolve():
                    store.point_to(path, path.parent, seal.digest(path), note.step)
                else:
                    (folder / store.POINTER).unlink(missing_ok=True)
                self._runner.terminal.say(f"checkpoints that are later in the run than {path.name} are in {old} now")

    def restore(self) -> None:
        """Give the hub, the hooks and the generators their states; last the generators, since the others may draw."""
        checkpoint, self.pending = self.pending, None
        assert checkpoint is not None
        runner = self._runner
        runner.hub.load_state_dict(checkpoint["message_hub"])
        runner.writers.load_state_dict(checkpoint.get("writers", {}), runner.iter)
        saved = checkpoint["meta"].get("hooks", ())
        hook_states.give_back(runner.plan, checkpoint["hooks"], saved, runner.terminal.say)
        rng.restore(checkpoint["rng"])


def _parts(requests: list[Request]) -> Parts:
    """What goes into a file that several may have asked for."""
    return any(request.optimizer for request in requests), any(request.schedulers for request in requests)


def _saves(hook: Any) -> bool:
    return hasattr(hook, "checkpoint_folder")


def _as_checkpoint(found: dict[str, Any], path: Path) -> dict[str, Any]:
    """A file of weights alone reads like a checkpoint that has only them; many programs keep them under `model`."""
    if "state_dict" in found:
        return found
    if isinstance(found.get("model"), dict):
        return {"state_dict": found["model"]}
    if found and all(isinstance(value, Tensor) for value in found.values()):
        return {"state_dict": found}
    raise StorageError(f"{path} has no weights: it holds {', '.join(map(str, list(found)[:8]))}, and no 'state_dict'")
