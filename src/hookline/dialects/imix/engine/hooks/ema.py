"""EMAIterHook and EMAEpochHook: an average of the weights, kept by the model itself or by hookline."""

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


def unwrap_model(trainer: Any) -> Any:
    """Return the model itself, without a wrapper around it."""
    return trainer.model.module if hasattr(trainer.model, "module") else trainer.model


class EMAIterHook(HookBase):
    """Averages the weights after every iteration.

    A model with `init_ema()` and `update_ema()` keeps the average itself. For any other model, hookline keeps the
    average and updates it after every optimizer step. EvaluateHook then measures the averaged weights, and checkpoints
    contain them.

    If a model keeps its average in buffers or parameters, checkpoints contain it anyway. If it keeps the average
    elsewhere, it can define `ema_state_dict()` and `load_ema_state_dict(state)` to save and restore it.

    Args:
        momentum: The weight of one step in hookline's own average: e = (1 - momentum) e + momentum x.
    """

    def __init__(self, momentum: float = 0.0002) -> None:
        #: hookline's own average; None if the model keeps the average itself.
        self.average: ExponentialMovingAverage | None = ExponentialMovingAverage(momentum)
        self._updates = 0
        self._begun = False

    def after_load_checkpoint(self, runner: Any, checkpoint: Mapping[str, Any]) -> None:
        """Call `init_ema` before the state is loaded, if the checkpoint has entries that only `init_ema` creates."""
        model = unwrap_model(self.trainer)
        if hasattr(model, "init_ema") and set(checkpoint.get("state_dict", {})) - set(model.state_dict()):
            model.init_ema()
            self._begun = True

    def before_train(self) -> None:
        """Start the average."""
        model = unwrap_model(self.trainer)
        self._updates = self.trainer.runner.updates
        if not hasattr(model, "init_ema"):
            if self.average is None:
                raise HookError(f"EMAIterHook: the model no longer has init_ema(); it is a {type(model).__name__}")
            self.average.refresh()
            return
        if not hasattr(model, "update_ema"):
            raise HookError(
                f"EMAIterHook: {type(model).__name__} has init_ema() but no update_ema(); define both or neither"
            )
        self.average = None
        if not self._begun:
            model.init_ema()

    def after_train_iter(self) -> None:
        """Update the average."""
        trainer = self.trainer
        if self.average is None:
            unwrap_model(trainer).update_ema()
            return
        updates = trainer.runner.updates
        if updates > self._updates:
            self.average.update(trainer.runner.model)
        self._updates = updates

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Swap the averaged weights into the model inside this context, if the average is hookline's own."""
        if self.average is None:
            yield
            return
        with self.average.swapped(self.trainer.runner.model):
            yield

    def state_dict(self) -> dict[str, Any]:
        """Return the average, or the state that the model provides for its own average."""
        if self._trainer is None:
            return {}
        model = unwrap_model(self.trainer)
        if self.average is not None:
            return {} if hasattr(model, "init_ema") else self.average.state_dict(self.trainer.runner.model)
        return {"of_model": model.ema_state_dict()} if hasattr(model, "ema_state_dict") else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the average."""
        if "of_model" in state:
            unwrap_model(self.trainer).load_ema_state_dict(state["of_model"])
        elif self.average is not None:
            self.average.load_state_dict(state, self.trainer.runner.model)
        self._updates = self.trainer.runner.updates


class EMAEpochHook(HookBase):
    """Saves the averaged weights after every epoch.

    A model with `save_checkpoint_ema` saves them itself. That method may take `epoch`, `work_dir` and `trainer`, by
    name. If an EMAIterHook keeps hookline's average, the file is `<prefix>_epoch<e>_ema.pth`, which `load_from` reads.
    """

    def before_train(self) -> None:
        """Warn if there will be nothing to save."""
        if not hasattr(unwrap_model(self.trainer), "save_checkpoint_ema") and self._average() is None:
            log.warning(
                "EMAEpochHook saves nothing: the model has no save_checkpoint_ema(), and there is no EMAIterHook that "
                "keeps an average of its weights"
            )

    def after_train_epoch(self) -> None:
        """Save the averaged weights."""
        trainer, model = self.trainer, unwrap_model(self.trainer)
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
    """Remove the averages that EMAEpochHook saved after epochs before this one."""
    for path in by_age(folder, re.compile(re.escape(prefix) + r"_epoch\d+_ema\.pth")):
        if int(path.stem.removeprefix(f"{prefix}_epoch").removesuffix("_ema")) < before:
            path.unlink(missing_ok=True)


@contextmanager
def averaged_weights(trainer: Any) -> Iterator[None]:
    """Swap the averaged weights into the model inside this context, if the engine has an EMAIterHook."""
    found = [hook for hook in trainer.hooks if isinstance(hook, EMAIterHook)]
    if not found:
        yield
        return
    with found[-1].averaged():
        yield
