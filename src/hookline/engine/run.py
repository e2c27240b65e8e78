"""Run: a host with a training loop, evaluations and optims: what sessions, the loop and checkpoints use of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hookline.data.batches import DataAtStart
from hookline.engine import loops
from hookline.engine.evaluation import Evaluation
from hookline.engine.training import Training
from hookline.errors import ConfigError, HookError
from hookline.optim.optims import Optims
from hookline.state.host import Host

if TYPE_CHECKING:
    import torch
    from torch import nn

    from hookline.data.batches import Batches
    from hookline.engine.acceleration import Acceleration
    from hookline.engine.compute import Compute
    from hookline.engine.loop_specs import EvalLoop, TrainLoop
    from hookline.optim.optim import Optim
    from hookline.record.hub import MessageHub
    from hookline.run.position import Position, Span
    from hookline.run.save_request import SaveRequest
    from hookline.writers.router import Writers


class Run(Host):
    """A run with a training loop, evaluations and optims. `RunnerHost` also starts and resumes it."""

    seed: int
    #: The options that make steps faster.
    acceleration: Acceleration
    #: True if one batch of every evaluation loop is tried before training.
    trial_batch: bool
    #: False in a dialect: no evaluation is tried, because the original calls nothing of the user's before training, and
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
    #: True if a loop of the user may report the metrics of its own validations.
    validates_itself = False
    #: The training loop; None if the run has none.
    loop_given: TrainLoop | None

    #: The parameters of which a warning has said that no optimizer has them.
    reported: set[str]
    #: The classes of the objects that drive this run. A dialect may replace them.
    training_class: ClassVar[type[Training]] = Training
    evaluation_class: ClassVar[type[Evaluation]] = Evaluation
    #: What drives the evaluations of the current session, or else of the last one.
    evaluation: Evaluation
    _training: Training | None = None
    #: The data that training began with; None before it.
    data: DataAtStart | None = None
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
        self.optims = self.windows = Optims.of(given)

    def use_writers(self, writers: Writers) -> None:
        """Set the destinations of records. This must happen before the run starts."""
        self.writers = self.records = writers

    def _refuse_while_running(self, what: str, instead: str) -> None:
        if self.running == "train":
            raise HookError(
                f"runner.{what} cannot be replaced during runner.train(), because the loop and the checkpoints would "
                f"use different ones; {instead}, or set it before the run"
            )

    # -- loops and counters

    def replace_training(self, loop: TrainLoop) -> None:
        """Train with another loop from now on."""
        self.loop_given, self.data = loop, None
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
    def may_validate(self) -> bool:
        """Return whether there may be validations: by a loop, or by code of the user that reports its own."""
        return bool(self.val_loops) or self.validates_itself

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
        loop, at = self.loop_given, self.position
        length = loop.length if loop is not None and loop.by_epoch else None
        if loop is None or length is None:
            return None if loop is None else loop.total_iters
        # In a resumed run, earlier epochs may have had another number of batches.
        later = (loop.max_epochs or 0) - at.epoch - 1
        left_out = loop.left_out(at.epoch * length, (at.epoch + 1 + later) * length) if loop.skip.ranges else 0
        return at.iter + (max((1 + later) * length - left_out - at.batch, 0) if later >= 0 else 0)

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

    def more_facts(self) -> dict[str, Any]:
        """Return more facts for the `meta` of every checkpoint: tensors and plain data."""
        return {}

    @property
    def steps_are_custom(self) -> bool:
        """Return whether code of the user may call the optimizers itself."""
        return self.train_loop.updates_itself

    @property
    def seed_of_process(self) -> int:
        """Return the seed of this process's random numbers."""
        return self.seed + self.strategy.rank

    def begin_evaluations(self) -> None:
        """Create what drives the evaluations of this session."""
        is_due = self.train_loop.validation_due if self.has_training else _never
        self.evaluation = self.evaluation_class(self, self.compute, self.val_loops, self.test_loops, self.seed, is_due)

    def begin_training(self) -> None:
        """Create what drives the training of this session."""
        self._training = self.training_class(
            self, self.train_loop, self.optims, self.compute, self.seed, self.acceleration.prefetch
        )
        self.evaluation.after_validation = self._training.after_validation
        if self.data is None:
            self.data = DataAtStart(self.train_loop.dataloader, self.train_loop.length)
        self.loading.replaced_data = self.replaced_data

    def replaced_data(self) -> dict[str, int]:
        """Return what was replaced in the training data since the run began."""
        return {} if self.data is None else self.data.replaced_by(self.train_loop.dataloader)

    def share_data(self) -> None:
        """Let each loop read only this process's share of its data. Doing it twice is harmless."""
        for loop in (*self.val_loops.values(), *self.test_loops.values()):
            loop.dataloader = self.strategy.share(loop.dataloader, pad=False)
        if self.has_training:
            self.train_loop.dataloader = self.strategy.share(self.train_loop.dataloader, pad=True)

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
    def batches(self) -> Batches | None:
        """Return the pass over the training data that is running."""
        return None if self._training is None else self._training.batches

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context of a forward pass in the precision of the run. It can be entered once."""
        return self.compute.autocast()

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
        """Return how long training has waited for work outside steps: saves, and evaluations of hooks."""
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
