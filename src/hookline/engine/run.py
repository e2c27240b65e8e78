"""Run: a host with a training loop, evaluations and optims: what sessions, the loop and checkpoints use of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hookline.common import rng
from hookline.common.files import write_text
from hookline.data.sources import as_resumable
from hookline.engine import loops
from hookline.engine.evaluation import Evaluation
from hookline.engine.numerics import check_losses
from hookline.engine.training import Training
from hookline.errors import ConfigError, HookError
from hookline.optim.optims import Optims
from hookline.optim.refusals import CLOSURE_HINT
from hookline.run.position import Span
from hookline.rundir import origin
from hookline.state import snapshot
from hookline.state.host import Host, Verb
from hookline.state.module_flags import GroupsPart, ModulesPart

if TYPE_CHECKING:
    import torch
    from torch import nn

    from hookline.data.batches import Batches
    from hookline.engine.acceleration import Acceleration
    from hookline.engine.compute import Compute
    from hookline.engine.loop_specs import EvalLoop, TrainLoop
    from hookline.optim.optim import Optim
    from hookline.record.hub import MessageHub
    from hookline.run.position import Position
    from hookline.run.requests import SaveRequest
    from hookline.writers.base import Outcome
    from hookline.writers.router import Writers


class Run(Host):
    """A run with a training loop, evaluations and optims. `RunnerHost` also starts and resumes it."""

    seed: int
    #: The options that make steps faster.
    acceleration: Acceleration
    #: True if one batch of every evaluation loop is tried before training.
    trial_batch: bool
    #: False in a dialect: an evaluation is tried only if a hook needs its metrics, a failure of it is a warning, and
    #: settings without an effect are not reported.
    strict_start: ClassVar[bool] = True
    #: What this run was asked to do, as plain data; see `hookline.resume.facts`. It is known once training begins.
    asked: dict[str, Any]
    #: False if hooks may make the updates, so that training needs no optim.
    needs_optim: ClassVar[bool] = True
    optims: Optims
    hub: MessageHub
    writers: Writers
    config: Mapping[str, Any] | None
    #: The file that the config was read from; None if it is only data.
    config_file: Path | None = None
    val_loops: dict[str, EvalLoop]
    test_loops: dict[str, EvalLoop]
    #: The training loop; None if the run has none.
    loop_given: TrainLoop | None

    #: The last suggestion in the message about a loss that is NaN or Inf.
    nan_hint: ClassVar[str] = "or skip such batches: CheckInvalidLossHook with policy: skip and interval: 1"

    #: The last suggestion in the message about an optimizer that needs a closure.
    closure_hint: ClassVar[str] = CLOSURE_HINT

    #: The parameters of which a warning has said that no optimizer has them.
    reported_untrained: set[str]
    #: The states of the random generators when the last session ended.
    _generators: dict[str, Any] | None = None
    #: The classes of the objects that drive this run. A dialect may replace them.
    training_class: ClassVar[type[Training]] = Training
    evaluation_class: ClassVar[type[Evaluation]] = Evaluation
    #: What drives the training and the evaluations of the current session, or else of the last one.
    _training: Training | None = None
    evaluation: Evaluation
    #: The model, its device and its precision.
    compute: Compute
    #: The last call of `train()`; None before the first.
    span: Span | None = None
    #: The seconds that training has waited for evaluations of hooks. They are not part of the time of a step.
    seconds_paused = 0.0

    # -- the parts that a run cannot change

    @property
    def model(self) -> nn.Module:
        """Return the user's module, without wrappers. It cannot be replaced while it is trained."""
        return self.compute.model

    @model.setter
    def model(self, model: nn.Module) -> None:
        self._refuse_while_running("model", "change it in place, for example with runner.model.load_state_dict(...)")
        self.compute.replace(model, running=self.running is not None)

    @property
    def device(self) -> torch.device:
        """Return the device of the run."""
        return self.compute.device

    @property
    def precision(self) -> str:
        """Return the precision of the run: `fp32`, `bf16` or `fp16`."""
        return self.compute.precision

    @property
    def wrapped(self) -> nn.Module:
        """Return the model as the step calls it."""
        return self.compute.wrapped

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

    # -- loops and counters

    def replace_training(self, loop: TrainLoop) -> None:
        """Train with another loop from now on."""
        self.loop_given = loop
        self.__dict__.pop("train_loop", None)

    @cached_property
    def train_loop(self) -> TrainLoop:
        """Return the training loop. It is an error if the run has none."""
        if self.loop_given is None:
            raise ConfigError("this run has no training; add it: Runner(..., train=TrainLoop(loader, ...))")
        return self.loop_given

    @property
    def has_training(self) -> bool:
        """Return whether there is a training loop."""
        return self.loop_given is not None

    @property
    def epoch(self) -> int:
        """Return the number of finished epochs."""
        return self.position.epoch

    @property
    def max_epochs(self) -> int | None:
        """Return the total number of epochs; None when training by iterations."""
        return self.loop_given.max_epochs if self.loop_given is not None else None

    @property
    def max_iters(self) -> int | None:
        """Return how many iterations there will be, if that is known."""
        return self.loop_given.total_iters if self.loop_given is not None else None

    @property
    def max_passes(self) -> int | None:
        """Return how many passes over the data there will be, also when training by iterations, if that is known."""
        return self.loop_given.total_passes if self.loop_given is not None else None

    @property
    def val_loop(self) -> Any:
        """Return the validation loop, or a dict of several; None if there is none."""
        return self.val_loops.get("", self.val_loops or None)

    @property
    def test_loop(self) -> Any:
        """Return the test loop, or a dict of several; None if there is none."""
        return self.test_loops.get("", self.test_loops or None)

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
        if self.loading.started and self._generators is not None:
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
        if not self.loading.started:
            rng.seed_everything(self.seed_of_process)
        self.share_data()
        self.compute.wrapped = self.strategy.prepare(
            self.wrapped, [optim.optimizer for optim in self.optims.values()], self.device
        )
        self.evaluation = self._new_evaluation()
        if not self.has_training:
            return
        self._training = self._new_training()
        if verb == "train":
            self.optims.start_schedules(self.train_loop)
            self.note_what_is_asked()
            if not self.loading.started:
                self._note_built()

    def _new_training(self) -> Training:
        training = self.training_class(
            self, self.train_loop, self.optims, self.compute, self.seed, self.acceleration.prefetch
        )
        training.nan_hint = self.nan_hint
        return training

    def _new_evaluation(self) -> Evaluation:
        is_due = self.train_loop.validation_due if self.has_training else _never
        return self.evaluation_class(self, self.compute, self.val_loops, self.test_loops, self.seed, is_due)

    def _note_built(self) -> None:
        """Remember the model and the optimizers as the script has built them, before hooks can change them."""
        for part in self.parts.values():
            if isinstance(part, (ModulesPart, GroupsPart)):
                part.note_built()

    def note_what_is_asked(self) -> None:
        """Remember what this run was asked to do."""

    def asked_by_now(self) -> dict[str, Any]:
        """Return what this run was asked to do, with the hooks that joined it since."""
        return self.asked

    def share_data(self) -> None:
        """Let each loop read only this process's share of its data. Doing it twice is harmless."""
        for loop in (*self.val_loops.values(), *self.test_loops.values()):
            loop.dataloader = self.strategy.share(loop.dataloader, pad=False)
        if self.has_training:
            self.train_loop.dataloader = self.strategy.share(self.train_loop.dataloader, pad=True)

    def clear_requests(self) -> None:
        """Forget the requests of an earlier run of this runner, and the gradients of unfinished windows."""
        super().clear_requests()
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

    @property
    def training(self) -> Training:
        """Return what drives the training of the current session, or else of the last one."""
        assert self._training is not None, "a session has begun"
        return self._training

    def run_training(self) -> None:
        """Train from the current position to the end."""
        loops.train(self.training)

    @property
    def accumulating(self) -> bool:
        """Return whether an accumulation window is open, so that requests have to wait for its end."""
        return self.optims.accumulating

    @property
    def batches(self) -> Batches | None:
        """Return the pass over the training data that is running."""
        return None if self._training is None else self._training.batches

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context of a forward pass in the precision of the run. It can be entered once."""
        return self.compute.autocast()

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
        if not self.evaluation.due():
            return False
        self.evaluation.validate()
        self.training.recheck()
        self.training.drop_stale_gradients()
        return True

    def rewind(self, states: dict[str, Any]) -> None:
        """Replace the states that an interrupted validation has changed."""
        self.evaluation.rewind(states)

    def while_accumulating(self) -> None:
        """Remember a validation that is due now, to be run at the end of the window."""
        if self.evaluation.due():
            self.requests.validate = True

    def validation_due(self, position: Position | None = None) -> bool:
        """Return whether a validation must run before the next step, at this position or another one."""
        return self.evaluation.due(position)

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
            "asked": self.asked_by_now(),
        }

    def _samples_of_all(self) -> int | None:
        """Return the number of samples of a full training batch in all processes together; None if it is unknown."""
        loader = as_resumable(self.train_loop.dataloader) if self.has_training else None
        return None if loader is None else loader.samples_of_all

    def more_facts(self) -> dict[str, Any]:
        """Return more facts for the `meta` of every checkpoint: tensors and plain data."""
        return {}

    def check_loss(self) -> None:
        """Raise a NumericsError if a loss since the last check is NaN or Inf."""
        check_losses(self.training, self.iter)

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


def _never(position: Position) -> bool:
    return False
