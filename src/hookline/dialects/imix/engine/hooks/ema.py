"""EMAIterHook and EMAEpochHook: an average of the weights, kept by the model itself or by hookline."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from hookline.checkpoint import store
from hookline.checkpoint.retention import by_age
from hookline.checkpoint.seal import Note
from hookline.common.averaging import ExponentialMovingAverage
from hookline.dialects.imix.engine.hooks.base_hook import HookBase
from hookline.errors import HookError
from hookline.plan.functions import VARIABLE, asked_for

log = logging.getLogger("hookline")


def unwrap_model(trainer: Any) -> Any:
    """Return the model itself, without a wrapper around it."""
    return trainer.model.module if hasattr(trainer.model, "module") else trainer.model


class EMAIterHook(HookBase):
    """Averages the weights after every iteration.

    A model with `init_ema()` and `update_ema()` keeps the average itself. For any other model, hookline keeps the
    average and updates it after every optimizer step, or, if no OptimizerHook makes the updates, after every
    iteration. EvaluateHook then measures the averaged weights, and checkpoints
    contain them.

    If a model keeps its average in buffers or parameters, checkpoints contain it anyway. An average in the dict
    `ema_state_dict`, as in iMIX's models, is saved and restored, too. If a model keeps the average elsewhere, it can
    define the methods `ema_state_dict()` and `load_ema_state_dict(state)`.

    Args:
        momentum: The weight of one step in hookline's own average: e = (1 - momentum) e + momentum x.
    """

    def __init__(self, momentum: float = 0.0002) -> None:
        #: hookline's own average; None if the model keeps the average itself.
        self.average: ExponentialMovingAverage | None = ExponentialMovingAverage(momentum)
        self._updates = 0
        self._counts_updates = True
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
        optim = self.trainer.runner.optim
        self._counts_updates = optim is not None and optim.is_awaited
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
        if updates > self._updates or not self._counts_updates:
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
        own = getattr(model, "ema_state_dict", None)
        return {} if own is None else {"of_model": own() if callable(own) else dict(own)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the average."""
        if "of_model" in state:
            _load_own_average(unwrap_model(self.trainer), state["of_model"])
        elif self.average is not None:
            self.average.load_state_dict(state, self.trainer.runner.model)
        self._updates = self.trainer.runner.updates


class EMAEpochHook(HookBase):
    """Saves the averaged weights after every epoch.

    A model with `save_checkpoint_ema` saves them itself. It is called as in iMIX, with the folder and the number of the
    epoch, `save_checkpoint_ema(savePath, epochId)`, or it takes `epoch`, `work_dir` and `trainer`, by name. Before
    that, `load_bkp_state_dict()` of the model is called, if it has one: a model that evaluates with its averaged
    weights must continue with its own. A model that says with `is_ema_state` whether it has swapped them is called only
    if it has, and right after an EvaluateHook, too.

    If an EMAIterHook keeps hookline's average, the file is `<prefix>_epoch<e>_ema.pth`, which `load_from` reads.
    """

    def before_train(self) -> None:
        """Check the model's `save_checkpoint_ema`, and warn if there will be nothing to save."""
        if hasattr(unwrap_model(self.trainer), "save_checkpoint_ema"):
            self._save_of_model()
        elif self._average() is None:
            log.warning(
                "EMAEpochHook saves nothing: the model has no save_checkpoint_ema(), and there is no EMAIterHook that "
                "keeps an average of its weights"
            )

    def after_train_epoch(self) -> None:
        """Save the averaged weights."""
        trainer, model = self.trainer, unwrap_model(self.trainer)
        _restore_weights(model, if_unknown=True)
        if hasattr(model, "save_checkpoint_ema"):
            if trainer.runner.strategy.is_main:
                self._save_of_model()()
            return
        average = self._average()
        if average is not None and trainer.runner.strategy.is_main:
            path = Path(trainer.work_dir) / f"{trainer.prefix}_epoch{trainer.epoch}_ema.pth"
            averaged = average.state_dict(trainer.runner.model)["averaged"]
            store.write_verified({"state_dict": averaged}, path, Note(trainer.iter, trainer.runner.validations))

    def _save_of_model(self) -> Callable[[], Any]:
        """Return `save_checkpoint_ema` of the model with its arguments: iMIX's two, or those it asks for by name."""
        trainer, save = self.trainer, unwrap_model(self.trainer).save_checkpoint_ema
        by_name = {"epoch": trainer.epoch, "work_dir": trainer.work_dir, "trainer": trainer}
        in_order = (str(trainer.work_dir), trainer.epoch)
        known = by_name.keys() & inspect.signature(save).parameters.keys()
        if not (known and known.issuperset(_required(save))) and _takes(save, in_order):
            return partial(save, *in_order)
        return partial(asked_for(save, tuple(by_name), "EMAEpochHook: save_checkpoint_ema"), **by_name)

    def _average(self) -> ExponentialMovingAverage | None:
        found = [hook for hook in self.trainer.hooks if isinstance(hook, EMAIterHook)]
        return found[-1].average if found else None


def _load_own_average(model: Any, saved: Mapping[str, Any]) -> None:
    """Restore the average that a model keeps in the dict `ema_state_dict`, or with its own methods."""
    own = model.ema_state_dict
    if callable(own):
        model.load_ema_state_dict(saved)
        return
    for name, value in saved.items():
        current = own.get(name)
        own[name] = value if not isinstance(current, Tensor) else value.to(current.device)


def _restore_weights(model: Any, if_unknown: bool) -> None:
    """Let a model that has swapped its averaged weights in load its own weights again."""
    if hasattr(model, "load_bkp_state_dict") and getattr(model, "is_ema_state", if_unknown):
        model.load_bkp_state_dict()


def _required(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind not in VARIABLE and each.default is each.empty]


def _takes(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    return True


def drop_averages(folder: Path, prefix: str, before: int) -> None:
    """Remove the averages that EMAEpochHook saved after epochs before this one."""
    for path in by_age(folder, re.compile(re.escape(prefix) + r"_epoch\d+_ema\.pth")):
        if int(path.stem.removeprefix(f"{prefix}_epoch").removesuffix("_ema")) < before:
            path.unlink(missing_ok=True)


@contextmanager
def averaged_weights(trainer: Any) -> Iterator[None]:
    """Swap the averaged weights into the model inside this context, if the engine has an EMAIterHook.

    A model may swap its own average in when it is evaluated. If it says so, its weights are restored afterwards.
    """
    found = [hook for hook in trainer.hooks if isinstance(hook, EMAIterHook)]
    try:
        with found[-1].averaged() if found else nullcontext():
            yield
    finally:
        _restore_weights(unwrap_model(trainer), if_unknown=False)
