"""Runner: the parts of a run, put together, and the verbs that start it and ask things of it.

    runner = Runner(model, train=TrainLoop(loader, step=loss_of, max_epochs=5), optim=Optim(optimizer))
    runner.train()

What happens in a run stands in `hookline.engine.loops`. Hooks see the runner; they ask (`stop`, `skip_step`,
`request_save`, `request_val`), and the loop acts.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import torch
from torch import nn

from hookline.checkpoint import store
from hookline.common.modes import in_mode
from hookline.data.batches import Batches, length_of
from hookline.data.transfer import to_device
from hookline.engine import assembly, loops, signals
from hookline.engine.loop_specs import EvalLoop, TrainLoop, eval_loops
from hookline.engine.optim import Optim, OptimDict, optims_of
from hookline.engine.position import Position
from hookline.engine.requests import Request
from hookline.engine.saving import Saving
from hookline.engine.session import session
from hookline.engine.steps import call_model
from hookline.errors import ConfigError, DataError, HookError, HooklineError, did_you_mean
from hookline.plan.calls import NOTHING
from hookline.plan.explanation import Hooks
from hookline.plan.plan import Plan
from hookline.record.hub import MessageHub
from hookline.rundir.archive import OWN_FILES
from hookline.screen.terminal import Terminal
from hookline.strategies import pick, pick_device
from hookline.strategies.single import unwrap
from hookline.writers.router import Writers

if TYPE_CHECKING:
    from types import FrameType

    from hookline.plan.costs import Cost
    from hookline.plan.hook import Hook

F = TypeVar("F", bound=Callable[..., Any])

# What a precision is called, and the dtype that it means to torch.
PRECISIONS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


class Runner:
    """Holds the parts of a run, and starts it.

    Args:
        model: Any module, also a compiled one; `runner.model` is the module itself.
        train: How to train.
        val: How to validate: an EvalLoop, or several by name.
        test: How to test, likewise.
        optim: An Optim, a torch optimizer, or several by name.
        default_hooks: Changes to the six default hooks (runtime_info, timer, sampler_seed, logger, param_scheduler,
            checkpoint): parameters, another hook, or None to leave one out.
        custom_hooks: More hooks: objects, names, or dicts with `type`.
        writers: Where records go: objects, names, or dicts with `type`.
        work_dir: The folder of the run.
        experiment_name: The name of the run; the folder's name unless given.
        seed: What all randomness comes from.
        device: `cpu`, `cuda:0`, ..., or `auto`.
        strategy: How the model is spread over processes.
        precision: `fp32`, `bf16` or `fp16`.
        load_from: A checkpoint whose weights the model starts with.
        resume: True goes on from the newest checkpoint of work_dir, a path from that one.
        points: Points of one's own: name -> names of their arguments.
        config: What to record as the config of the run.
        quiet: Show nothing on the screen; run.log has it all the same.
    """

    #: Whether hooks may have methods for points that nobody declared; see `Plan`.
    open_points: ClassVar[bool] = False
    #: What the message about a loss that is NaN or Inf offers besides looking at what it comes from.
    way_out_of_nan: ClassVar[str] = "or leave such batches out: CheckInvalidLossHook with policy: skip and interval: 1"

    def __init__(
        self,
        model: nn.Module,
        *,
        train: TrainLoop | None = None,
        val: EvalLoop | Mapping[str, EvalLoop] | None = None,
        test: EvalLoop | Mapping[str, EvalLoop] | None = None,
        optim: Any = None,
        default_hooks: Mapping[str, Any] | None = None,
        custom_hooks: Iterable[Any] = (),
        writers: Iterable[Any] = ("jsonl",),
        work_dir: str | Path = "runs/run",
        experiment_name: str | None = None,
        seed: int = 0,
        device: str | torch.device = "auto",
        strategy: str = "auto",
        precision: str = "fp32",
        load_from: str | Path | None = None,
        resume: bool | str | Path = False,
        points: Mapping[str, Iterable[str]] | None = None,
        config: Mapping[str, Any] | None = None,
        quiet: bool = False,
    ) -> None:
        _refuse_wrong_kinds(model, train, precision)
        self.model = unwrap(model)
        self.strategy = pick(strategy)
        self.device = pick_device(device)
        #: Batches need not be moved: loaders put them here anyway.
        self.on_cpu = self.device.type == "cpu"
        self.precision = precision
        self.seed = seed
        #: Whether somebody chose the seed; one that was drawn is that of the checkpoint when a run is resumed.
        self.seed_is_chosen = True
        self.wrapped = self.strategy.wrap(model)
        self.work_dir = Path(work_dir)
        self.experiment_name = experiment_name or self.work_dir.resolve().name
        self.load_from = load_from
        self.resume = resume
        self.config = config

        self._train_loop = train
        self.val_loop, self.test_loop = val, test
        self.val_loops: dict[str, EvalLoop] = eval_loops(val, "val")
        self.test_loops: dict[str, EvalLoop] = eval_loops(test, "test")
        self.optim: Optim | OptimDict | None = optims_of(optim)
        self.optims = (
            list(self.optim.values()) if isinstance(self.optim, OptimDict) else [self.optim] if self.optim else []
        )

        self.position = Position()
        self.hub = self.message_hub = MessageHub()
        self.terminal = Terminal(quiet)
        if isinstance(writers, (str, Mapping)):
            raise ConfigError(f"writers is a list of them, as [{writers!r}]")
        self.writers = Writers([assembly.writer(given) for given in writers], main=self.rank == 0, reserved=OWN_FILES)
        self.saving = Saving(self)
        #: Which verb is under way: train, val, test, or nothing.
        self.running: Literal["train", "val", "test"] | None = None
        #: Whether the run has its folder to itself.
        self.in_folder = False
        #: The evaluation loop under way.
        self.eval_loop: EvalLoop | None = None
        #: The current batch; a `before_..._iter` may put another one here.
        self.data_batch: Any = None
        #: Whether the current batch is the last of its pass, and whether an accumulation window has to end with it.
        self.ends_epoch = False
        self.ends_window = False
        #: Whether a hook or a signal has asked for something that the loop has not acted on yet.
        self.asked = False
        #: The signal that wants the run to end; 0 while there is none.
        self.signalled = 0
        #: The pass over the data that is under way.
        self.batches: Batches | None = None
        #: Where the time that the loader is waited for is added up, if somebody wants to know it.
        self.waiting: Cost | None = None
        #: The user's step, ready to be called with model and batch.
        self.call_step: Callable[..., Any] = call_model
        #: What the command line ends with when nothing fails; a hook that stops a run for a bad reason sets it.
        self.exit_code = 0
        #: Why the current step is skipped; empty when it is not.
        self.skipped = ""
        #: Seconds in which hooks kept training waiting for an evaluation of theirs; they are no part of a step's time.
        self.seconds_evaluating = 0.0

        self.plan = Plan(self, points, open=self.open_points)
        assembly.register_all(self.plan, default_hooks, custom_hooks)

    @classmethod
    def from_config(
        cls, config: str | Path | Mapping[str, Any], overrides: Sequence[str] = (), allow: Sequence[str] = ()
    ) -> Runner:
        """A runner from a YAML file or a mapping of the same shape, changed by `key.path=value` overrides.

        `allow` names modules that the config may import besides those beside it.
        """
        from hookline.config import build_runner, from_dict, load

        loaded = from_dict(config, overrides) if isinstance(config, Mapping) else load(config, overrides)
        return build_runner(loaded, allow=allow)

    # -- starting

    def train(self) -> nn.Module:
        """Train until the end, or a stop; gives the trained model."""
        loop = self.train_loop
        if not self.optims:
            raise ConfigError("training needs an optim: Runner(..., optim=Optim(optimizer))")
        if isinstance(self.optim, OptimDict) and not loop.updates_itself:
            raise ConfigError(
                f"there are {len(self.optims)} optims ({', '.join(self.optim)}), so the step has to say which one "
                "updates when: give it a parameter named optim, and call optim['name'].update(loss)"
            )
        self._refuse_empty({"train": loop, **{f"val {name}".strip(): each for name, each in self.val_loops.items()}})
        with session(self, "train"):
            self._say_if_nothing_is_left()
            loops.train(self)
        return self.model

    def _say_if_nothing_is_left(self) -> None:
        at = self.position
        if self.train_loop.is_over(at):
            self.terminal.say(f"training is over: {self.epoch} epochs, {self.iter} iterations; there is nothing to do")
        elif at.stopped and at.stopped_for_now:
            at.go_on()
            self.asked = bool(at.stop_asked)
        elif at.stopped:
            who = f" by {at.stopped_by}" if at.stopped_by else ""
            self.terminal.say(
                f"this run was stopped{who}: {at.stopped}. Resumed with other parameters of that hook, or without it, "
                "it goes on"
            )

    def val(self) -> dict[str, Any]:
        """Validate once; gives the metrics."""
        return self._evaluate("val", self.val_loops)

    def test(self) -> dict[str, Any]:
        """Test once; gives the metrics."""
        return self._evaluate("test", self.test_loops)

    def _evaluate(self, stage: Literal["val", "test"], found: dict[str, EvalLoop]) -> dict[str, Any]:
        if not found:
            raise ConfigError(f"there is nothing to {stage}: Runner(..., {stage}=EvalLoop(loader, ...))")
        self._refuse_empty({f"{stage} {name}".strip(): loop for name, loop in found.items()})
        with session(self, stage):
            return loops.evaluate(self, stage)

    def predict(self, loader: Iterable[Any], step: Callable[..., Any] | None = None) -> list[Any]:
        """What the evaluation step gives for each batch of a loader; no hook is called.

        The step is that of `val`, or else of `test`, or else the model is called with the batch.
        """
        found = [*self.val_loops.values(), *self.test_loops.values()]
        run = step if step is not None else found[0].step if found else call_model
        self.model.to(self.device)
        with in_mode(self.model, training=False), self.autocast():
            return [run(self.wrapped, to_device(batch, self.device)) for batch, _ in Batches(loader)]

    def _refuse_empty(self, found: Mapping[str, TrainLoop | EvalLoop]) -> None:
        for name, loop in found.items():
            if length_of(loop.dataloader) == 0:
                raise DataError(f"the loader of '{name}' is empty: it has no batch")

    # -- what hooks ask for

    def stop(self, reason: str, when: Literal["iter", "epoch"] = "iter", *, for_now: bool = False) -> None:
        """End training after the current iteration, or epoch; `after_train` and `after_run` are still called.

        A run that is resumed later goes on if it was stopped `for_now` (its time was up), and not if it was stopped for
        good by a hook that is still there.
        """
        if when not in ("iter", "epoch"):
            raise HookError(f"stop(when=...) is 'iter' or 'epoch', not {when!r}")
        at = self.position
        for_good = at.stopped_for_now and not for_now and when == "iter"
        if not at.stop_asked or at.stop_when == "epoch" or for_good:
            if at.stop_asked and for_now and not at.stopped_for_now:
                at.stop_later, at.stop_later_by = at.stop_asked, at.stopped_by
            at.stop_asked, at.stop_when, at.stopped_by = reason or "no reason given", when, self._calling_hook()
            at.stopped_for_now = for_now
        self.asked = True

    def skip_step(self, reason: str) -> None:
        """Leave the current batch out of training.

        Before its backward pass, just this batch; between that and the optimizer step, the accumulation window that it
        is in. Asked at `before_train_iter`, the step is not even computed, and there is no `after_train_iter`.
        """
        if self._is_called_at("after_train_iter") or self._is_called_at("after_optimizer_step"):
            raise HookError(
                "skip_step was called when the step was made already; ask at before_optimizer_step or before"
            )
        self.skipped = reason or "asked for by a hook"
        for optim in self.optims:
            optim.skip()

    def request_save(self) -> None:
        """Save a checkpoint at the end of this iteration, epoch or validation, where no accumulation window is open."""
        self.saving.ask(Request())

    def request_val(self) -> None:
        """Validate at the end of this iteration, where no accumulation window is open."""
        if not self.val_loops:
            raise HookError("a validation was asked for, and this run has none: Runner(..., val=EvalLoop(loader, ...))")
        self.position.val_requested = True
        self.asked = True

    def _calling_hook(self) -> str:
        """The name of the hook that is asking, for messages; empty when it is not a hook."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != loops.__file__:
            for entry in self.plan:
                if entry.hook is frame.f_locals.get("self") or getattr(entry.hook, "__code__", None) is frame.f_code:
                    return entry.name
            frame = frame.f_back
        return ""

    def _is_called_at(self, point: str) -> bool:
        """Whether a hook at this point is asking; looked up in the frames, so that points need not say so."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != loops.__file__:
            if frame.f_code.co_filename == f"<hookline {point}>":
                return True
            frame = frame.f_back
        return False

    # -- what the loop asks of its runner

    def forget_skip(self) -> None:
        """A skip holds for one iteration."""
        self.skipped = ""
        for optim in self.optims:
            optim.forget_skip()

    @property
    def in_window(self) -> bool:
        """Whether an accumulation window is open, so that what was asked for has to wait for its end.

        The windows of several optims may never all be closed at once; then a checkpoint holds those that are open.
        """
        return len(self.optims) == 1 and self.optims[0].micro > 0

    def batches_left(self) -> int | None:
        """How many batches an accumulation window that begins now can have; None where nobody knows."""
        # How often a step updates that does it itself is its own affair.
        return None if self.train_loop.updates_itself else self.batches_to_come()

    def batches_to_come(self) -> int | None:
        """How many batches there are until windows have to end; None where nobody knows."""
        loop, at = self.train_loop, self.position
        length = loop.length if loop.by_epoch else loop.max_iters
        return None if length is None else length - (at.batch if loop.by_epoch else at.iter)

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision of a forward pass, as a context to enter once."""
        if self.precision == "fp32":
            return NOTHING
        return torch.autocast(self.device.type, getattr(torch, PRECISIONS[self.precision]))

    def more_facts(self) -> dict[str, Any]:
        """What the `meta` of every checkpoint tells people besides the usual: tensors and plain data."""
        return {}

    def read_weights(self, path: Path) -> dict[str, Any]:
        """What is in the file that `load_from` names. A subclass may know files of other kinds; none runs any code."""
        return store.read(path, sealed=False)

    def forget_requests(self) -> None:
        """What was asked for belongs to the run in which it was asked; so do gradients of a window that was cut off."""
        self.position.stop_asked, self.exit_code = "", 0
        self.asked, self.skipped, self.eval_loop = False, "", None
        self.saving.asked.clear()
        for optim in self.optims:
            optim.reset()

    def stop_if_asked(self) -> bool:
        """End training here if somebody asked for it, and its time has come."""
        at = self.position
        if at.stop_asked and (at.stop_when == "iter" or at.batch == 0):
            at.stopped, at.stop_asked = at.stop_asked, ""
            at.stopped_with = self.plan.parameters_of(at.stopped_by)
            self.terminal.say(f"stopped{f' by {at.stopped_by}' if at.stopped_by else ''}: {at.stopped}")
        self.asked = bool(at.stop_asked)
        if self.signalled:  # asked for again, lest one that came in this moment be forgotten
            self.asked = True
        return bool(at.stopped)

    def save_if_asked(self) -> None:
        """Write the checkpoints that were asked for."""
        if self.saving.asked:
            self.saving.save()

    def end_if_signalled(self) -> None:
        """After a signal: save where the run stands, and end it; or raise what went wrong beside the training.

        The loader's workers may have died of the same signal; then an accumulation window is saved as it is, open.
        """
        self.saving.raise_failure()
        if not self.signalled:
            return
        self.saving.finish()
        if self.iter and self.saving.saved_at != self.iter:
            self.request_save()
            self.saving.save()
        name = signal.Signals(self.signalled).name
        where = f"{self.saving.last_path} goes on from here" if self.saving.last_path else "nothing was done yet"
        self.terminal.say(f"ended by {name} after iteration {self.iter}: {where}")
        raise signals.ending(self.signalled)

    def restore(self) -> bool:
        """Give hooks and generators the states of the checkpoint that is being resumed; once, at its position."""
        if self.saving.pending is None:
            return False
        self.saving.restore()
        return True

    # -- hooks

    def register_hook(
        self,
        hook: Hook | Mapping[str, Any] | str,
        priority: str | int | None = None,
        on_error: Literal["raise", "disable"] | None = None,
    ) -> None:
        """Add a hook, also while training; it takes part from the next point on."""
        assembly.register(self.plan, hook, priority, on_error)

    def remove_hook(self, hook: Hook | Callable[..., Any]) -> None:
        """Take out a hook or a function, also while training."""
        self.plan.remove(hook)

    def on(self, point: str, *, every: int | str | None = None, priority: str | int | None = None) -> Callable[[F], F]:
        """Make a function a hook: `@runner.on("after_train_iter", every=10)`."""

        def register(function: F) -> F:
            self.plan.on(point, function, every, priority)
            return function

        return register

    def add_point(self, name: str, arguments: Iterable[str] = ()) -> None:
        """Declare a point of one's own, before the hooks that use it."""
        self.plan.add_point(name, arguments)

    def call_hook(self, point: str, **arguments: Any) -> None:
        """Call the hooks at a point; this is how one's own points are called."""
        self.plan.call(point, arguments)

    @property
    def hooks(self) -> Hooks:
        """The hooks in plan order; printed, the tree of who runs where."""
        return Hooks(self.plan)

    # -- looking

    @cached_property
    def train_loop(self) -> TrainLoop:
        """How this run trains."""
        if self._train_loop is None:
            raise ConfigError("this run has no training: Runner(..., train=TrainLoop(loader, ...))")
        return self._train_loop

    @property
    def has_training(self) -> bool:
        """Whether there is a training loop."""
        return self._train_loop is not None

    @property
    def named_optims(self) -> dict[str, Optim]:
        """The optims by name; a single one has the empty name."""
        return {"": self.optim} if isinstance(self.optim, Optim) else dict(self.optim or {})

    @property
    def prefixed_optims(self) -> dict[str, Optim]:
        """The optims by what their numbers begin with: `train/`, or, where there are several, `train/<name>/`."""
        return {f"train/{name}/" if name else "train/": optim for name, optim in self.named_optims.items()}

    @property
    def sole_optim(self) -> Optim:
        """The optim of a run that has just one."""
        if len(self.optims) != 1:
            raise HooklineError(f"this run has {len(self.optims)} optims, not one; ask for runner.optim['name']")
        return self.optims[0]

    @property
    def epoch(self) -> int:
        """Finished epochs."""
        return self.position.epoch

    @property
    def iter(self) -> int:
        """Finished training iterations."""
        return self.position.iter

    @property
    def validations(self) -> int:
        """Finished validations."""
        return self.position.validations

    @property
    def updates(self) -> int:
        """Finished optimizer steps."""
        return sum(optim.updates for optim in self.optims)

    @property
    def current_updates(self) -> int:
        """Finished steps of the optim whose step is under way: what `every` counts at the points around it.

        Of two optims that take turns, a hook that comes every second time would else only ever see one.
        """
        return next((optim.updates for optim in self.optims if optim.updating), self.updates)

    @property
    def max_epochs(self) -> int | None:
        """How many epochs there will be; None when training by iterations."""
        return self._train_loop.max_epochs if self._train_loop is not None else None

    @property
    def max_iters(self) -> int | None:
        """How many iterations there will be, where that is known."""
        loop = self._train_loop
        if loop is None or not loop.by_epoch:
            return loop.max_iters if loop is not None else None
        return loop.length * (loop.max_epochs or 0) if loop.length is not None else None

    @property
    def seconds_waited(self) -> float:
        """How long training has waited for what is no part of a step: saves, and evaluations of hooks."""
        return self.saving.seconds + self.seconds_evaluating

    @property
    def max_passes(self) -> int | None:
        """How many passes over the data there will be, also when training by iterations, where that is known."""
        loop = self._train_loop
        if loop is None or loop.max_iters is None:
            return self.max_epochs
        return -(-loop.max_iters // loop.length) if loop.length is not None else None

    @property
    def rank(self) -> int:
        """The number of this process; 0 is the main one."""
        return self.strategy.rank

    @property
    def world_size(self) -> int:
        """How many processes train together."""
        return self.strategy.world_size


def _refuse_wrong_kinds(model: Any, train: Any, precision: str) -> None:
    if not isinstance(model, nn.Module):
        raise ConfigError(f"the model is a torch.nn.Module, not a {type(model).__name__}")
    if train is not None and not isinstance(train, TrainLoop):
        raise ConfigError(f"train is a TrainLoop, not a {type(train).__name__}")
    if precision not in PRECISIONS:
        raise ConfigError(f"no precision is called '{precision}'; {did_you_mean(precision, PRECISIONS)}")
