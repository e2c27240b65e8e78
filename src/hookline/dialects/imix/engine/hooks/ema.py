"""EMAIterHook and EMAEpochHook: an average of the weights, by the model itself or by hookline."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hookline.checkpoint import store
from hookline.checkpoint.retention import by_age
from hookline.checkpoint.seal import Note
from hookline.common.averaging import ExponentialMovingAverage
from hookline.dialects.imix.engine.hooks.base_hook import HookBase
from hookline.errors import HookError
from hookline.plan.functions import asked_for

log = logging.getLogger("hookline")


def module_of(trainer: Any) -> Any:
    """The model itself, also behind a wrapper."""
    return trainer.model.module if hasattr(trainer.model, "module") else trainer.model


class EMAIterHook(HookBase):
    """Averages the weights after every iteration.

    A model with `init_ema()` and `update_ema()` does it itself. For any other one, hookline's own average is kept
    beside it, updated after every optimizer step; EvaluateHook measures that one, and checkpoints hold it.

    What a model averages in its buffers or parameters is in checkpoints anyway. If it keeps the average elsewhere, it
    is saved with `ema_state_dict()` and `load_ema_state_dict(state)`, where the model has them.

    Args:
        momentum: How much a step counts in hookline's own average: e = (1 - momentum) e + momentum x.
    """

    def __init__(self, momentum: float = 0.0002) -> None:
        #: hookline's own average; None when the model has one.
        self.average: ExponentialMovingAverage | None = ExponentialMovingAverage(momentum)
        self._updates = 0
        self._begun = False

    def after_load_checkpoint(self, runner: Any, checkpoint: Mapping[str, Any]) -> None:
        """A model that makes its average in `init_ema` has to have it before its state is loaded."""
        model = module_of(self.trainer)
        if hasattr(model, "init_ema") and set(checkpoint.get("state_dict", {})) - set(model.state_dict()):
            model.init_ema()
            self._begun = True

    def before_train(self) -> None:
        """Begin to average."""
        model = module_of(self.trainer)
        self._updates = self.trainer.runner.updates
        if not hasattr(model, "init_ema"):
            if self.average is None:
                raise HookError(f"EMAIterHook: the model has lost its init_ema(); it is a {type(model).__name__}")
            self.average.refresh()
            return
        if not hasattr(model, "update_ema"):
            raise HookError(f"EMAIterHook: {type(model).__name__} has init_ema(), and no update_ema() to go with it")
        self.average = None
        if not self._begun:
            model.init_ema()

    def after_train_iter(self) -> None:
        """Average."""
        trainer = self.trainer
        if self.average is None:
            module_of(trainer).update_ema()
            return
        updates = trainer.runner.updates
        if updates > self._updates:
            self.average.update(trainer.runner.model)
        self._updates = updates

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """In here the model has the averaged weights, if the average is hookline's own."""
        if self.average is None:
            yield
            return
        with self.average.swapped(self.trainer.runner.model):
            yield

    def state_dict(self) -> dict[str, Any]:
        """The average, or what the model says of its own."""
        if self._trainer is None:
            return {}
        model = module_of(self.trainer)
        if self.average is not None:
            return {} if hasattr(model, "init_ema") else self.average.state_dict(self.trainer.runner.model)
        return {"of_model": model.ema_state_dict()} if hasattr(model, "ema_state_dict") else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        if "of_model" in state:
            module_of(self.trainer).load_ema_state_dict(state["of_model"])
        elif self.average is not None:
            self.average.load_state_dict(state, self.trainer.runner.model)
        self._updates = self.trainer.runner.updates


class EMAEpochHook(HookBase):
    """Saves the averaged weights after every epoch.

    A model with `save_checkpoint_ema` does it itself; that may take `epoch`, `work_dir` and `trainer`, by name. Where
    an EMAIterHook keeps hookline's average, the file is `<prefix>_epoch<e>_ema.pth`, for `load_from`.
    """

    def before_train(self) -> None:
        """Say it when there will be nothing to save."""
        if not hasattr(module_of(self.trainer), "save_checkpoint_ema") and self._average() is None:
            log.warning(
                "EMAEpochHook saves nothing: the model has no save_checkpoint_ema(), and no EMAIterHook keeps an "
                "average for it"
            )

    def after_train_epoch(self) -> None:
        """Save."""
        trainer, model = self.trainer, module_of(self.trainer)
        if hasattr(model, "save_checkpoint_ema"):
            offered = {"epoch": trainer.epoch, "work_dir": trainer.work_dir, "trainer": trainer}
            asked_for(model.save_checkpoint_ema, tuple(offered), "EMAEpochHook: save_checkpoint_ema")(**offered)
            return
        average = self._average()
        if average is not None:
            path = Path(trainer.work_dir) / f"{trainer.prefix}_epoch{trainer.epoch}_ema.pth"
            averaged = average.state_dict(trainer.runner.model)["averaged"]
            store.write({"state_dict": averaged}, path, Note(trainer.iter, trainer.runner.validations))

    def _average(self) -> ExponentialMovingAverage | None:
        found = [hook for hook in self.trainer.hooks if isinstance(hook, EMAIterHook)]
        return found[-1].average if found else None


def drop_averages(folder: Path, prefix: str, before: int) -> None:
    """Remove the averages that EMAEpochHook has saved of the epochs before this one."""
    for path in by_age(folder, re.compile(re.escape(prefix) + r"_epoch\d+_ema\.pth")):
        if int(path.stem.removeprefix(f"{prefix}_epoch").removesuffix("_ema")) < before:
            path.unlink(missing_ok=True)


@contextmanager
def averaged_weights(trainer: Any) -> Iterator[None]:
    """In here the model has the weights that an EMAIterHook of its engine has averaged, if there is one."""
    found = [hook for hook in trainer.hooks if isinstance(hook, EMAIterHook)]
    if not found:
        yield
        return
    with found[-1].averaged():
        yield
