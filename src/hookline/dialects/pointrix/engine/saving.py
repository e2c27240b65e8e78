"""The checkpoints of a trainer: what they hold, when they are written, and how a run goes on from one.

    meta              versions, seed, counters, when; for people and for `hookline inspect`
    state_dict        the model
    optimizer         its state
    param_schedulers  of the schedulers, if they have one
    parts             of the data pipeline and the renderer, if they have one
    hooks             every hook's state under its name
    rng               torch (every device), numpy and Python
    position          the counters of the loop
    writers           how far the records went

All of them are `chkpnt00500.pth`, after 500 steps.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from hookline.checkpoint import compatibility, seal, store
from hookline.common import rng
from hookline.common.plain import refuse_odd, without_numpy
from hookline.dialects.pointrix.engine import parts
from hookline.dialects.pointrix.utils.checkpoints import NAME, NAMES
from hookline.engine import hook_states, signals, snapshot
from hookline.engine.numerics import refuse_infinite_weights
from hookline.engine.saving import Source
from hookline.errors import StorageError
from hookline.rundir import archive

if TYPE_CHECKING:
    from hookline.dialects.pointrix.engine.base_trainer import BaseTrainer

log = logging.getLogger("hookline")

#: What a run cannot go on without.
NEEDED = ("meta", "state_dict", "optimizer", "position", "hooks", "rng")
#: Parts besides model, optimizer and schedulers that may have a state.
STATEFUL = ("datapipeline", "renderer")

Asked = tuple[str | None, Callable[[Path], None] | None]


class Saving:
    """What a trainer saves, and goes on from."""

    def __init__(self, trainer: BaseTrainer) -> None:
        self._trainer = trainer
        self._asked: list[Asked] = []
        self._pending: dict[str, Any] | None = None
        #: The step after which the newest complete checkpoint was written, or that the run went on from.
        self.saved_at = -1
        self.last_path: Path | None = None

    # -- saving

    def path(self) -> Path:
        """Where a checkpoint of now belongs."""
        return Path(self._trainer.exp_dir) / NAME.format(self._trainer.position.iter)

    def forget(self) -> None:
        """What was asked for belongs to the run in which it was asked."""
        self._asked.clear()
        self._trainer.asked = False
        self.saved_at, self.last_path = -1, None

    def ask(self, name: str | None, done: Callable[[Path], None] | None) -> None:
        """Note a request; the loop has it written where nothing is half done."""
        self._asked.append((name, done))
        self._trainer.asked = True

    def act(self) -> None:
        """Write what was asked for, and end the run after a signal, with a checkpoint."""
        trainer = self._trainer
        asked, self._asked, trainer.asked = self._asked, [], False
        for name in dict.fromkeys(name for name, _ in asked):
            path = self.write(Path(trainer.exp_dir) / name if name is not None else self.path(), complete=True)
            for other, done in asked:
                if other == name and done is not None:
                    done(path)
        if trainer.signalled:
            self._end_after_signal()

    def _end_after_signal(self) -> None:
        trainer = self._trainer
        if trainer.position.iter and self.saved_at != trainer.position.iter:
            self.write(self.path(), complete=True)
        name = signal.Signals(trainer.signalled).name
        where = f"{self.last_path} goes on from here" if self.last_path is not None else "nothing was done yet"
        trainer.terminal.say(f"ended by {name} after step {trainer.position.iter}: {where}")
        raise signals.ending(trainer.signalled)

    def write(self, path: Path, complete: bool) -> Path:
        """Write a checkpoint of now, verified; one that cannot be right is refused."""
        trainer, at = self._trainer, self._trainer.position
        trainer.refuse_infinite_loss()
        checkpoint = self.take()
        weights = [name for name, _ in trainer.model.named_parameters()] if _is_module(trainer.model) else []
        refuse_infinite_weights(checkpoint["state_dict"], weights, at.iter)
        trainer.terminal.working(f"saving {path.name}")
        sha256 = store.write(checkpoint, path, seal.Note(at.iter, at.validations, complete))
        trainer.terminal.detail(lambda: f"saved {path}")
        if complete:
            store.point_to(path, path.parent, sha256, at.iter)
            self.saved_at, self.last_path = at.iter, path
        return path

    def take(self) -> dict[str, Any]:
        """Everything that the run is made of; hooks may change entries at `before_save_checkpoint`."""
        trainer = self._trainer
        checkpoint: dict[str, Any] = {
            "meta": self._meta(),
            "state_dict": parts.state_of(trainer.model),
            "optimizer": without_numpy(trainer.optimizer.state_dict()) if trainer.optimizer is not None else None,
            "param_schedulers": without_numpy(parts.state_of(trainer.schedulers)),
            "parts": {name: state for name in STATEFUL if (state := parts.state_of(getattr(trainer, name)))},
            "hooks": hook_states.take(trainer.plan),
            "rng": rng.state(),
            "position": trainer.position.state_dict(),
            "writers": parts.state_of(trainer.writer),
        }
        trainer.call_hook("before_save_checkpoint", checkpoint=checkpoint)
        for key, value in checkpoint.items():
            refuse_odd(value, f"checkpoint[{key!r}]")
        return checkpoint

    def _meta(self) -> dict[str, Any]:
        trainer = self._trainer
        return snapshot.surroundings() | {
            "experiment_name": trainer.name,
            "seed": trainer.cfg.seed,
            "epoch": 0,
            "iter": trainer.position.iter,
            "world_size": 1,
            "device": trainer.device,
            "hooks": [entry.name for entry in trainer.plan],
        }

    # -- going on

    def find(self) -> Source | None:
        """Read what this run goes on from, if it does."""
        trainer, resume = self._trainer, self._trainer.cfg.resume
        if not resume:
            return None
        if resume is True:
            folder = Path(trainer.exp_dir)
            path = store.newest_intact([folder], lambda text: log.warning("passed over: %s", text), NAMES)
            if path is None:
                trainer.terminal.say(f"there is no checkpoint in {folder} yet: starting afresh")
                return None
        else:
            path = Path(resume)
        return Source(path, store.read(path, sealed=True, verified=resume is True), "resume")

    def load(self, source: Source | None) -> None:
        """Take model, optimizer and counters now, and the rest when `before_train` was called."""
        if source is None:
            return
        trainer, checkpoint, path = self._trainer, source.checkpoint, str(source.path)
        missing = [key for key in NEEDED if key not in checkpoint]
        if missing:
            raise StorageError(f"{path} has no {', '.join(missing)}, so a run cannot go on from it; see load_model")
        trainer.call_hook("after_load_checkpoint", checkpoint=checkpoint)
        trainer.grow_model(checkpoint)
        parts.load(trainer, checkpoint, path)
        trainer.position.load_state_dict(checkpoint["position"])
        trainer.start_steps = trainer.position.iter + 1
        if source.is_inside([Path(trainer.exp_dir)]):
            self._make_way(source.path)
        else:
            checkpoint.pop("writers", None)
        self._pending, self.saved_at, self.last_path = checkpoint, trainer.position.iter, source.path
        trainer.terminal.say(f"resumed from {path}: step {trainer.position.iter}")
        if trainer.position.iter >= trainer.cfg.max_steps:
            trainer.terminal.say(f"training is over: {trainer.position.iter} steps; there is nothing to do")
        elif parts.may_forget(trainer.datapipeline):
            trainer.terminal.say(
                f"{type(trainer.datapipeline).__name__} has no state_dict: the run goes on exactly if what its "
                "next_train(step) gives depends on the step alone; otherwise it needs state_dict and load_state_dict"
            )
        for difference in compatibility.changed_surroundings(checkpoint["meta"], self._meta()):
            log.warning("%s", difference)

    def _make_way(self, path: Path) -> None:
        """Checkpoints that are later in the run than the one it goes on from go aside: it will come there anew."""
        note = seal.read_note(path)
        assert note is not None, "what is resumed has a seal"
        old = archive.set_later_aside(path.parent, note)
        if old is not None:
            store.point_to(path, path.parent, seal.digest(path), note.step)
            self._trainer.terminal.say(f"checkpoints that are later in the run than {path.name} are in {old} now")

    def restore(self) -> bool:
        """Give parts, hooks, the writer and the generators their states; last the generators, since others may draw."""
        checkpoint, self._pending = self._pending, None
        if checkpoint is None:
            return False
        trainer = self._trainer
        for name, state in checkpoint.get("parts", {}).items():
            parts.give_state(getattr(trainer, name), state, name)
        if hasattr(trainer.writer, "load_state_dict"):
            trainer.writer.load_state_dict(checkpoint.get("writers") or {})
        saved = checkpoint["meta"].get("hooks", ())
        hook_states.give_back(trainer.plan, checkpoint["hooks"], saved, trainer.terminal.say)
        rng.restore(checkpoint["rng"])
        return True

    def load_weights(self, path: Path) -> None:
        """The model's weights alone, from any checkpoint that fits."""
        trainer = self._trainer
        checkpoint = store.read(path, sealed=False)
        if "state_dict" not in checkpoint:
            raise StorageError(f"{path} has no weights: it holds {', '.join(map(str, checkpoint))}, and no state_dict")
        trainer.call_hook("after_load_checkpoint", checkpoint=checkpoint)
        trainer.grow_model(checkpoint)
        problems = parts.model_misfits(trainer.model, checkpoint["state_dict"])
        if problems:
            raise StorageError(f"{path} does not fit the model; nothing was loaded:\n  " + "\n  ".join(problems))
        trainer.model.load_state_dict(dict(checkpoint["state_dict"]))


def _is_module(model: Any) -> bool:
    return isinstance(model, nn.Module)
