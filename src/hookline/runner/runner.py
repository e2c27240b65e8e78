"""Runner: the parts of a run, put together, and the verbs that start it and make requests.

    runner = Runner(model, train=TrainLoop(loader, step=loss_of, max_epochs=5), optim=Optim(optimizer))
    runner.train()

`hookline.engine.loops` shows what happens in a run. Hooks see the runner. They make requests (`stop`, `skip_step`,
`request_save`, `request_val`), and the loop handles them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import torch
from torch import nn

from hookline.common import launched
from hookline.common.checks import check_name
from hookline.common.escape import escaped
from hookline.common.files import real_path
from hookline.common.modes import in_mode
from hookline.common.precision import precision_of
from hookline.data.batches import Batches
from hookline.data.transfer import to_device
from hookline.engine.compute import Compute
from hookline.engine.loop_specs import EvalLoop, TrainLoop, eval_loops
from hookline.engine.numerics import check_recorded_loss
from hookline.engine.steps import call_model
from hookline.errors import ConfigError, HookError
from hookline.plan.budgets import parse_budget
from hookline.plan.explanation import Hooks
from hookline.plan.plan import Plan
from hookline.plan.trace import FIRST_STEPS, Trace
from hookline.record.hub import MessageHub
from hookline.run.keep import Choices, parse_keep, refuse_without_resume
from hookline.run.position import Current, Position
from hookline.run.requests import Requests
from hookline.runner import registration
from hookline.runner.requesting import Requesting
from hookline.strategies import Strategy, pick

if TYPE_CHECKING:
    from hookline.plan.cost_report import CostReport
    from hookline.plan.costs import Cost
    from hookline.resume.report import Resumption
    from hookline.runner.hook import Hook
    from hookline.runner.host import RunnerHost
    from hookline.runner.summary import Summary

F = TypeVar("F", bound=Callable[..., Any])


class Runner(Requesting):
    """Holds the parts of a run, and starts it.

    Args:
        model: Any module, including a compiled one. `runner.model` is the module itself.
        train: The training loop.
        val: The validation: an EvalLoop, or a dict of several by name.
        test: The test: an EvalLoop, or a dict of several by name.
        optim: An Optim, a torch optimizer, or a dict of several by name.
        default_hooks: Changes to the default hooks (runtime_info, timer, sampler_seed, logger, param_scheduler,
            checkpoint, report): parameters, another hook, or None to remove it.
        custom_hooks: More hooks: objects, names, or dicts with `type`.
        writers: The destinations of records: objects, names, or dicts with `type`.
        work_dir: The folder of the run.
        experiment_name: The name of the run; by default the name of the folder.
        seed: The seed of all random generators.
        device: `cpu`, `cuda:0`, ..., or `auto`.
        strategy: How the model is distributed over processes: a name, a dict with `type`, or an
            `accelerate.Accelerator`.
        precision: `fp32`, `bf16` or `fp16`. Other names for these are accepted, such as `bf16-mixed`, `16-mixed` and
            `32-true`.
        load_from: A checkpoint. Training starts with its weights.
        resume: True resumes from the newest intact checkpoint of work_dir. A path resumes from that checkpoint.
        trial_batch: Try one batch of every validation and test set before the first step.
        compile: Compile the model with torch.compile: True, or a dict with its parameters. Hooks stay outside the
            compiled code.
        channels_last: Keep the weights of 2d convolutions in the memory format `channels_last`.
        threads: How many threads torch computes with on the CPU during the run: a number, or `auto` for a measured
            choice. A resumed run with `auto` uses the number of its checkpoint.
        prefetch: Move the next batch to a GPU while the current one is computed.
        keep: Who wins where a checkpoint and this run differ: `config` or `checkpoint`, for all keys or for one:
            `lr=config`, or a mapping `{"lr": "config"}`.
        points: Custom points: name -> names of their arguments.
        budget: The share of the training time that each observer may take, such as `5%` or 0.05. A hook may have its
            own.
        config: The config to record for the run.
        quiet: Show nothing on the screen; run.log is still written.
    """

    #: True if hooks may have methods for points that nobody declared; see `Plan`.
    open_points: ClassVar[bool] = False
    #: The class of the object that runs it, instead of RunnerHost. A dialect may set it.
    _host_class: ClassVar[type[RunnerHost] | None] = None

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
        strategy: str | Strategy = "auto",
        precision: str | int = "fp32",
        load_from: str | Path | None = None,
        resume: bool | str | Path = False,
        trial_batch: bool = True,
        compile: bool | Mapping[str, Any] = False,
        channels_last: bool = False,
        threads: int | Literal["auto"] | None = None,
        prefetch: bool = True,
        keep: str | Mapping[str, str] | Sequence[str] | None = None,
        points: Mapping[str, Iterable[str]] | None = None,
        budget: str | float | None = None,
        config: Mapping[str, Any] | None = None,
        quiet: bool = False,
    ) -> None:
        # Most of the engine is imported with the first Runner, not with the names of hookline.
        from hookline.engine.acceleration import Acceleration
        from hookline.resume.start import Start
        from hookline.rundir.archive import RESERVED
        from hookline.runner.contents import RunContents
        from hookline.runner.host import RunnerHost
        from hookline.runner.stages import RunStages
        from hookline.screen.terminal import Terminal
        from hookline.state.loading import Loading
        from hookline.state.saving import Saving
        from hookline.writers.router import Writers

        _refuse_wrong_kinds(model, train, writers)
        check_name("work_dir", work_dir)
        check_name("experiment_name", experiment_name)
        host = self._host = (self._host_class or RunnerHost)(self)
        host.acceleration = Acceleration(compile, channels_last, threads, prefetch)
        host.strategy = pick(strategy)
        host.compute = Compute(
            host.acceleration.prepare(model),
            host.strategy.pick_device(device),
            host.strategy.pick_precision(precision_of(precision)),
        )
        host.seed = seed
        host.work_dir = Path(work_dir)
        host.experiment_name = experiment_name or escaped(real_path(host.work_dir).name)
        choices = Choices(resume or launched.must_resume(), load_from, parse_keep(keep))
        if not choices.resume:
            refuse_without_resume(choices.keep)
        host.config, host.asked = config, {}
        host.trial_batch = trial_batch

        host.loop_given = train
        host.val_loops = eval_loops(val, "val")
        host.test_loops = eval_loops(test, "test")
        host.share_data()
        host.use_optims(optim)

        host.position, host.current = Position(), Current()
        host.requests = Requests()
        host.hub = MessageHub()
        host.terminal = Terminal(quiet or not host.strategy.is_main)
        destinations = [registration.writer(given) for given in writers]
        host.use_writers(Writers(destinations, main=host.strategy.is_main, reserved=RESERVED))
        host.saving, host.loading = Saving(host), Loading(host)
        host.contents = contents = RunContents(host)
        share = parse_budget(budget) if budget is not None else None
        host.plan = Plan(self, points, open=self.open_points, budget=share)
        registration.register_all(host.plan, default_hooks, custom_hooks)
        host.begin_evaluations()
        host.start, host.stages = Start(host, host.contract_class(host, choices)), RunStages(host, contents)

    def __repr__(self) -> str:
        position, of = self._host.position, f" of {self.max_iters}" if self.max_iters is not None else ""
        texts = [f"iteration {position.iter}{of}"]
        if self.has_training and self._host.train_loop.by_epoch:
            texts.insert(0, f"epoch {position.epoch} of {self.max_epochs}")
        texts += [f"{self.device}", self.precision]
        texts += [f"rank {self.rank} of {self.world_size}"] * (self.world_size > 1)
        texts.append(f"in {escaped(self.work_dir)}")
        return f"<{type(self).__name__} {escaped(self.experiment_name)}: {', '.join(texts)}>"

    @classmethod
    def from_config(
        cls, config: str | Path | Mapping[str, Any], overrides: Sequence[str] = (), allow: Sequence[str] = ()
    ) -> Runner:
        """Build a runner from a YAML file, or from a mapping of the same shape, with `key.path=value` overrides.

        `allow` names modules that the config may import, besides those next to it.
        """
        from hookline.config import build_runner, from_dict, load

        loaded = from_dict(config, overrides) if isinstance(config, Mapping) else load(config, overrides)
        return build_runner(loaded, allow=allow)

    # -- starting

    def train(self) -> nn.Module:
        """Train to the end, or to a stop, and return the trained model."""
        from hookline.screen.notebook import hide_result

        self._host.train()
        hide_result(self.model)
        return self.model

    def preview_resume(self, decided: bool = True) -> Resumption | None:
        """Return what a resume would do: the checkpoint that it takes, and what differs; None without a checkpoint.

        Nothing is loaded and nothing is written. A resume that would be refused raises the same error here. If not
        `decided`, what the user has to decide is a part of the report instead.
        """
        from hookline.resume import report as resuming

        return resuming.preview(self._host, self._host.start, self._host.stages.prepare, decided)

    def val(self) -> dict[str, Any]:
        """Validate once, and return the metrics."""
        return self._host.evaluate("val")

    def test(self) -> dict[str, Any]:
        """Test once, and return the metrics."""
        return self._host.evaluate("test")

    def predict(self, loader: Iterable[Any], step: Callable[..., Any] | None = None) -> list[Any]:
        """Return the outputs of the evaluation step for each batch of a loader, without calling hooks.

        The step of `val` is used, or else the step of `test`. Without either, the model is called with the batch.
        """
        found = [*self.val_loops.values(), *self.test_loops.values()]
        run = step if step is not None else found[0].step if found else call_model
        self.model.to(self.device)
        with in_mode(self.model, training=False), self.autocast():
            return [run(self.wrapped, to_device(batch, self.device)) for batch, _ in Batches(loader)]

    # -- hooks, points and parts

    def register_hook(
        self,
        hook: Hook | Mapping[str, Any] | str,
        priority: str | int | None = None,
        on_error: Literal["raise", "disable"] | None = None,
        budget: str | float | None = None,
    ) -> None:
        """Add a hook, even during training. It runs from the next point on."""
        registration.register(self._host.plan, hook, priority, on_error, budget)

    def remove_hook(self, hook: Hook | Callable[..., Any]) -> None:
        """Remove a hook or a function, even during training."""
        self._host.plan.remove(hook)

    def on(self, point: str, *, every: int | str | None = None, priority: str | int | None = None) -> Callable[[F], F]:
        """Make a function a hook: `@runner.on("after_train_iter", every=10)`."""

        def register(function: F) -> F:
            self._host.plan.on(point, function, every, priority)
            return function

        return register

    def add_point(self, name: str, arguments: Iterable[str] = ()) -> None:
        """Declare a custom point, before the hooks that use it."""
        self._host.plan.add_point(name, arguments)

    def call_hook(self, point: str, **arguments: Any) -> None:
        """Call the hooks at a point; this is how custom points are called."""
        self._host.plan.call(point, arguments)

    def add_part(self, name: str, part: Any) -> None:
        """Save and restore one more object with every checkpoint: anything with `state_dict` and `load_state_dict`."""
        parts = self._host.contents.parts
        if name in parts or name in ("meta", "ranks", "shards"):
            raise ConfigError(f"checkpoints already have a part '{name}'; choose another name")
        for method in ("state_dict", "load_state_dict"):
            if not callable(getattr(part, method, None)):
                raise ConfigError(f"the part '{name}' ({type(part).__name__}) has no method {method}")
        from hookline.state.contents import CustomPart

        late = {key: parts.pop(key) for key in ("hooks", "rng")}  # these are loaded last
        parts |= {name: CustomPart(part), **late}

    @property
    def hooks(self) -> Hooks:
        """Return the hooks in plan order. Printing them shows a tree of which hook runs where."""
        return Hooks(self._host.plan)

    # -- for hooks

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time inside from the time of a training step, for hooks that run their own evaluation."""
        began = time.perf_counter()
        try:
            with self.plan.ledger.resting():
                yield
        finally:
            self._host.seconds_paused += time.perf_counter() - began
        if self.running == "train":
            self._host.training.drop_stale_gradients()

    def measure_data_wait(self) -> Cost:
        """Return the time that training has waited for the loader: a running total.

        All hooks share this total, so each hook remembers the value at which it began.
        """
        return self.plan.ledger.parts["data"]

    def more_eval_loops(
        self, val: Mapping[str, EvalLoop], test: Mapping[str, EvalLoop]
    ) -> AbstractContextManager[None]:
        """Also evaluate these loops inside the context, for hooks that evaluate the same data in another way."""
        return self._host.evaluation.more_loops(val, test)

    def validation_due(self, position: Position | None = None) -> bool:
        """Return whether a validation must run before the next step, at this position or another one."""
        return self._host.evaluation.due(position)

    def trained_names(self) -> Collection[str]:
        """Return the names of the parameters that require gradients and that an optimizer has."""
        return self._host.contents.trained_names()

    def check_loss(self, since: int | None = None) -> None:
        """End the run if a recorded loss is NaN or Inf, before it is logged like a normal result.

        Args:
            since: The iteration of the last record, if it is known.
        """
        check_recorded_loss(self._host.training, self.hub, self.iter + 1, since)

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context of a forward pass in the precision of the run. It can be entered once."""
        return self._host.compute.autocast()

    # -- looking

    def costs(self) -> CostReport:
        """Return what every hook and every part of training has cost in this session so far. Printing it shows a table.

        `costs().to_dict()` is what `hooks.json` in the folder of the run holds.
        """
        from hookline.plan.cost_report import report_costs

        return report_costs(self._host.plan, self._host.plan.ledger)

    def trace(self, path: str | Path, steps: int = FIRST_STEPS) -> None:
        """Write a Chrome trace of the next training: the first steps, and then one of 31, on one timeline.

        Args:
            path: The file to write. It opens in chrome://tracing and ui.perfetto.dev.
            steps: How many steps at the beginning are traced.
        """
        if self._host.running is not None:
            raise HookError("runner.trace() was called during a run; call it before runner.train()")
        self._host.plan.ledger.trace = Trace(path, steps, self.rank, self.experiment_name)

    def summary(self) -> Summary:
        """Return the length, results, times and files of the run so far. Printing it shows a table.

        It works before, during and after training. `summary().to_dict()` is plain data.
        """
        from hookline.runner.summary import summarize

        return summarize(self._host)


def _refuse_wrong_kinds(model: Any, train: Any, writers: Any) -> None:
    if not isinstance(model, nn.Module):
        raise ConfigError(f"the model must be a torch.nn.Module, not a {type(model).__name__}")
    if train is not None and not isinstance(train, TrainLoop):
        raise ConfigError(f"train must be a TrainLoop, not a {type(train).__name__}")
    if isinstance(writers, (str, Mapping)):
        raise ConfigError(f"writers must be a list, such as [{writers!r}]")
