"""Saving and loading, as the runner sees it: what is asked for, where it goes, and what a run starts from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from hookline.checkpoint import snapshot, store
from hookline.errors import StorageError
from hookline.numerics import refuse_infinite_loss

if TYPE_CHECKING:
    from hookline.runner import Runner


@dataclass(frozen=True)
class Request:
    """A checkpoint that was asked for. Its number is filled in when it is written, after the counters have moved on."""

    template: str | None = None
    by_epoch: bool | None = None
    folder: Path | None = None
    optimizer: bool = True
    schedulers: bool = True
    done: Callable[[Path], None] | None = None


@dataclass(frozen=True)
class Source:
    """What a run starts from: all of a checkpoint, or just its weights."""

    path: Path
    checkpoint: dict[str, Any]
    kind: Literal["resume", "weights"]

    def is_inside(self, folder: Path) -> bool:
        """Whether it is a checkpoint of this folder, so that the folder's records belong to it."""
        return self.path.resolve().is_relative_to(folder.resolve())


class Saving:
    """The checkpoints of one runner."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.asked: list[Request] = []
        #: The checkpoint that is being resumed, until its position is reached.
        self.pending: dict[str, Any] | None = None
        #: The iteration of the newest checkpoint that a run can go on from.
        self.saved_at = -1
        #: The time that all saves have taken.
        self.seconds = 0.0
        #: Whether a run of this runner has begun; then it goes on from where it is.
        self.started = False

    # -- saving

    def ask(self, **request: Any) -> None:
        """Note a request (see `Request`); the loop has it written where nothing is half done."""
        self.asked.append(Request(**request))
        self._runner.asked = True

    def save(self) -> None:
        """Write what was asked for; requests for the same file are one."""
        runner, at, began = self._runner, self._runner.position, time.perf_counter()
        refuse_infinite_loss(runner)
        requests, self.asked = self.asked, []
        taken: dict[tuple[bool, bool], dict[str, Any]] = {}
        written: dict[Path, Request] = {}
        for request in requests:
            path = self._path(request)
            if path not in written:
                parts = (request.optimizer, request.schedulers)
                if parts not in taken:
                    taken[parts] = snapshot.take(runner, optimizer=parts[0], schedulers=parts[1])
                sha256 = store.write(taken[parts], path)
                written[path] = request
                runner.terminal.detail(partial("saved {}".format, path))
                if all(parts) and path.resolve().is_relative_to(runner.work_dir.resolve()):
                    store.point_to(path, runner.work_dir, sha256, at.iter)
                    self.saved_at = at.iter
            if request.done is not None:
                request.done(path)
        self.seconds += time.perf_counter() - began

    def _path(self, request: Request) -> Path:
        at, loop = self._runner.position, self._runner.train_loop
        wanted = loop.by_epoch if request.by_epoch is None else request.by_epoch
        by_epoch = wanted and at.batch == 0  # in the middle of an epoch only the iteration says where
        own = request.template if by_epoch == wanted else None
        template = own or ("epoch_{}.pth" if by_epoch else "iter_{}.pth")
        folder = request.folder if request.folder is not None else self._runner.work_dir
        return folder / template.format(at.epoch if by_epoch else at.iter)

    # -- loading

    def find_source(self, verb: str) -> Source | None:
        """Read what this run starts from; a runner that has started already goes on from where it is."""
        runner = self._runner
        if self.started:
            return None
        path: Path | None = None
        if runner.resume:
            path = store.last(runner.work_dir) if runner.resume is True else Path(runner.resume)
            if path is None:
                runner.terminal.say(f"there is no checkpoint in {runner.work_dir} yet: starting afresh")
        if path is not None:
            return Source(path, store.read(path), "resume" if verb == "train" else "weights")
        if runner.load_from is not None:
            path = Path(runner.load_from)
            return Source(path, _as_checkpoint(store.read(path), path), "weights")
        return None

    def load(self, source: Source | None) -> None:
        """Take the weights now, and the rest of a run that is resumed when its position is reached."""
        runner = self._runner
        self.started = self.started or runner.running == "train"
        if source is None:
            return
        checkpoint, path = source.checkpoint, str(source.path)
        runner.plan.after_load_checkpoint(checkpoint)
        if source.kind == "weights":
            left_out = snapshot.load_fitting(runner.model, checkpoint["state_dict"], path)
            runner.terminal.say("\n  ".join([f"weights from {path}" + (", except:" if left_out else ""), *left_out]))
            return
        snapshot.check(checkpoint, path)
        snapshot.load_weights(runner.model, checkpoint["state_dict"], path)
        snapshot.load_optims(runner, checkpoint, path)
        at = runner.position
        at.load_state_dict(checkpoint["position"])
        if not source.is_inside(runner.work_dir):
            checkpoint.pop("writers", None)
        self.pending, self.saved_at = checkpoint, at.iter
        runner.asked = bool(at.stop_asked)
        runner.terminal.say(f"resumed from {path}: epoch {at.epoch}, iteration {at.iter}")
        if at.stopped and at.stopped_by in {entry.name for entry in runner.plan}:
            runner.terminal.say(f"this run was stopped by {at.stopped_by}: {at.stopped}")
        else:
            at.stopped = at.stopped_by = ""

    def restore(self) -> None:
        """Give the hub, the hooks and the generators their states; last the generators, since the others may draw."""
        checkpoint, self.pending = self.pending, None
        assert checkpoint is not None
        self._runner.hub.load_state_dict(checkpoint["message_hub"])
        self._runner.writers.load_state_dict(checkpoint.get("writers", {}))
        states = dict(checkpoint["hooks"])
        for entry in self._runner.plan:
            if entry.name in states:
                entry.hook.load_state_dict(states.pop(entry.name))
        if states:
            self._runner.terminal.say(
                f"not used from the checkpoint, because no such hook is here: {', '.join(states)}"
            )
        snapshot.restore_rng(checkpoint["rng"])


def _as_checkpoint(found: dict[str, Any], path: Path) -> dict[str, Any]:
    """A file of weights alone reads like a checkpoint that has only them."""
    if "state_dict" in found:
        return found
    if found and all(isinstance(value, Tensor) for value in found.values()):
        return {"state_dict": found}
    raise StorageError(f"{path} has no weights: it holds {', '.join(map(str, list(found)[:8]))}, and no 'state_dict'")
