"""EMAHook: validates and tests with an average of the weights."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from hookline.common import averaging
from hookline.common.averaging import WeightAverage
from hookline.common.checks import check_int, check_number
from hookline.errors import ConfigError, StorageError, did_you_mean
from hookline.plan.milestones import Milestone
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from torch import Tensor

    from hookline.engine.loop_specs import EvalLoop
    from hookline.runner.runner import Runner

NAMES = ("ExponentialMovingAverage", "StochasticWeightAverage", "MomentumAnnealingEMA")

# The prefix of the metrics of the raw weights.
RAW = "raw"


class EMAHook(Hook):
    """Keeps an average of the weights, and validates and tests with it.

    The model has the averaged weights only during validation and testing. Training is bit-identical to training without
    this hook, and the model ends with its raw weights.

    The average includes every optimizer step, except steps that were skipped. It starts with the weights after the
    first step. With several optims, it is updated once per iteration, at its end, if any of them stepped.

    A checkpoint has the raw weights in `state_dict`, and the averaged weights in the state of this hook
    (`checkpoint["hooks"]["EMAHook"]["averaged"]`, a state dict of the model). `val()` and `test()` of such a checkpoint
    use the averaged weights. Training with `load_from` starts a new average. With several EMAHooks, the last one in the
    plan is evaluated.

    Cost: a second copy of the parameters in memory. Each optimizer step walks over the modules and runs one
    multi-tensor operation, without waiting for the device.

    Example:
        from hookline.hooks import EMAHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[EMAHook(momentum=0.01)]).train()

    YAML:
        custom_hooks:
          - {type: EMAHook, momentum: 0.001}

    Args:
        ema_type: The kind of average: a name, or a subclass of `hookline.averaging.WeightAverage`.
        momentum: The weight of each new step: e = (1 - momentum) e + momentum x.
        gamma: For MomentumAnnealingEMA. Its momentum is gamma / (gamma + steps), but never below `momentum`.
        interval: Average the first optimizer step and every `interval`-th step after it.
        begin_iter: The first iteration to average. Until then, the average is the weights themselves.
        begin_epoch: The first epoch to average. Set this or `begin_iter`, not both.
        update_buffers: Also average floating-point buffers. Integer buffers are copied. Otherwise, the model's current
            buffers are used.
        strict_load: Refuse a saved average that does not fit the model. Otherwise, load the entries that fit, and list
            the others.
        eval_both: Also evaluate the raw weights, as metrics `raw/<name>`, in a second pass over the data.
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
            raise ConfigError("EMAHook: set begin_iter or begin_epoch, not both")
        settings = {"momentum": momentum, "gamma": gamma, "interval": interval, "update_buffers": update_buffers}
        #: The average itself.
        self.average = _build_average(ema_type, settings)
        check_number("EMAHook: gamma", gamma, above=0)
        self.begin_iter = begin_iter
        self.begin_epoch = begin_epoch
        self.strict_load = strict_load
        self.eval_both = eval_both
        self._stepped = False
        # The state from a loaded checkpoint. Only the next evaluation uses it; training resets it.
        self._loaded: dict[str, Any] | None = None

    # -- training

    def idle_points(self, runner: Runner) -> list[str]:
        """Return the points to skip: the iteration scope if there is one optim, the run scope without `eval_both`."""
        return ["around_train_iter"] * (len(runner.optims) == 1) + ["around_run"] * (not self.eval_both)

    def must_reach(self, runner: Runner) -> list[Milestone]:
        """Return the first iteration or epoch to average."""
        effect = "nothing is averaged"
        if self.begin_epoch:
            return [Milestone("begin_epoch", self.begin_epoch, self.begin_epoch, "epoch", effect)]
        return [Milestone("begin_iter", self.begin_iter, self.begin_iter, "iteration", effect)]

    def before_train(self, runner: Runner) -> None:
        """Follow the model to its device."""
        self._stepped, self._loaded = False, None  # a resume restores the state later; load_from does not
        self.average.refresh()

    def after_optimizer_step(self, runner: Runner) -> None:
        """Update the average. With several optims, wait for the others."""
        if any(optim.stepping for optim in runner.optims.values()):
            if len(runner.optims) == 1:
                self._update(runner)
            else:
                self._stepped = True

    def around_train_iter(self, runner: Runner) -> Iterator[None]:
        """With several optims, update the average after all of them are done."""
        yield
        if self._stepped:
            self._stepped = False
            self._update(runner)

    def _update(self, runner: Runner) -> None:
        if runner.iter + 1 >= self.begin_iter and runner.epoch + 1 >= self.begin_epoch:
            self.average.update(runner.model)

    # -- evaluation

    def around_run(self, runner: Runner) -> Iterator[None]:
        """With `eval_both`, add evaluation loops for the raw weights during the run."""
        if not self._is_measured(runner):
            raise ConfigError("EMAHook: only the last of several EMAHooks is evaluated, so set eval_both on that one")
        for loops in (runner.val_loops, runner.test_loops):
            if RAW in loops:
                raise ConfigError(
                    f"EMAHook: eval_both needs the name '{RAW}', but a dataset has it; rename the dataset"
                )
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
        """Swap the raw weights in, and restore the random state afterwards, so that training is not affected."""
        from hookline.common import rng  # it imports torch, and `hookline hooks` must not

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
            self._load_average(runner, state)
        if not self._is_measured(runner):
            yield
            return
        if runner.running != "train":
            runner.terminal.say(f"EMAHook: {runner.running} uses {self._describe_weights()}")
        with self.average.swapped(runner.model):
            yield

    def _describe_weights(self) -> str:
        steps = self.average.steps
        return f"the averaged weights of {steps} steps" if steps else "the raw weights, because there is no average"

    def _is_measured(self, runner: Runner) -> bool:
        return [entry.hook for entry in runner.plan if isinstance(entry.hook, EMAHook)][-1] is self

    # -- checkpoints

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Reset the average, and keep the one in the checkpoint until the model has its weights."""
        self.average.reset()
        hooks = checkpoint.get("hooks")
        self._loaded = hooks.get(runner.plan.name_of(self)) if isinstance(hooks, dict) else None

    def state_dict(self) -> dict[str, Any]:
        """Return `averaged`, a state dict of the model, and `steps`. Before the first step, return the raw weights."""
        return self.average.state_dict(self.runner.model) if self._host is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved average."""
        self._load_average(self.runner, state)

    def _load_average(self, runner: Runner, state: dict[str, Any]) -> None:
        try:
            left_out = self.average.load_state_dict(state, runner.model, strict=self.strict_load)
        except StorageError as error:
            raise StorageError(f"EMAHook: {error}\n  set strict_load: false to load only what fits") from None
        if left_out:
            text = "EMAHook: the saved average does not fit the model; mismatches start from the model's weights:"
            runner.terminal.say("\n  ".join([text, *left_out]))

    def averaged_state_dict(self) -> dict[str, Tensor]:
        """Return a copy of the averaged weights in the dtypes of the model, for its `load_state_dict`."""
        model = self.runner.model
        current = model.state_dict()
        averaged: dict[str, Tensor] = self.average.state_dict(model)["averaged"]
        return {name: value.to(current[name].dtype, copy=True) for name, value in averaged.items()}


def _build_average(ema_type: Any, settings: dict[str, Any]) -> WeightAverage:
    """Build the average with those settings that it accepts."""
    if isinstance(ema_type, str):
        if ema_type not in NAMES:
            raise ConfigError(f"EMAHook: unknown average '{ema_type}'; {did_you_mean(ema_type, NAMES)}")
        ema_type = getattr(averaging, ema_type)
    if not isinstance(ema_type, type) or not issubclass(ema_type, WeightAverage):
        raise ConfigError(f"EMAHook: ema_type must be a name or a subclass of WeightAverage, not {ema_type!r}")
    taken = inspect.signature(ema_type).parameters
    try:
        return ema_type(**{name: value for name, value in settings.items() if name in taken})
    except ConfigError as error:
        raise ConfigError(f"EMAHook: {error}") from None
