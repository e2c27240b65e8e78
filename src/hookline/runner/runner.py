"""Runner: the parts of a run, put together, and the verbs that start it and make requests.

    runner = Runner(model, train=TrainLoop(loader, step=loss_of, max_epochs=5), optim=Optim(optimizer))
    runner.train()

`hookline.engine.loops` shows what happens in a run. Hooks see the runner. They make requests (`stop`, `skip_step`,
`request_save`, `request_val`), and the loop handles them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, Unpack

import torch
from torch import nn

from hookline.checks import optimizers
from hookline.checks.before_training import check_before_training, refuse_empty_loaders
from hookline.common import launched
from hookline.common.checks import check_name
from hookline.common.escape import escaped
from hookline.common.files import real_path
from hookline.common.modes import in_mode
from hookline.common.precision import precision_of
from hookline.data.batches import Batches
from hookline.data.transfer import to_device
from hookline.engine.acceleration import Acceleration
from hookline.engine.compute import Compute
from hookline.engine.loop_specs import EvalLoop, TrainLoop, eval_loops
from hookline.engine.runner_host import RunnerHost
from hookline.engine.steps import call_model
from hookline.errors import ConfigError, HookError
from hookline.lifecycle.session import session
from hookline.plan.budgets import BudgetAction, budget_of_observers
from hookline.plan.callers import call_in_progress
from hookline.plan.cost_report import CostReport, report_costs
from hookline.plan.explanation import Hooks
from hookline.plan.plan import SKIPPING, Plan
from hookline.plan.trace import FIRST_STEPS, Trace
from hookline.record.hub import MessageHub
from hookline.resume import facts
from hookline.resume import report as resuming
from hookline.resume.contract import RunContract
from hookline.resume.start import Start
from hookline.run.keep import parse_keep, refuse_without_resume
from hookline.run.position import Position
from hookline.run.requests import FileName, Requests, SaveOptions, Stop, When, build_save_request
from hookline.rundir.archive import RESERVED
from hookline.runner import registration
from hookline.runner.summary import Summary, summarize
from hookline.screen.notebook import hide_result
from hookline.screen.terminal import Terminal
from hookline.state.host import CustomPart
from hookline.state.loading import Loading
from hookline.state.parts import parts_of
from hookline.state.saving import Saving
from hookline.strategies import Strategy, pick
from hookline.writers.router import Writers

if TYPE_CHECKING:
    from hookline.plan.hook import Hook
    from hookline.resume.report import Resumption

F = TypeVar("F", bound=Callable[..., Any])


class Runner(RunnerHost):
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
        compile: Compile the model with torch.compile: True, or a dict with its parameters. Hooks stay outside of the
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
        budget_action: What happens if an observer takes more: `warn`, or `throttle`, which also makes it run less
            often.
        config: The config to record for the run.
        quiet: Show nothing on the screen; run.log is still written.
    """

    #: True if hooks may have methods for points that nobody declared; see `Plan`.
    open_points: ClassVar[bool] = False
    #: The rules for continuing from a checkpoint. A dialect may replace them.
    contract_class: ClassVar[type[RunContract]] = RunContract

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
        budget_action: BudgetAction | None = None,
        config: Mapping[str, Any] | None = None,
        quiet: bool = False,
    ) -> None:
        _refuse_wrong_kinds(model, train, writers)
        check_name("work_dir", work_dir)
        check_name("experiment_name", experiment_name)
        self.acceleration = Acceleration(compile, channels_last, threads, prefetch)
        self.strategy = pick(strategy)
        self.compute = Compute(
            self.acceleration.prepare(model),
            self.strategy.pick_device(device),
            self.strategy.pick_precision(precision_of(precision)),
        )
        self.seed = seed
        self.work_dir = Path(work_dir)
        self.experiment_name = experiment_name or escaped(real_path(self.work_dir).name)
        self.load_from, self.resume = load_from, resume or launched.must_resume()
        self.keep = parse_keep(keep)
        if not self.resume:
            refuse_without_resume(self.keep)
        self.asked = {}
        self.config = config
        self.trial_batch = trial_batch

        self._train_loop = train
        self.val_loop, self.test_loop = val, test
        self.val_loops: dict[str, EvalLoop] = eval_loops(val, "val")
        self.test_loops: dict[str, EvalLoop] = eval_loops(test, "test")
        self.share_data()
        self.optim = optim

        self.position = Position()
        self.requests = Requests()
        self.hub = self.message_hub = MessageHub()
        self.terminal = Terminal(quiet or not self.strategy.is_main)
        self.writers = Writers(
            [registration.writer(given) for given in writers], main=self.strategy.is_main, reserved=RESERVED
        )
        self.saving, self.loading = Saving(self), Loading(self)
        self.parts = parts_of(self)
        self.plan = Plan(self, points, open=self.open_points, budget=budget_of_observers(budget, budget_action))
        registration.register_all(self.plan, default_hooks, custom_hooks)
        self.evaluation = self._new_evaluation()
        self.start = Start(self, self.contract_class(self))

    def __repr__(self) -> str:
        position, of = self.position, f" of {self.max_iters}" if self.max_iters is not None else ""
        texts = [f"iteration {position.iter}{of}"]
        if self.has_training and self.train_loop.by_epoch:
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
        loop = self.train_loop
        if self.needs_optim and not self.optims:
            raise ConfigError("training needs an optim; add one: Runner(..., optim=Optim(optimizer))")
        if self.optims.are_named and not loop.updates_itself:
            raise ConfigError(
                f"there are {len(self.optims)} optims ({', '.join(self.optims)}), so the step must choose which one to "
                "update: give it a parameter named optim, and call optim['name'].update(loss)"
            )
        evaluations = {f"val {name}".strip(): each for name, each in self.val_loops.items()}
        if self.trial_batch and self.strict_start:
            evaluations |= {f"test {name}".strip(): each for name, each in self.test_loops.items()}
        refuse_empty_loaders({"train": loop, **evaluations})
        with self.acceleration.threads_set(), session(self, "train", self.start):
            self._report_finished()
            self.run_training()
        hide_result(self.model)
        return self.model

    def before_training(self) -> None:
        """Record the config, and run the checks that are possible before the first step."""
        if self.span is not None:
            self.span.start_at(self.position)
        self.training.losses_since = self.position.iter
        self.training.before_first_pass = partial(optimizers.check_parameters, self)
        if self.config is not None:
            self.writers.write_config("config", self.config, self.iter)
        check_before_training(self)

    def report_changes(self) -> None:
        """Warn about parameters that code of the user put into the model, and that no optimizer has."""
        optimizers.report_untrained(self)

    def note_what_is_asked(self) -> None:
        """Remember what this run was asked to do. A second training of this runner goes on with what the first did."""
        now = facts.asked(self)
        if self.loading.started and self.asked:
            changeable = ("max_epochs", "max_iters", "hooks", "parts")
            now = {**self.asked, **{key: now[key] for key in changeable}}
        self.asked = now

    def asked_by_now(self) -> dict[str, Any]:
        """Return what this run was asked to do, with the hooks that joined it since."""
        if not self.asked:
            return {}
        hooks = {entry.name: self.asked["hooks"].get(entry.name) for entry in self.plan}
        missing = {entry.name: facts.parameters_of(entry) for entry in self.plan if hooks[entry.name] is None}
        return {**self.asked, "hooks": {**hooks, **missing}}

    def _report_finished(self) -> None:
        """Report it if there is nothing left to train. Let a run that was stopped for now continue."""
        stopped = self.requests.stopped
        if self.train_loop.is_over(self.position):
            self.terminal.say(
                f"training is already finished: {self.epoch} epochs, {self.iter} iterations; "
                + self._how_to_train_longer()
            )
        elif stopped and stopped.for_now:
            self.requests.resume_training()
        elif stopped:
            who = f" by {stopped.by}" if stopped.by else ""
            self.terminal.say(
                f"this run was stopped{who}: {stopped.reason}. To continue, change the parameters of that hook or "
                "remove it, and resume"
            )

    def _how_to_train_longer(self) -> str:
        limit = "max_iters" if self.train_loop.max_epochs is None else "max_epochs"
        found, value = self.start.contract.resumption, getattr(self.train_loop, limit)
        differing = [each for each in found.differences if each.key == limit] if found is not None else []
        if found is not None and differing and differing[0].winner == "checkpoint":
            choice = found.hint(f"{limit}=config")
            return f"{limit} is {value} as in the checkpoint, not {differing[0].config}; to change that, use {choice}"
        if value is not None and value < (self.iter if limit == "max_iters" else self.epoch):
            return f"{limit} is only {value}"
        return f"to train longer, increase {limit}"

    def preview_resume(self, decided: bool = True) -> Resumption | None:
        """Return what a resume would do: the checkpoint that it takes, and what differs; None without a checkpoint.

        Nothing is loaded and nothing is written. A resume that would be refused raises the same error here. If not
        `decided`, what the user has to decide is a part of the report instead.
        """
        return resuming.preview(self, self.start, decided)

    def val(self) -> dict[str, Any]:
        """Validate once, and return the metrics."""
        return self._evaluate("val", self.val_loops)

    def test(self) -> dict[str, Any]:
        """Test once, and return the metrics."""
        return self._evaluate("test", self.test_loops)

    def _evaluate(self, stage: Literal["val", "test"], found: dict[str, EvalLoop]) -> dict[str, Any]:
        if not found:
            added = (
                f"Runner(..., {stage}=EvalLoop(loader, ...))"
                if self.config is None
                else f"the section '{stage}' of the config"
            )
            raise ConfigError(f"this run has no {stage} loop; add one: {added}")
        refuse_empty_loaders({f"{stage} {name}".strip(): loop for name, loop in found.items()})
        with self.acceleration.threads_set(), session(self, stage, self.start):
            return self.evaluation.run(stage)

    def predict(self, loader: Iterable[Any], step: Callable[..., Any] | None = None) -> list[Any]:
        """Return the outputs of the evaluation step for each batch of a loader, without calling hooks.

        The step is that of `val`, or else of `test`. Without either, the model is called with the batch.
        """
        found = [*self.val_loops.values(), *self.test_loops.values()]
        run = step if step is not None else found[0].step if found else call_model
        self.model.to(self.device)
        with in_mode(self.model, training=False), self.autocast():
            return [run(self.wrapped, to_device(batch, self.device)) for batch, _ in Batches(loader)]

    # -- requests of hooks; see `hookline.run.requests`

    def stop(
        self,
        reason: str,
        when: When = "iter",
        *,
        for_now: bool = False,
        flush_window: bool = False,
        exit_code: int | None = None,
    ) -> None:
        """End training after the current iteration or epoch; `after_train` and `after_run` are still called.

        Args:
            reason: Shown to people, and stored in the checkpoint.
            when: `iter` or `epoch`.
            for_now: A resumed run continues (the time was up). Otherwise it does not, as long as the hook that stopped
                it is still there with the same parameters.
            flush_window: End an open accumulation window with this iteration, instead of waiting until it is full.
            exit_code: The exit code of the command line after this stop.
        """
        stop = Stop(reason or "no reason given", self._requester(), when, for_now)
        self.requests.ask_stop(stop, flush_window=flush_window, exit_code=exit_code)

    def skip_step(self, reason: str) -> None:
        """Skip the current batch: it does not change the weights.

        Before its backward pass, only this batch is skipped. After it, the whole accumulation window is dropped. At
        `before_train_iter`, the step is not computed at all, and `after_train_iter` is not called.
        """
        call = call_in_progress(self)
        if call is not None and call.point.name in ("after_train_iter", "after_optimizer_step"):
            raise HookError(
                "skip_step was called after the optimizer step; call it at before_optimizer_step or earlier"
            )
        if not self.strategy.acts_alone and (call is None or call.point.name not in SKIPPING):
            raise HookError(
                "with several processes, skip_step can only be called by a hook at "
                f"{', '.join(SKIPPING[:-1])} or {SKIPPING[-1]}, because the processes agree there"
            )
        self.requests.ask_skip(reason or "requested by a hook")
        self.optims.skip()

    def request_save(self, name: FileName = None, **options: Unpack[SaveOptions]) -> None:
        """Save a checkpoint at the end of this iteration, epoch, validation, or of an open accumulation window.

        Args:
            name: The file name, with `{}` for the number of the epoch or iteration, or a function from the position to
                the name. By default `epoch_5.pth`, or `iter_100.pth` when training by iterations or inside an epoch.
            options: `folder`, `prefix` of the file name, `by_epoch`, `optimizer` and `schedulers` (False leaves them
                out), `meta` (more facts), `background`, `in_memory`, `needed` (False warns instead of ending the run if
                the file cannot be written), `done` and `failed`. `done` is called with the path once the file is on
                disk and verified. Files of 1 MiB and more are verified in a thread while training continues, and so are
                those written with `background`: `done` is then called in that thread. It must not touch the model, and
                what it shares with the training needs a lock.
        """
        request = build_save_request(name, options)
        if not (request.together or self.strategy.is_main) and (request.done or request.failed):
            raise HookError(
                "request_save: only the main process writes, so it cannot call back 'done' or 'failed' of another one; "
                "ask in the main process (runner.rank == 0), or at the same iteration in all of them (together=True)"
            )
        self.requests.ask_save(request)

    def checkpoint_path(self, name: FileName = None, **options: Unpack[SaveOptions]) -> Path:
        """Return where a checkpoint with these options of `request_save` would be written at the current counters."""
        return self.saving.path(build_save_request(name, options))

    def request_val(self) -> None:
        """Validate at the end of this iteration, or, inside an accumulation window, at the end of the window."""
        if not self.val_loops:
            raise HookError(
                "a validation was requested, but this run has none; add `val` to the Runner or to the config"
            )
        self.requests.ask_validation()

    def _requester(self) -> str:
        """Return the name of the hook that is calling; empty if it is not a hook."""
        call = call_in_progress(self)
        return call.who if call is not None else ""

    # -- hooks, points and parts

    def register_hook(
        self,
        hook: Hook | Mapping[str, Any] | str,
        priority: str | int | None = None,
        on_error: Literal["raise", "disable"] | None = None,
        budget: str | float | None = None,
        budget_action: BudgetAction | None = None,
    ) -> None:
        """Add a hook, even during training. It runs from the next point on."""
        registration.register(self.plan, hook, priority, on_error, budget, budget_action)

    def remove_hook(self, hook: Hook | Callable[..., Any]) -> None:
        """Remove a hook or a function, even during training."""
        self.plan.remove(hook)

    def on(self, point: str, *, every: int | str | None = None, priority: str | int | None = None) -> Callable[[F], F]:
        """Make a function a hook: `@runner.on("after_train_iter", every=10)`."""

        def register(function: F) -> F:
            self.plan.on(point, function, every, priority)
            return function

        return register

    def add_point(self, name: str, arguments: Iterable[str] = ()) -> None:
        """Declare a custom point, before the hooks that use it."""
        self.plan.add_point(name, arguments)

    def call_hook(self, point: str, **arguments: Any) -> None:
        """Call the hooks at a point; this is how custom points are called."""
        self.plan.call(point, arguments)

    def add_part(self, name: str, part: Any) -> None:
        """Save and restore one more object with every checkpoint: anything with `state_dict` and `load_state_dict`."""
        if name in self.parts or name in ("meta", "ranks", "shards"):
            raise ConfigError(f"checkpoints already have a part '{name}'; choose another name")
        for method in ("state_dict", "load_state_dict"):
            if not callable(getattr(part, method, None)):
                raise ConfigError(f"the part '{name}' ({type(part).__name__}) has no method {method}")
        late = {key: self.parts.pop(key) for key in ("hooks", "rng")}  # these are loaded last
        self.parts |= {name: CustomPart(part), **late}

    @property
    def hooks(self) -> Hooks:
        """Return the hooks in plan order. Printing them shows a tree of which hook runs where."""
        return Hooks(self.plan)

    # -- looking

    @cached_property
    def train_loop(self) -> TrainLoop:
        """Return the training loop. It is an error if the run has none."""
        if self._train_loop is None:
            raise ConfigError("this run has no training; add it: Runner(..., train=TrainLoop(loader, ...))")
        return self._train_loop

    @property
    def has_training(self) -> bool:
        """Return whether there is a training loop."""
        return self._train_loop is not None

    @property
    def epoch(self) -> int:
        """Return the number of finished epochs."""
        return self.position.epoch

    def costs(self) -> CostReport:
        """Return what every hook and every part of training has cost in this session so far. Printing it shows a table.

        `costs().to_dict()` is what `hooks.json` in the folder of the run holds.
        """
        return report_costs(self.plan, self.plan.ledger)

    def trace(self, path: str | Path, steps: int = FIRST_STEPS) -> None:
        """Write a Chrome trace of the next training: the first steps, and then one of 31, on one timeline.

        Args:
            path: The file to write. It opens in chrome://tracing and ui.perfetto.dev.
            steps: How many steps at the beginning are traced.
        """
        if self.running is not None:
            raise HookError("runner.trace() was called during a run; call it before runner.train()")
        self.plan.ledger.trace = Trace(path, steps, self.rank, self.experiment_name)

    def summary(self) -> Summary:
        """Return the length, results, times and files of the run so far. Printing it shows a table.

        It works before, during and after training. `summary().to_dict()` is plain data.
        """
        return summarize(self)

    @property
    def skipped(self) -> str:
        """Return why the current step is skipped; empty if it is not."""
        return self.requests.skip

    @property
    def stopped(self) -> Stop:
        """Return why training was stopped early, and by which hook. The value is false if it was not stopped."""
        return self.requests.stopped

    @property
    def exit_code(self) -> int:
        """Return the exit code of the command line if nothing fails. A hook that stops a run may have set it."""
        return self.requests.exit_code

    @property
    def max_epochs(self) -> int | None:
        """Return the total number of epochs; None when training by iterations."""
        return self._train_loop.max_epochs if self._train_loop is not None else None

    @property
    def max_iters(self) -> int | None:
        """Return how many iterations there will be, if that is known."""
        return self._train_loop.total_iters if self._train_loop is not None else None

    @property
    def max_passes(self) -> int | None:
        """Return how many passes over the data there will be, also when training by iterations, if that is known."""
        return self._train_loop.total_passes if self._train_loop is not None else None

    @property
    def rank(self) -> int:
        """Return the number of this process; 0 is the main one."""
        return self.strategy.rank

    @property
    def world_size(self) -> int:
        """Return the number of processes that train together."""
        return self.strategy.world_size


def _refuse_wrong_kinds(model: Any, train: Any, writers: Any) -> None:
    if not isinstance(model, nn.Module):
        raise ConfigError(f"the model must be a torch.nn.Module, not a {type(model).__name__}")
    if train is not None and not isinstance(train, TrainLoop):
        raise ConfigError(f"train must be a TrainLoop, not a {type(train).__name__}")
    if isinstance(writers, (str, Mapping)):
        raise ConfigError(f"writers must be a list, such as [{writers!r}]")
