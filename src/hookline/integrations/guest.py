"""Guest: follows the training of another engine from callback to callback, so that hooks see it as a Runner's.

    begin                   the session, before_run, before_train
      begin_epoch           before_train_epoch
        begin_step          before_train_iter
          take_loss         before_backward
        end_step            after_train_iter, counters, requests
        begin_validation    before_val, before_val_epoch
        end_validation      after_val_epoch with the engine's metrics, after_val
      end_epoch             after_train_epoch
    finish                  after_train, after_run, report

A context that one callback enters is left in another one. A failure of the engine is thrown into the open ones.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from torch import Tensor

from hookline.checks.evaluations import watched_metrics
from hookline.common import rng
from hookline.common.sharding import is_sharded
from hookline.engine.loop_specs import TrainLoop
from hookline.errors import ConfigError, blame, described, did_you_mean
from hookline.integrations.host import EngineData, GuestOptim, GuestRunner, samples_of
from hookline.integrations.refusals import NOT_BY_DEFAULT, Engine, refuse_actors
from hookline.lifecycle.session import session
from hookline.optim.optims import SOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from torch import nn
    from torch.optim import Optimizer

log = logging.getLogger("hookline")

P = ParamSpec("P")
R = TypeVar("R")


#: Built-in hooks that read the weights, or the gradients of all of them.
NEED_WEIGHTS = frozenset({"CheckpointHook", "EvaluateHook", "GradNormHook"})


def check_version(engine: Engine) -> None:
    """Warn about a version of an engine that is not the tested one. Its last number makes no difference."""
    package = engine.name.lower()
    try:
        found = version(package)
    except PackageNotFoundError:
        return
    series, wanted = (list(map(int, re.findall(r"\d+", each)[:2])) for each in (found, engine.tested))
    if series != wanted:
        log.warning(
            "%s %s is %s than %s, which hookline is tested with; if something fails, install that version",
            *(package, found, "newer" if series > wanted else "older", engine.tested),
        )


def as_metrics(given: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return metrics by their names in hookline, as plain numbers where possible.

    A prefix that names the stage, such as `val_` or `val/`, is left out: hookline adds its own.
    """
    found = {re.sub(rf"^{prefix}[_/]", "", name): value for name, value in given.items()}
    return {
        name: value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
        for name, value in found.items()
    }


def ending_on_failure(method: Callable[Concatenate[Guest, P], R]) -> Callable[Concatenate[Guest, P], R]:
    """End the run if a hook fails: not every engine calls its callbacks then."""

    @wraps(method)
    def call(guest: Guest, /, *arguments: P.args, **options: P.kwargs) -> R:
        try:
            return method(guest, *arguments, **options)
        except BaseException as error:
            guest.fail(error)
            raise

    return call


class Guest:
    """Follows one training of an engine.

    Args:
        engine: The engine.
        hooks: Hooks, as in `Runner(custom_hooks=...)`.
        work_dir: The folder of the run.
        default_hooks: Changes to the default hooks: runtime_info, timer, logger, report.
        weigh: A function of a batch that returns how much it counts in means. By default, its samples.
        options: More options of a Runner: `writers`, `budget`, `experiment_name`, `config`, `points`, `quiet`.
    """

    #: The options of a Runner that make sense for a guest.
    OPTIONS = ("writers", "budget", "experiment_name", "config", "points", "quiet")

    def __init__(
        self,
        engine: Engine,
        hooks: Iterable[Any],
        work_dir: str | Path,
        default_hooks: Mapping[str, Any] | None,
        weigh: Callable[[Any], Any] | None,
        options: Mapping[str, Any],
    ) -> None:
        check_version(engine)
        self.engine, self._hooks, self._work_dir = engine.name, list(hooks), work_dir
        self._weigh = weigh if weigh is not None else samples_of
        if unknown := [name for name in options if name not in self.OPTIONS]:
            known = ("hooks", "work_dir", "default_hooks", "weigh", *self.OPTIONS)
            raise ConfigError(
                f"HooklineCallback has no option '{unknown[0]}', because {engine.name} owns the training; "
                f"{did_you_mean(unknown[0], known)}"
            )
        self._options = {"quiet": True, **options}
        self._default_hooks = {**NOT_BY_DEFAULT, **(default_hooks or {})}
        #: The names of the classes of the hooks.
        self.uses = refuse_actors(engine, self._hooks, self._default_hooks)
        #: The trainer that this guest belongs to.
        self._owner: Any = None
        self.runner: GuestRunner | None = None
        self._open: list[AbstractContextManager[Any]] = []
        self._in_epoch = self._in_step = self._in_forward = False
        self._metrics: dict[str, Any] | None = None
        self._evaluated: list[Any] | None = None

    def belong_to(self, trainer: Any) -> None:
        """Note the trainer that the callback was given to. Refuse a second one."""
        if self._owner is not None and self._owner is not trainer:
            raise ConfigError(
                f"this HooklineCallback was given to two trainers of {self.engine}, and its folder and records belong "
                "to the first one; create one for each"
            )
        self._owner = trainer

    # -- contexts that begin in one callback and end in another

    def _enter(self, context: AbstractContextManager[Any]) -> Any:
        entered = context.__enter__()
        self._open.append(context)
        return entered

    def _leave(self) -> None:
        """Leave the innermost context."""
        self._open.pop().__exit__(None, None, None)

    @property
    def is_running(self) -> bool:
        """Return whether the guest follows a training."""
        return bool(self._open)

    @property
    def batches_left(self) -> int | None:
        """Return the number of batches that are left of this pass, or of the training; None if it is unknown."""
        return self._host.training.batches_to_come() if self.is_running else None

    @property
    def stopped(self) -> bool:
        """Return whether a hook has stopped training, so that the engine must end it."""
        return self.runner is not None and bool(self.runner.stopped)

    # -- the training

    @ending_on_failure
    def begin(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        *,
        length: int | None,
        max_epochs: int | None,
        max_iters: int | None,
        accumulate: int,
        validates: bool,
        tells_begin: bool,
        at: tuple[int, int] = (0, 0),
    ) -> None:
        """Begin to follow a training.

        Args:
            model: The model, without wrappers.
            optimizers: The optimizers of torch.
            length: The number of batches of a pass, if it is known.
            max_epochs: The number of passes; None if only `max_iters` is known.
            max_iters: The number of batches of the training.
            accumulate: The number of batches per step of an optimizer.
            validates: True if the engine validates.
            tells_begin: True if the engine tells when a step of an optimizer begins.
            at: The finished epochs and iterations of a training that the engine has resumed.
        """
        optims = [GuestOptim(optimizer, accumulate, tells_begin) for optimizer in optimizers]
        named = {SOLE: optims[0]} if len(optims) == 1 else {f"optimizer_{n}": optim for n, optim in enumerate(optims)}
        loop = TrainLoop(EngineData(length), max_epochs=max_epochs, max_iters=max_iters, weigh=self._weigh)
        self.runner = runner = GuestRunner(
            *(self.engine, model, named, loop, validates),
            custom_hooks=self._hooks,
            default_hooks=self._default_hooks,
            work_dir=self._work_dir,
            **self._options,
        )
        host = self._host = runner._host
        self._refuse_without_validation(validates)
        self._refuse_sharded(model)
        self._in_epoch = self._in_step = self._in_forward = False
        with rng.preserved():
            self._enter(session(host, "train", host.start, host.stages))
            host.position.epoch, host.position.iter = at
            host.position.batch = max(at[1] - at[0] * length, 0) if length else 0
            self._enter(host.training.driving())

    def _refuse_without_validation(self, validates: bool) -> None:
        watched = [] if validates else list(watched_metrics(self._host))
        if watched:
            who, name = watched[0]
            raise ConfigError(
                f"{who} needs the metric '{name}', but this training has no validation; add one to {self.engine}"
            )

    def _refuse_sharded(self, model: nn.Module) -> None:
        """Refuse hooks that need whole weights or gradients if each process has only a part of them."""
        sharded = any(is_sharded(each) or hasattr(each, "ds_id") for each in model.parameters())
        sharded = sharded or any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules())
        if sharded and (names := sorted(self.uses & NEED_WEIGHTS)):
            raise ConfigError(
                f"{names[0]} cannot be used here: {self.engine} has split the model over the processes, and only "
                f"{self.engine} can put it together; remove the hook, or train without FSDP and DeepSpeed"
            )

    @ending_on_failure
    def begin_epoch(self) -> None:
        """Begin a pass over the data."""
        if self.is_running and not self.stopped:
            self._enter(self._host.training.one_pass())
            self._host.training.begin_pass()
            self._in_epoch = True

    @ending_on_failure
    def end_epoch(self) -> None:
        """End a pass over the data, unless the validation after it has done that."""
        if self._in_epoch:
            self._in_epoch = False
            self._leave()

    @ending_on_failure
    def begin_step(self, batch: Any, last: bool) -> None:
        """Begin an iteration with a batch. An engine that resumes inside an epoch may not tell that it begins."""
        if not self._in_epoch:
            self.begin_epoch()
        if self._in_epoch and not self.stopped:
            self._enter(self._host.training.iteration(batch, last))
            self._in_step = True
            self._refuse_replaced(self._host.current.batch is not batch, "the batch")
            self._enter(self._host.training.forward(batch))
            self._in_forward = True

    @ending_on_failure
    def take_loss(self, loss: Tensor, outputs: dict[str, Any] | None = None) -> None:
        """Take the loss whose backward pass comes next."""
        if not self._in_step:
            return
        training = self._host.training
        if len(self._host.optims) != 1:  # another forward pass may come
            training.see({**(outputs or {}), "loss": loss})
            return
        self._end_forward()
        taken = training.take_loss(loss, outputs)
        self._refuse_replaced(taken is not loss, "the loss")

    @ending_on_failure
    def report_no_loss(self, why: str) -> None:
        """Warn that no loss is recorded. Refuse a hook that needs it."""
        text = f"the model returns no loss, and {why}"
        if "CheckInvalidLossHook" in self.uses:
            raise ConfigError(f"CheckInvalidLossHook cannot check the loss: {text}; let the model return it")
        log.warning("%s: train/loss is not recorded; let the model return its loss", text)

    def _end_forward(self) -> None:
        if self._in_forward:
            self._in_forward = False
            self._leave()

    def _refuse_replaced(self, is_replaced: bool, what: str) -> None:
        if is_replaced:
            raise ConfigError(f"a hook has replaced {what}, but {self.engine} uses its own; remove that hook")

    @ending_on_failure
    def end_backward(self) -> None:
        """End a backward pass."""
        if self._in_step:
            self._host.optims.end_backward()

    @ending_on_failure
    def begin_update(self, optimizer: Optimizer) -> None:
        """Begin a step of an optimizer: its gradients are complete."""
        if self._in_step:
            for optim in self._host.optims.values():
                if optim.optimizer is optimizer:
                    optim.begin_step()

    @ending_on_failure
    def end_step(self, outputs: dict[str, Any] | None = None) -> None:
        """End an iteration, with what hooks see as its outputs."""
        if self._in_step:
            if outputs is not None:
                self._host.training.see(outputs)
            self._end_forward()
            self._in_step = False
            self._leave()

    # -- validations

    @ending_on_failure
    def begin_validation(self, after_epoch: bool) -> None:
        """Begin a validation. If it comes after the last batch of an epoch, that epoch has ended."""
        if not self.is_running or self.stopped:
            return
        if after_epoch:
            self.end_epoch()
        if not self.stopped:
            self._metrics = self._enter(self._host.evaluation.validating())

    @property
    def is_validating(self) -> bool:
        """Return whether the guest follows a validation."""
        return self._metrics is not None

    @ending_on_failure
    def begin_validation_step(self, batch_idx: int, batch: Any) -> None:
        """Begin a batch of a validation."""
        if self.is_validating:
            self._evaluated = []
            self._enter(self._host.evaluation.iteration(batch_idx, batch, self._evaluated))

    @ending_on_failure
    def end_validation_step(self, outputs: Any) -> None:
        """End a batch of a validation."""
        if self._evaluated is not None:
            self._evaluated.append(outputs)
            self._evaluated = None
            self._leave()

    @ending_on_failure
    def end_validation(self, metrics: Mapping[str, Any]) -> None:
        """End a validation with its metrics."""
        if self._metrics is not None:
            self._metrics.update(metrics)
            self._metrics = None
            self._leave()
            self._host.training.wait_for_data()

    # -- the end

    @ending_on_failure
    def finish(self) -> None:
        """End the training: it is over, or was stopped."""
        self.end_step()
        self.end_epoch()
        while self._open:
            self._leave()

    def fail(self, error: BaseException) -> None:
        """End the training with a failure: throw it into all open contexts."""
        self._in_epoch = self._in_step = self._in_forward = False
        self._metrics = self._evaluated = None
        contexts, self._open = self._open, []
        leaving = ExitStack()
        for context in contexts:
            leaving.push(context.__exit__)
        try:
            leaving.__exit__(type(error), error, error.__traceback__)
        except BaseException as another:
            if another is not error:
                blame(error, f"hookline: {described(another)}")
