"""EMAHook: validates and tests with an average of the weights."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from hookline.common import averaging
from hookline.common.averaging import WeightAverage
from hookline.common.checks import check_int, warn_if_never_reached
from hookline.errors import ConfigError, StorageError, did_you_mean
from hookline.plan.hook import Hook

if TYPE_CHECKING:
    from torch import Tensor

    from hookline.engine.loop_specs import EvalLoop
    from hookline.engine.runner import Runner

NAMES = ("ExponentialMovingAverage", "StochasticWeightAverage", "MomentumAnnealingEMA")

# What the metrics of the raw weights are called, before their names.
RAW = "raw"


class EMAHook(Hook):
    """Keeps an average of the weights, and validates and tests with it.

    The model has the averaged weights for validation and testing only. Training is the same to the bit as without it,
    and ends with the raw weights.

    The average takes in every optimizer step, the first as a copy; one that a gradient scaler or `skip_step` left out
    is no step. With several optims it takes in the weights once an iteration, at its end, if any of them stepped.

    A checkpoint holds both: the raw weights in `state_dict`, the averaged ones in the state of this hook
    (`checkpoint["hooks"]["EMAHook"]["averaged"]`, a state dict of the model). `val()` and `test()` of a checkpoint that
    has them use the averaged ones. Training with `load_from` averages from the loaded weights on. Of several EMAHooks,
    the last in the plan is the one that is measured.

    Cost: the memory of the parameters once more; a walk over the modules and one multi-tensor operation an optimizer
    step, without a wait for the device; nothing before the beginning. With fp16, a look at the scale every step.

    Example:
        from hookline.hooks import EMAHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[EMAHook(momentum=0.01)]).train()

    YAML:
        custom_hooks:
          - {type: EMAHook, momentum: 0.001}

    Args:
        ema_type: The kind of average, by name, or a subclass of `hookline.common.averaging.WeightAverage`.
        momentum: How much a step counts: e = (1 - momentum) e + momentum x.
        gamma: For MomentumAnnealingEMA, whose momentum is gamma / (gamma + steps), and never below `momentum`.
        interval: Average the first optimizer step and every so many after it.
        begin_iter: The first iteration to average; until then the average is the weights themselves. Or:
        begin_epoch: The first epoch to average.
        update_buffers: Average floating-point buffers too, and copy integer ones; otherwise, all buffers are the
            model's current ones.
        strict_load: Refuse a saved average that does not fit the model; otherwise what fits is taken, and the rest is
            said and starts from the model's weights.
        eval_both: Measure the raw weights too, as metrics `raw/<name>`: one more pass over the data of each evaluation.
    """

    priority = "NORMAL"

    def __init__(
        self,
        ema_type: Literal["ExponentialMovingAverage", "StochasticWeightAverage", "MomentumAnnealingEMA"]
        | type[Any] = "ExponentialMovingAverage",
        momentum: float = 0.0002,
        gamma: float = 100,
        interval: int = 1,
        begin_iter: int = 0,
        begin_epoch: int = 0,
        update_buffers: bool = False,
        strict_load: bool = True,
        eval_both: bool = False,
    ) -> None:
        for name, begin in (("begin_iter", begin_iter), ("begin_epoch", begin_epoch)):
            check_int(f"EMAHook: {name}", begin, least=0)
        if begin_iter and begin_epoch:
            raise ConfigError("EMAHook: give begin_iter or begin_epoch, not both")
        settings = {"momentum": momentum, "gamma": gamma, "interval": interval, "update_buffers": update_buffers}
        #: The average itself.
        self.average = _average(ema_type, settings)
        self.begin_iter = begin_iter
        self.begin_epoch = begin_epoch
        self.strict_load = strict_load
        self.eval_both = eval_both
        self._stepped = False
        # The state in a checkpoint that was loaded, until it is clear what for.
        self._loaded: dict[str, Any] | None = None

    # -- training

    def idle_points(self, runner: Runner) -> list[str]:
        """A sole optim is averaged as soon as it has stepped; only `eval_both` surrounds the run."""
        return ["around_train_iter"] * (len(runner.optims) == 1) + ["around_run"] * (not self.eval_both)

    def before_train(self, runner: Runner) -> None:
        """Warn of a beginning that never comes, and follow the model to its device."""
        warn_if_never_reached("EMAHook: begin_iter", self.begin_iter, runner.max_iters)
        warn_if_never_reached("EMAHook: begin_epoch", self.begin_epoch, runner.max_passes)
        self._stepped, self._loaded = False, None  # a resumed run gives the state back; load_from does not
        self.average.refresh()

    def after_optimizer_step(self, runner: Runner) -> None:
        """Average, or, with several optims, wait for the others."""
        if any(optim.stepping for optim in runner.optims.values()):
            if len(runner.optims) == 1:
                self._update(runner)
            else:
                self._stepped = True

    def around_train_iter(self, runner: Runner) -> Iterator[None]:
        """With several optims: average when all of them are done."""
        yield
        if self._stepped:
            self._stepped = False
            self._update(runner)

    def _update(self, runner: Runner) -> None:
        if runner.iter + 1 >= self.begin_iter and runner.epoch + 1 >= self.begin_epoch:
            self.average.update(runner.model)

    # -- evaluation

    def around_run(self, runner: Runner) -> Iterator[None]:
        """While the run lasts, the raw weights have evaluation loops of their own."""
        if not self._is_measured(runner):
            raise ConfigError("EMAHook: of several EMAHooks the last is measured, so eval_both belongs to that one")
        for loops in (runner.val_loops, runner.test_loops):
            if RAW in loops:
                raise ConfigError(f"EMAHook: eval_both needs the name '{RAW}', and a data set has it; rename that one")
        with runner.more_eval_loops(self._raw_loops(runner.val_loops), self._raw_loops(runner.test_loops)):
            yield

    def _raw_loops(self, loops: dict[str, EvalLoop]) -> dict[str, EvalLoop]:
        raw = {}
        for name, loop in loops.items():
            raw[f"{RAW}/{name}" if name else RAW] = twin = copy.copy(loop)
            twin.within = self._with_raw_weights
        return raw

    @contextmanager
    def _with_raw_weights(self) -> Iterator[None]:
        """The second pass draws no random numbers that training would miss."""
        from hookline.common import rng  # it needs torch, and a hook's parameters are read without

        with rng.preserved(), self.average.unswapped():
            yield

    def around_val(self, runner: Runner) -> Iterator[None]:
        """Validate with the averaged weights."""
        with self._averaged_weights(runner):
            yield

    def around_test(self, runner: Runner) -> Iterator[None]:
        """Test with the averaged weights."""
        with self._averaged_weights(runner):
            yield

    @contextmanager
    def _averaged_weights(self, runner: Runner) -> Iterator[None]:
        if self._loaded is not None:
            state, self._loaded = self._loaded, None
            self._take(runner, state)
        if not self._is_measured(runner):
            yield
            return
        if runner.running != "train":
            runner.terminal.say(f"EMAHook: {runner.running} with {self._which()}")
        with self.average.swapped(runner.model):
            yield

    def _which(self) -> str:
        steps = self.average.steps
        return f"the averaged weights of {steps} steps" if steps else "the weights as they are: they have no average"

    def _is_measured(self, runner: Runner) -> bool:
        return [entry.hook for entry in runner.plan if isinstance(entry.hook, EMAHook)][-1] is self

    # -- checkpoints

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Begin anew, and note the average in the checkpoint; the weights of the model come only after this."""
        self.average.reset()
        self._loaded = checkpoint.get("hooks", {}).get(runner.plan.name_of(self))

    def state_dict(self) -> dict[str, Any]:
        """`averaged`, a state dict of the model, and `steps`; before the beginning, the weights as they are."""
        return self.average.state_dict(self.runner.model) if self._host is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with a saved average."""
        self._take(self.runner, state)

    def _take(self, runner: Runner, state: dict[str, Any]) -> None:
        try:
            left_out = self.average.load_state_dict(state, runner.model, strict=self.strict_load)
        except StorageError as error:
            raise StorageError(f"EMAHook: {error}\nstrict_load: false takes what fits") from None
        if left_out:
            said = "EMAHook: the saved average does not fit the model; what is missing starts from the model's weights:"
            runner.terminal.say("\n  ".join([said, *left_out]))

    def averaged_state_dict(self) -> dict[str, Tensor]:
        """A copy of the averaged weights, in the types of the model, for its `load_state_dict`."""
        model = self.runner.model
        own = model.state_dict()
        averaged: dict[str, Tensor] = self.average.state_dict(model)["averaged"]
        return {name: value.to(own[name].dtype, copy=True) for name, value in averaged.items()}


def _average(ema_type: Any, settings: dict[str, Any]) -> WeightAverage:
    """The average that was asked for, with those of the settings that it takes."""
    if isinstance(ema_type, str):
        if ema_type not in NAMES:
            raise ConfigError(f"EMAHook: no average is called '{ema_type}'; {did_you_mean(ema_type, NAMES)}")
        ema_type = getattr(averaging, ema_type)
    if not isinstance(ema_type, type) or not issubclass(ema_type, WeightAverage):
        raise ConfigError(f"EMAHook: ema_type is a name or a subclass of WeightAverage, not {ema_type!r}")
    taken = inspect.signature(ema_type).parameters
    try:
        return ema_type(**{name: value for name, value in settings.items() if name in taken})
    except ConfigError as error:
        raise ConfigError(f"EMAHook: {error}") from None
