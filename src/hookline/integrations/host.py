"""The run behind a guest: a Runner whose loop belongs to another engine.

It seeds nothing, moves and wraps no model, shares no data, sets no modes, and changes no gradients. The engine does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from torch import distributed

from hookline.common import rng
from hookline.data.weights import guess, own_length
from hookline.engine.evaluation import Evaluation
from hookline.engine.loop_specs import EvalLoop, TrainLoop
from hookline.engine.loops import handle_requests
from hookline.engine.training import Training
from hookline.errors import HookError
from hookline.integrations.own_validation import OwnValidation
from hookline.optim.optim import Optim
from hookline.run.position import Span
from hookline.runner.host import RunnerHost
from hookline.runner.runner import Runner
from hookline.runner.stages import RunStages
from hookline.strategies import Single, Strategy
from hookline.strategies.processes import Processes

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from hookline.state.host import Verb

#: The parts of a checkpoint that belong to the engine, so a guest does not save them.
OF_THE_ENGINE = ("param_schedulers", "scaler", "loader", "rng")


def samples_of(batch: Any) -> int:
    """Return how much a batch counts in means: its length, or the first dimension of its last tensor."""
    return own_length(batch) or guess(batch) or 1


# -- data and processes, which the engine owns


class EngineData:
    """Stands for a loader of the engine: it has a length, if that is known, and no batches."""

    def __init__(self, length: int | None) -> None:
        self._length = length

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError("the engine does not know the number of batches")
        return self._length

    def __iter__(self) -> NoReturn:
        raise HookError("the engine reads the batches; a hook sees the current one as runner.data_batch")


class EngineValidation(EvalLoop):
    """Stands for the validation of the engine, which computes the metrics."""

    may_be_tried = False


class EnginePass:
    """Stands for a pass over the engine's data."""

    reads_ahead = False

    def __init__(self, length: int | None) -> None:
        self.length = length

    def is_padding(self, number: int) -> bool:
        """Return False: the engine decides which batches there are."""
        return False


class Prepared(Strategy):
    """Leaves the model and the data as the engine has prepared them."""

    def prepare(self, model: nn.Module, optimizers: Iterable[Optimizer], device: torch.device) -> nn.Module:
        """Return the model as it is."""
        return model

    def share(self, loader: Iterable[Any], pad: bool) -> Iterable[Any]:
        """Return the loader as it is."""
        return loader

    @contextmanager
    def evaluating(self, wrapped: nn.Module) -> Iterator[nn.Module]:
        """Yield the model as it is."""
        yield wrapped


class OneProcess(Prepared, Single):
    """One process."""


class SeveralProcesses(Prepared, Processes):
    """The processes that the engine has started. Records and requests are exchanged in groups of hookline's own."""

    name = "engine"

    def __init__(self) -> None:
        super().__init__()
        self.group.rank, self.group.world_size = distributed.get_rank(), distributed.get_world_size()


def find_strategy() -> Strategy:
    """Return the strategy for the processes that the engine has started."""
    several = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    return SeveralProcesses() if several else OneProcess()


# -- the update, the loop and the validation, which the engine makes


class GuestOptim(Optim):
    """An optimizer of the engine. Its steps are followed, and its gradients stay as they are.

    Args:
        optimizer: The optimizer that the engine steps.
        accumulate: The number of batches per step.
        tells_begin: True if the engine tells when a step begins, so that `begin_step` is called directly.
    """

    def __init__(self, optimizer: Optimizer, accumulate: int, tells_begin: bool) -> None:
        super().__init__(optimizer, accumulate=accumulate)
        self._tells_begin = tells_begin

    def drop_stale_gradients(self) -> None:
        """Leave the gradients alone."""

    def _zero_window(self) -> None:
        """Leave the gradients alone."""

    @contextmanager
    def following_steps(self) -> Iterator[None]:
        """Call the points around a step inside the context. An engine may skip a step that it has begun."""
        if not self._tells_begin:
            with super().following_steps():
                yield
            return
        # The engine computes the gradients inside `optimizer.step(closure)`, so torch's own hook would be too early.
        handle = self.optimizer.register_step_post_hook(lambda *_: self.end_step())
        try:
            with self._scope:
                yield
            if self.updating:
                self.updating, self.micro = False, 0
        finally:
            handle.remove()


class GuestTraining(Training):
    """Follows the training of an engine."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._needs_transfer = False
        self._idle_since = 0.0

    def begin_pass(self) -> Iterable[tuple[Any, bool]]:
        """Begin a pass over the data of the engine."""
        self.requests.refuse_copy()
        check, self.before_first_pass = self.before_first_pass, None
        if check is not None:
            check()
        self.current.begin_pass()
        self.ends_window, self._next_look = False, 0
        self.batches = batches = EnginePass(self.loop.length)  # type: ignore[assignment]  # all that is asked of it
        self.wait_for_data()
        return self.weighing.begin_pass(batches, ())  # type: ignore[arg-type]

    def wait_for_data(self) -> None:
        """Note that from here on, the engine waits for the next batch."""
        self._idle_since = time.perf_counter()

    def begin_iteration(self, batch: Any, last: bool) -> Any:
        """Begin an iteration with a batch of the engine."""
        self.ledger.parts["data"].add(time.perf_counter() - self._idle_since)
        super().begin_iteration(batch, last)
        if not self.position.usual_weight:
            self.weighing.now()
        return batch

    def end_iteration(self, loss: Tensor | None = None) -> bool:
        """Count the iteration, and handle requests. The loss is not checked: the engine may allow NaN."""
        ended = super().end_iteration(None)
        self.wait_for_data()
        return ended

    def check_result(self) -> None:
        """Leave the result to the engine, which may allow NaN."""

    def see(self, outputs: dict[str, Any]) -> None:
        """Set what hooks see as the outputs of this iteration."""
        self._outputs = dict(outputs)

    def in_mode(self) -> AbstractContextManager[None]:
        """Leave the modes of the model alone."""
        return nullcontext()


class GuestEvaluation(Evaluation):
    """Follows the validations of an engine. A guest starts none."""

    def __init__(self, host: Any, *arguments: Any) -> None:
        super().__init__(host, *arguments)
        self._validation = OwnValidation(host)

    def due(self, position: Any = None) -> bool:
        """Return False: the engine decides when to validate."""
        return False

    @property
    def possible(self) -> bool:
        """Return False: a request cannot start a validation."""
        return False

    def in_mode(self) -> AbstractContextManager[None]:
        """Leave the modes of the model alone."""
        return nullcontext()

    @contextmanager
    def validating(self) -> Iterator[dict[str, Any]]:
        """Surround a validation of the engine with its points. The body fills in the metrics of the main process."""
        host, metrics = self.host, dict[str, Any]()
        self.running = self.loops["val"][""]
        with self._validation.running():
            yield metrics
            self._validation.take(host.strategy.on_main(lambda: metrics))
        if host.requests.pending:
            handle_requests(host)

    @contextmanager
    def iteration(self, batch_idx: int, batch: Any, outputs: list[Any]) -> Iterator[None]:
        """Surround a batch of a validation with its points. The body appends the outputs."""
        plan, self.current.batch = self.host.plan, batch
        with plan.around("val_iter", batch_idx, batch):
            plan.before_val_iter(batch_idx, batch)
            with plan.around("forward", batch):
                yield
            plan.after_val_iter(batch_idx, batch, outputs[0])


class GuestStages(RunStages):
    """The stages of a session of a guest."""

    @contextmanager
    def begun(self, verb: Verb) -> Iterator[None]:
        """Get the run ready. The random generators belong to the engine."""
        self.prepare(verb)
        yield

    def prepare(self, verb: Verb) -> None:
        """Get the drivers ready that follow the engine."""
        run = self._run
        run.span = Span()
        run.strategy.start(run.requests, run.device)
        run.begin_evaluations()
        run.begin_training()
        self._contents.note_what_is_asked()


class GuestHost(RunnerHost):
    """Runs inside an engine."""

    catches_signals = False
    training_class = GuestTraining
    evaluation_class = GuestEvaluation
    training: GuestTraining
    evaluation: GuestEvaluation


class GuestRunner(Runner):
    """A Runner inside another engine. Hooks see it as any other Runner, but may not change training.

    Args:
        engine: The name of the engine, for messages.
        model: The model that the engine trains.
        optims: The optimizers that the engine steps.
        loop: The data and the length of training.
        validates: True if the engine validates.
        options: Options of a Runner.
    """

    _host_class: ClassVar[type[RunnerHost] | None] = GuestHost
    _host: GuestHost

    def __init__(
        self, engine: str, model: nn.Module, optims: Any, loop: TrainLoop, validates: bool, **options: Any
    ) -> None:
        parameter = next(iter(model.parameters()), None)
        with rng.preserved():
            super().__init__(
                model,
                train=loop,
                val=EngineValidation(EngineData(None)) if validates else None,
                optim=optims,
                device="cpu" if parameter is None else parameter.device,
                strategy=find_strategy(),
                trial_batch=False,
                prefetch=False,
                **options,
            )
        self.engine = engine
        host = self._host
        contents: Any = host.contents
        for name in OF_THE_ENGINE:
            contents.parts.pop(name)
        contents.is_resumable = False
        host.stages = GuestStages(host, contents)

    def skip_step(self, reason: str) -> None:
        """Refuse to skip a batch: the engine makes the steps."""
        raise HookError(f"a hook has skipped a batch ({reason}), but {self.engine} makes the steps; use runner.stop")

    def request_val(self) -> None:
        """Refuse a validation: the engine decides when to validate."""
        raise HookError(f"a hook has requested a validation, but {self.engine} decides when to validate")

    def train(self) -> NoReturn:
        """Refuse to train: the engine does."""
        raise HookError(f"{self.engine} trains this model; call its own method")

    def check_loss(self, since: int | None = None) -> None:
        """Leave a loss of NaN to the engine, which may allow it. CheckInvalidLossHook ends the run."""
