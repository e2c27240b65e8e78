"""The part of a Runner that sessions, the loop and checkpoints use. Its verbs and counters are in `runner`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from hookline.checkpoint import compatibility
from hookline.checkpoint.export import averages_in
from hookline.common import rng
from hookline.common.escape import escaped
from hookline.common.files import write_text
from hookline.common.modes import in_mode, switch_mode
from hookline.common.precision import PRECISIONS
from hookline.data.batches import Batches
from hookline.data.sources import as_resumable
from hookline.data.transfer import Transfer, moved_ahead
from hookline.engine import (
    comparison,
    decisions,
    facts,
    hook_states,
    loops,
    optim_checks,
    outside,
    preflight,
    reachability,
    resuming,
    schedule_checks,
    snapshot,
)
from hookline.engine.host import Host, Verb
from hookline.engine.numerics import check_losses
from hookline.engine.optims import Optims
from hookline.engine.parts import check_model_state
from hookline.engine.rehearsal import BeforeValidation, Interrupted, before_validation
from hookline.engine.steps import call_model
from hookline.engine.summary import Span
from hookline.errors import HookError
from hookline.plan.scopes import NOTHING
from hookline.run.position import Position
from hookline.rundir import origin
from hookline.strategies import unwrap

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hookline.engine.acceleration import Acceleration
    from hookline.engine.loop_specs import EvalLoop, TrainLoop
    from hookline.engine.optim import Optim
    from hookline.engine.resuming import Resumption
    from hookline.engine.scheduled import When
    from hookline.plan.costs import Cost
    from hookline.record.hub import MessageHub
    from hookline.run.requests import SaveRequest
    from hookline.writers.base import Outcome
    from hookline.writers.router import Writers


class RunnerHost(Host):
    """The Runner as a host."""

    _model: nn.Module
    device: torch.device
    precision: str
    seed: int
    #: The options that make steps faster.
    acceleration: Acceleration
    #: True if one batch of every evaluation loop is tried before training.
    trial_batch: bool
    #: False in a dialect: an evaluation is tried only if a hook needs its metrics, a failure of it is a warning, and
    #: settings without an effect are not reported.
    strict_start: ClassVar[bool] = True
    #: What this run was asked to do, as plain data; see `hookline.engine.facts`. It is known once training begins.
    asked: dict[str, Any]
    _originals: decisions.Originals | None = None
    #: False if hooks may make the updates, so that training needs no optim.
    needs_optim: ClassVar[bool] = True
    optims: Optims
    hub: MessageHub
    #: The losses that `hookline.engine.numerics` has not checked yet, oldest first.
    losses: list[float | Tensor]
    #: The finished iterations at the last such check; None if it is unknown.
    losses_since: int | None = None
    writers: Writers
    config: Mapping[str, Any] | None
    #: The file that the config was read from; None if it is only data.
    config_file: Path | None = None
    val_loops: dict[str, EvalLoop]
    test_loops: dict[str, EvalLoop]
    if TYPE_CHECKING:  # properties of the Runner

        @property
        def train_loop(self) -> TrainLoop:
            """Return the training loop."""

        @property
        def has_training(self) -> bool:
            """Return whether there is a training loop."""

    #: The last suggestion in the message about a loss that is NaN or Inf.
    nan_hint: ClassVar[str] = "or skip such batches: CheckInvalidLossHook with policy: skip and interval: 1"

    #: The last suggestion in the message about an optimizer that needs a closure.
    closure_hint: ClassVar[str] = optim_checks.CLOSURE_HINT

    #: The model as the step calls it. The strategy wraps it at the start of a session.
    wrapped: nn.Module
    #: The current batch. A `before_..._iter` may replace it.
    data_batch: Any = None
    #: True if the current batch is the last one of its pass.
    ends_epoch = False
    #: True if an accumulation window has to end with the current batch.
    ends_window = False
    #: The samples of the current batch relative to a usual one; None if every process has a usual one.
    batch_weight: float | None = None
    #: False if all batches count the same, however many samples they have.
    weighs_samples: ClassVar[bool] = True
    #: The pass over the data that is running.
    batches: Batches | None = None
    #: The evaluation loop that is running.
    eval_loop: EvalLoop | None = None
    #: The user's step, ready to be called with model and batch.
    call_step: Callable[..., Any] = staticmethod(call_model)
    #: The update after the step; None if the step calls `optim.update` itself.
    update: Callable[[Tensor, dict[str, Any]], None] | None = None
    #: True if the forward pass of a step has a context besides that of the hooks.
    wraps_forward = False
    #: True once the first pass of a training has begun.
    _parameters_checked = False
    #: The parameters of which a warning has said that no optimizer has them.
    reported_untrained: set[str]
    #: True if batches need not be moved, because loaders already put them on the CPU.
    on_cpu = True
    _before_validation: BeforeValidation | None = None
    #: The states of the random generators when the last session ended.
    _generators: dict[str, Any] | None = None
    #: True while the state before an interrupted validation is saved.
    _interrupted = False
    #: True if a validation cannot be left although a signal has come.
    _has_to_finish = False
    #: The last call of `train()`; None before the first.
    span: Span | None = None
    #: The seconds that training has waited for evaluations of hooks. They are not part of the time of a step.
    seconds_paused = 0.0

    # -- the parts that a run cannot change

    @property
    def model(self) -> nn.Module:
        """Return the user's module, without wrappers. It cannot be replaced while it is trained."""
        return self._model

    @model.setter
    def model(self, model: nn.Module) -> None:
        self._refuse_while_running("model", "change it in place, for example with runner.model.load_state_dict(...)")
        if self.running is not None:  # a hook evaluates another model, in the mode and on the device of this one
            model.to(self.device)
            switch_mode(unwrap(model), self._model.training)
        self._model, self.wrapped = unwrap(model), model

    @property
    def optim(self) -> Optim | Optims | None:
        """Return the optim, or all of them if they have names; a step with a parameter named `optim` gets it."""
        return self.optims.given

    @optim.setter
    def optim(self, given: Any) -> None:
        self.use_optims(given)

    def use_optims(self, given: Any) -> None:
        """Set the optims of the run. This must happen before it starts."""
        self._refuse_while_running("optim", "change its optimizer in place: runner.optim.optimizer.param_groups")
        self.optims = Optims.of(given)

    def _refuse_while_running(self, what: str, instead: str) -> None:
        if self.running == "train":
            raise HookError(
                f"runner.{what} cannot be replaced during runner.train(), because the loop and the checkpoints would "
                f"use different ones; {instead}, or set it before the run"
            )

    # -- the session

    @property
    def steps_are_custom(self) -> bool:
        """Return whether code of the user may call the optimizers itself."""
        return self.train_loop.updates_itself

    @property
    def seed_of_process(self) -> int:
        """Return the seed of this process's random numbers."""
        return self.seed + self.strategy.rank

    @contextmanager
    def own_generators(self) -> Iterator[None]:
        """Restore the random generators of the caller at the end. A later session continues with those of the run."""
        given = rng.state()
        if self.saving.started and self._generators is not None:
            rng.restore(self._generators)
        try:
            yield
        finally:
            self._generators = rng.state()
            rng.restore(given)

    def begin_session(self, verb: Verb) -> None:
        """Seed everything, and get the model and the optims ready."""
        if verb == "train":
            self.span = Span()
        self.strategy.start(self.requests, self.device)
        if not self.saving.started:
            rng.seed_everything(self.seed_of_process)
        self.share_data()
        self.wrapped = self.strategy.prepare(
            self.wrapped, [optim.optimizer for optim in self.optims.values()], self.device
        )
        if not self.has_training:
            return
        loop = self.train_loop
        unit: When = "epoch" if loop.by_epoch else "iter"
        self.optims.attach(
            *(self.plan, self.precision, self.device, unit, self.batches_left),
            *(self.strategy, self.wrapped, self.agree_on_skip),
        )
        if verb == "train":
            self.optims.start_schedules(loop)
        self.call_step = partial(loop.step, optim=self.optims.given) if loop.updates_itself else loop.step
        self.update = None if loop.updates_itself or len(self.optims) != 1 else self.optims.sole.update
        self.wraps_forward = self.precision != "fp32" or (self.update is not None and self.strategy.syncs_in_forward)
        if verb == "train":
            self._note_what_is_asked()

    def _note_what_is_asked(self) -> None:
        """Remember what this run was asked to do. A second training of this runner goes on with what the first did."""
        now = facts.asked(self)
        if self.saving.started and self.asked:
            changeable = ("max_epochs", "max_iters", "hooks", "parts")
            now = {**self.asked, **{key: now[key] for key in changeable}}
        self.asked = now

    def share_data(self) -> None:
        """Let each loop read only this process's share of its data. Doing it twice is harmless."""
        for loop in (*self.val_loops.values(), *self.test_loops.values()):
            loop.dataloader = self.strategy.share(loop.dataloader, pad=False)
        if self.has_training:
            self.train_loop.dataloader = self.strategy.share(self.train_loop.dataloader, pad=True)

    def before_training(self) -> None:
        """Record the config, and run the checks that are possible before the first step."""
        if self.span is not None:
            self.span.start_at(self.position)
        self.losses_since = self.position.iter
        if self.config is not None:
            self.writers.write_config("config", self.config, self.iter)
        comparison.compare_processes(self)
        self._parameters_checked = False
        self.reported_untrained = set()
        check_model_state(self.model)
        optim_checks.check_optims(self)
        schedule_checks.check_schedules(self)
        reachability.report_unreached(self)
        preflight.check_evaluations(self)
        self.acceleration.choose_threads(self)
        hook_states.check_states_can_be_saved(self.plan)

    def prepare_to_load(self, checkpoint: dict[str, Any]) -> None:
        """Compute with as many threads as the run of the checkpoint, if this was left to hookline."""
        meta = checkpoint.get("meta")
        self.acceleration.continue_from(meta if isinstance(meta, Mapping) else {})

    def older_facts(self, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rates of the checkpoint of an earlier hookline, and the lengths of its schedules."""
        return resuming.older_facts(self, checkpoint)

    def would_end(self, epoch: int, iteration: int) -> bool:
        """Return whether training is over at this position."""
        return self.train_loop.is_over(Position(epoch, iteration))

    def before_loading(self, found: Resumption, checkpoint: Mapping[str, Any]) -> None:
        """Refuse to resume if the user has to decide how a schedule continues."""
        decisions.refuse_undecided(self, found, checkpoint)
        self._originals = decisions.Originals.of(self)

    def after_loading(self, found: Resumption) -> None:
        """Use the values of the config where they win."""
        assert self._originals is not None, "the differences were decided before"
        decisions.apply(self, found, self._originals)
        self._originals = None

    def after_resume(self, checkpoint: Mapping[str, Any]) -> None:
        """Report the position, and take the seed of the checkpoint if the user did not choose one."""
        position = self.position
        where = f"epoch {position.epoch}, iteration {position.iter}"
        self.terminal.say(f"resumed from {escaped(self.saving.last_path)}: {where}")
        if not self.seed_is_chosen:
            self.seed = checkpoint["meta"].get("seed", self.seed)

    def clear_requests(self) -> None:
        """Forget the requests of an earlier run of this runner, and the gradients of unfinished windows."""
        super().clear_requests()
        self.eval_loop = None
        self.losses.clear()
        self.optims.reset()

    def write_description(self) -> None:
        """Write plan.txt and, if there is a config, config.yaml."""
        super().write_description()
        if self.config is not None:
            from hookline.common.yaml_file import dump

            write_text(self.work_dir / "config.yaml", origin.describe(self.config_file) + dump(self.config))

    def record_files(self) -> Iterable[str]:
        """Return the files of the writers."""
        return self.writers.files()

    def records_cut_back(self) -> Iterable[str]:
        """Return the files of writers that can remove later records."""
        return self.writers.files_cut_back()

    def open_records(self, resuming: bool) -> None:
        """Open the writers."""
        self.writers.begin(self.work_dir, self.experiment_name, resuming)

    def rejoin_records(self, state: Mapping[str, Any]) -> None:
        """Let writers continue the records of the run whose checkpoint is evaluated."""
        self.writers.rejoin(state)

    def close_records(self, outcome: Outcome) -> None:
        """Close the writers. If the run has failed, the last records have the numbers of this process alone."""
        self.strategy.settle(alone=True)
        self.writers.close(outcome)
        if self.running == "train" and self.span is not None:
            self.span.end()

    # -- the loop

    def run_training(self) -> None:
        """Train from the current position to the end."""
        loops.train(self)

    def evaluate(self, stage: Literal["val", "test"]) -> dict[str, Any]:
        """Validate or test, and return the metrics."""
        return loops.evaluate(self, stage)

    def in_mode(self, training: bool) -> AbstractContextManager[None]:
        """Return the context in which the model is trained or evaluated."""
        return in_mode(self.model, training)

    def drop_stale_gradients(self) -> None:
        """Drop gradients that user code left behind outside of an iteration."""
        self.optims.drop_stale_gradients(self.train_loop.updates_itself)

    @property
    def accumulating(self) -> bool:
        """Return whether an accumulation window is open, so that requests have to wait for its end."""
        return self.optims.accumulating

    def open_batches(self) -> Iterable[tuple[Any, bool]]:
        """Start the current pass over the training data, at the current batch."""
        self.requests.refuse_copy()
        loop, position = self.train_loop, self.position
        if not self._parameters_checked:
            optim_checks.check_parameters(self)
            self._parameters_checked = True
        resuming, state = self.saving.take_loader_state()
        self.batches = Batches(
            loop.dataloader,
            loop.limit_batches,
            position.epoch,
            position.batch,
            self.seed,
            state,
            resuming,
            on_failure=self.saving.end_if_signaled,
            waiting=self.plan.ledger.parts["data"],
            ends=self.strategy.any,
        )
        # Only a loader without a state of its own may be one batch ahead of the run.
        if self.acceleration.prefetch and self.device.type == "cuda" and as_resumable(loop.dataloader) is not None:
            return moved_ahead(self.batches, Transfer(self.device))
        return self.batches

    def weigh_last_batch(self, batch: Any) -> None:
        """Weigh the last batch of a pass, which may have fewer samples than the others, or a different number here."""
        assert self.batches is not None
        samples, usual = self.batches.samples(self.position.batch, batch)
        whole, usual_whole = self.strategy.total([samples, usual])
        if usual and self.weighs_samples and (samples, whole) != (usual, usual_whole):
            self.batch_weight = samples / usual
            self.optims.weigh(self.batch_weight, whole / usual_whole)

    def weigh_evenly(self) -> None:
        """Let the next batches count the same."""
        self.batch_weight = None
        self.optims.weigh()

    def batches_left(self) -> int | None:
        """Return the maximum size of an accumulation window that begins now; None if it is unknown."""
        # A step that calls `optim.update` itself decides how often it updates.
        return None if self.train_loop.updates_itself else self.batches_to_come()

    def batches_to_come(self) -> int | None:
        """Return the number of batches until windows have to end; None if it is unknown."""
        loop, position = self.train_loop, self.position
        length = loop.length if loop.by_epoch else loop.max_iters
        return None if length is None else length - (position.batch if loop.by_epoch else position.iter)

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context of a forward pass in the precision of the run. It can be entered once."""
        if self.precision == "fp32":
            return NOTHING
        return torch.autocast(self.device.type, getattr(torch, PRECISIONS[self.precision]))

    def syncing_forward(self) -> AbstractContextManager[Any]:
        """Return the context of a forward pass in which a strategy may decide whether to sync gradients."""
        if self.update is None or not self.strategy.syncs_in_forward:
            return NOTHING
        return self.optims.sole.syncing_forward()

    def agree_on_skip(self) -> None:
        """Skip the current batch if any process skips it."""
        reason = self.strategy.agree_on_first(self.requests.skip)
        if reason and not self.requests.skip:
            self.requests.ask_skip(reason)
            self.optims.skip()

    def clear_skip(self) -> None:
        """Clear a skip at the end of its iteration."""
        super().clear_skip()
        self.optims.clear_skip()

    @property
    def can_validate(self) -> bool:
        """Return whether there is a validation loop."""
        return bool(self.val_loops)

    def validate_if_due(self) -> bool:
        """Validate if it is due or was requested."""
        if not (self.val_loops and self.validation_due()):
            return False
        self.strategy.settle()
        self._before_validation = before_validation(self)
        self.requests.validate = False
        try:
            with self.plan.ledger.part("validation"):
                self.evaluate("val")
        except Interrupted:
            self._interrupted = True
            self.saving.end_if_signaled()
        finally:
            self._before_validation, self._interrupted, self._has_to_finish = None, False, False
        self.journal.note("validation")
        outside.answer(self, "validate")
        self.drop_stale_gradients()
        return True

    def leave_if_signaled(self) -> None:
        """Leave a validation after a signal to any process, if the state before it is saved or known.

        Looking at the requests also ends a forked copy of the loop.
        """
        if self.running == "train":
            self.strategy.agree_in_evaluation(self.requests)
        self._leave_if_possible()

    def leave_with_others(self) -> None:
        """Wait, after the last batch of an evaluation, until no process has more. A signal still ends it."""
        while self.running == "train" and self.strategy.agree_in_evaluation(self.requests, ended=True):
            self._leave_if_possible()
        self._leave_if_possible()

    def _leave_if_possible(self) -> None:
        if not self.requests.signal or self._has_to_finish:
            return
        if self.strategy.on_main(self.saving.is_saved_at_last):
            self.saving.end_if_signaled()
        elif not self.strategy.any(self._before_validation is None):
            raise Interrupted
        self._has_to_finish = True  # asking again would need an exchange, after a batch that not all processes have

    def rewind(self, states: dict[str, Any]) -> None:
        """Replace the states that an interrupted validation has changed."""
        if self._interrupted and self._before_validation is not None:
            self._before_validation.put_into(states)

    def while_accumulating(self) -> None:
        """Remember a validation that is due now, to be run at the end of the window."""
        if self.val_loops and self.validation_due():
            self.requests.validate = True

    def validation_due(self, position: Position | None = None) -> bool:
        """Return whether a validation must run before the next step, at this position or another one."""
        return self.requests.validate or self.train_loop.validation_due(position or self.position)

    # -- checkpoints

    def facts(self) -> dict[str, Any]:
        """Return the `meta` of a checkpoint."""
        position = self.position
        return {
            **self.more_facts(),
            **snapshot.environment(),
            "experiment_name": self.experiment_name,
            "seed": self.seed,
            "epoch": position.epoch,
            "iter": position.iter,
            "world_size": self.strategy.world_size,
            "device": self.device.type,
            "precision": self.precision,
            "accumulate": [optim.accumulate for optim in self.optims.values()],
            "batches": self.train_loop.length if self.has_training else None,
            "batch_size": self._samples_of_all(),
            "hooks": [entry.name for entry in self.plan],
            "optims": {name: optim.kinds for name, optim in self.optims.items()},
            "asked": self._asked_by_now(),
        }

    def _asked_by_now(self) -> dict[str, Any]:
        """Return what this run was asked to do, with the hooks that joined it since."""
        if not self.asked:
            return {}
        hooks = {entry.name: self.asked["hooks"].get(entry.name) for entry in self.plan}
        missing = {entry.name: facts.parameters_of(entry) for entry in self.plan if hooks[entry.name] is None}
        return {**self.asked, "hooks": {**hooks, **missing}}

    def _samples_of_all(self) -> int | None:
        """Return the number of samples of a full training batch in all processes together; None if it is unknown."""
        loader = as_resumable(self.train_loop.dataloader) if self.has_training else None
        return None if loader is None else loader.samples_of_all

    def more_facts(self) -> dict[str, Any]:
        """Return more facts for the `meta` of every checkpoint: tensors and plain data."""
        return {}

    def check_loss(self) -> None:
        """Raise a NumericsError if a loss since the last check is NaN or Inf."""
        check_losses(self, self.iter)

    def report_changes(self) -> None:
        """Warn about parameters that code of the user put into the model, and that no optimizer has."""
        optim_checks.report_untrained(self)

    def tensor_holders(self) -> Iterable[Any]:
        """Return the model and the optimizers."""
        return self.model, *(optim.optimizer for optim in self.optims.values())

    def weight_names(self) -> list[str]:
        """Return the names of the model's parameters."""
        return [name for name, _ in self.model.named_parameters()]

    def trained_names(self) -> Collection[str]:
        """Return the names of the parameters that require gradients and that an optimizer has."""
        held = {id(parameter) for optim in self.optims.values() for parameter in optim.parameters()}
        named = self.model.named_parameters(remove_duplicate=False)
        return {name for name, parameter in named if parameter.requires_grad and id(parameter) in held}

    def base_weights(self) -> Path | None:
        """Return the file of `load_from`: that of the config, if another checkpoint is loaded on top of it."""
        given = (self.config or {}).get("load_from") if not self.resume else self.load_from
        return Path(given) if given is not None and (self.resume or str(given) != str(self.load_from)) else None

    def checkpoint_name(self, request: SaveRequest) -> str:
        """Return `epoch_5.pth` or `iter_100.pth`, unless the request has its own name."""
        position = self.position
        if request.name is not None:
            return request.name(position)
        wanted = self.train_loop.by_epoch if request.by_epoch is None else request.by_epoch
        by_epoch = wanted and position.batch == 0  # inside an epoch, only the iteration is exact
        own = request.template if by_epoch == wanted else None
        template = own or ("epoch_{}.pth" if by_epoch else "iter_{}.pth")
        return request.prefix + template.format(position.epoch if by_epoch else position.iter)

    def load_weights(self, checkpoint: dict[str, Any], path: str) -> None:
        """Load the weights of a checkpoint that fit the model. For an evaluation, the whole model must fit."""
        if self.running != "train":
            compatibility.refuse_lacking(self.model, checkpoint["state_dict"], path)
        left_out = snapshot.load_fitting(self.model, checkpoint["state_dict"], path, self.strategy)
        self.terminal.say("\n  ".join([f"weights from {escaped(path)}" + (", except:" if left_out else ""), *left_out]))
        unused = [name for name in averages_in(checkpoint) if name not in {entry.name for entry in self.plan}]
        if unused:
            names = ", ".join(map(escaped, unused))
            self.terminal.say(f"the averaged weights in it ({names}) are not used without that hook")

    # -- for hooks

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time inside from the time of a training step, for hooks that run their own evaluation."""
        began = time.perf_counter()
        try:
            with self.plan.ledger.resting():
                yield
        finally:
            self.seconds_paused += time.perf_counter() - began
        if self.running == "train":
            self.drop_stale_gradients()

    def measure_data_wait(self) -> Cost:
        """Return the time that training has waited for the loader: a running total.

        All hooks share this total, so each hook remembers the value at which it began.
        """
        return self.plan.ledger.parts["data"]

    @contextmanager
    def more_eval_loops(self, val: Mapping[str, EvalLoop], test: Mapping[str, EvalLoop]) -> Iterator[None]:
        """Also evaluate these loops inside the context, for hooks that evaluate the same data in another way."""
        self.val_loops.update(val)
        self.test_loops.update(test)
        try:
            yield
        finally:
            for name in val:
                del self.val_loops[name]
            for name in test:
                del self.test_loops[name]

    @property
    def updates(self) -> int:
        """Return the number of finished optimizer steps."""
        return self.optims.updates

    @property
    def current_updates(self) -> int:
        """Return the finished steps of the optim that is stepping now."""
        return self.optims.current_updates

    @property
    def seconds_waited(self) -> float:
        """Return how long training has waited for work outside of steps: saves, and evaluations of hooks."""
        return self.saving.seconds + self.seconds_paused

    def shorten(self, batches: int) -> None:
        """Limit every loop to this many batches, and training to one epoch; for a dry run.

        Each loop remembers its whole length (`planned`), for schedules and for what the run never reaches.
        """
        self.train_loop.shorten(batches)
        for loop in (*self.val_loops.values(), *self.test_loops.values()):
            loop.shorten(batches)
