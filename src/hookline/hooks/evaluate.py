"""EvaluateHook: calls the user's evaluation function at an interval, and keeps the best result."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from hookline.checkpoint.names import safe_file_name
from hookline.common.checks import check_choice, check_int
from hookline.common.escape import escaped
from hookline.common.modes import in_mode
from hookline.common.monitor import AUTO, BestSoFar, Rule
from hookline.common.monitor import monitor as watch
from hookline.common.numbers import as_number
from hookline.errors import ConfigError, did_you_mean
from hookline.hooks.best import remove_others
from hookline.plan.functions import asked_for, label_of, name_of
from hookline.plan.milestones import Counted, Milestone
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.runner.runner import Runner


class EvaluateHook(Hook):
    """Calls your evaluation function at an interval and at the end, and keeps the best.

    The function takes the model, or `(model, runner)`, or only the runner if its first parameter has that name, or
    nothing. It is called in evaluation mode and without gradients. The random numbers that it draws do not change the
    training. It returns a number, a mapping of names to numbers, or None if there is nothing to record. A single number
    has the name of the function.

    Results are recorded as `eval/<name>`, in a separate record. The best value of a result is the fact
    `best_eval/<name>` in the hub, and where it was reached is `best_eval/<name>_at`. Two of these hooks in one run need
    different prefixes.

    With `save_best`, the best checkpoint for one result is kept as `best_eval_<name>_epoch_3.pth`.

    The function sees the raw weights. For the averaged weights of an EMAHook, use `with
    averaging.average.swapped(model):` in the function. For lower precision, use `with runner.autocast():`.

    Cost: the time of the function, which is excluded from step times and ETA. Between two evaluations, at most one
    comparison per iteration.

    Example:
        from hookline.hooks import EvaluateHook
        from hookline.testing import toy_runner


        def weight_norm(model):
            return sum(parameter.norm() for parameter in model.parameters())


        toy_runner(custom_hooks=[EvaluateHook(weight_norm, at_begin=True, save_best="auto", rule="less")]).train()

    YAML:
        custom_hooks:
          - {type: EvaluateHook, function: "mynet:holdout_accuracy", interval: 2, save_best: auto}

    Args:
        function: The function to call. In YAML, `module:name`.
        interval: Evaluate every `interval` epochs or iterations.
        by_epoch: Count epochs instead of iterations. By default, as the training loop does.
        at_begin: Also evaluate before the first step.
        at_end: Also evaluate after the last iteration, unless that has just been done.
        prefix: The prefix of the results' names.
        save_best: Keep the best checkpoint for this result; `auto` means the first result.
        rule: `greater` or `less`, whichever is better, for the result of `save_best`, or else for all results. By
            default, it is inferred from the result's name. A result without a rule has no best value.
    """

    priority = 55
    role = "observer"
    draws_random_numbers = False  # the function may; it alone is isolated, because the points run every iteration
    runs_after = ("IterTimerHook",)
    runs_before = ("LoggerHook",)

    def __init__(
        self,
        function: Callable[..., Any],
        interval: int = 1,
        by_epoch: bool | None = None,
        at_begin: bool = False,
        at_end: bool = True,
        prefix: str = "eval",
        save_best: str | None = None,
        rule: str | None = None,
    ) -> None:
        self._call = asked_for(function, ("model", "runner"), "EvaluateHook: function", first="model")
        check_int("EvaluateHook: interval", interval, least=1)
        for name, value in (("prefix", prefix), ("save_best", save_best)):
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigError(f"EvaluateHook: {name} must be a non-empty string, not {value!r}")
        if rule is not None:
            check_choice("EvaluateHook: rule", rule, get_args(Rule))
        if save_best not in (None, AUTO):
            watch(str(save_best), rule, who="EvaluateHook: save_best")
        self.function = function
        self.interval = interval
        self.by_epoch = by_epoch
        self.at_begin = at_begin
        self.at_end = at_end
        self.prefix = prefix
        self.save_best = save_best
        self.rule = rule
        #: The best value of each result so far.
        self.best: dict[str, BestSoFar] = {}
        #: The iteration of the last evaluation, and of the one whose checkpoint is kept.
        self.evaluated_at = -1
        self.saved_at = -1
        # The result whose best checkpoint is kept, once known, and whether an evaluation waits for a window to end.
        self._saved = save_best if save_best != AUTO else None
        self._owed = False

    # -- when

    def how_often(self) -> dict[str, int]:
        """Return the interval in epochs. Iterations are counted by the hook, because an evaluation may have to wait."""
        return {"after_train_epoch": self.interval}

    def must_reach(self, runner: Runner) -> list[Milestone]:
        """Return the first evaluation at the interval, unless there is one before or after training."""
        if self.at_begin or self.at_end:
            return []
        unit: Counted = "epoch" if self._counts_epochs(runner) else "iteration"
        return [Milestone("interval", self.interval, self.interval, unit, "the function is never called")]

    def idle_points(self, runner: Runner) -> list[str]:
        """Return the point to skip: the one of epochs or of iterations, whichever is not counted."""
        if not runner.has_training:
            return []
        return ["after_train_iter" if self._counts_epochs(runner) else "after_train_epoch"]

    def _counts_epochs(self, runner: Runner) -> bool:
        return runner.train_loop.counts_epochs(self.by_epoch, "EvaluateHook")

    def before_train(self, runner: Runner) -> None:
        """Refuse a prefix that is used twice. With `at_begin`, evaluate before a run that starts from scratch."""
        prefixes = [entry.hook.prefix for entry in runner.plan if isinstance(entry.hook, EvaluateHook)]
        if prefixes.count(self.prefix) > 1:
            raise ConfigError(f"EvaluateHook: two EvaluateHooks have the prefix '{self.prefix}'; give each its own")
        if self.at_begin and runner.iter == 0 and runner.resumed_at < 0 and self.evaluated_at < 0:
            self._evaluate(runner, 0, 0 if self._counts_epochs(runner) else None)

    def after_train_iter(self, runner: Runner) -> None:
        """When counting iterations, evaluate if it is due. Inside an accumulation window, wait for its end."""
        if self._counts_epochs(runner):
            return
        self._owed = self._owed or self.every_n_train_iters(runner, self.interval)
        if self._owed and not runner.accumulating:
            self._evaluate(runner, runner.iter + 1)

    def after_train_epoch(self, runner: Runner) -> None:
        """When counting epochs, evaluate."""
        if self._counts_epochs(runner):
            self._evaluate(runner, runner.iter, runner.epoch + 1)

    def after_train(self, runner: Runner) -> None:
        """Evaluate at the end of training, even after an early stop."""
        if self.at_end and self.evaluated_at != runner.iter:
            between = self._counts_epochs(runner) and runner.position.batch == 0
            self._evaluate(runner, runner.iter, runner.epoch if between else None)

    # -- one evaluation

    def _evaluate(self, runner: Runner, step: int, epoch: int | None = None) -> None:
        """Evaluate after `step` iterations. `epoch` is the number of finished epochs, if one has just ended."""
        results = results_of(self.function, self._measure(runner))
        self.evaluated_at, self._owed = step, False
        if not results:
            return
        under_way = step > runner.iter or runner.position.batch > 0
        counted = epoch if epoch is not None else runner.epoch + under_way
        place = f"epoch {epoch}" if epoch is not None else f"iteration {step}"
        for name, value in results.items():
            runner.hub.update_scalar(f"{self.prefix}/{name}", value)
            runner.hub.mark_written(f"{self.prefix}/{name}")
        runner.writers.write_scalars(
            {"epoch": counted, **{f"{self.prefix}/{name}": value for name, value in results.items()}}, step
        )
        better = self._compare(runner, results, place, step)
        texts = [f"{escaped(name)} {as_number(value)}{' (best)' * (name in better)}" for name, value in results.items()]
        runner.terminal.say("  ".join([place, escaped(self.prefix), *texts]))

    def _measure(self, runner: Runner) -> Any:
        from hookline.common import rng  # it imports torch, and `hookline hooks` must not

        evaluating = runner.strategy.evaluating(runner.wrapped)
        with runner.paused(), rng.preserved(), in_mode(runner.model, training=False), evaluating:
            return self._call(model=runner.model, runner=runner)

    # -- the best result

    def _compare(self, runner: Runner, results: Mapping[str, float], place: str, step: int) -> set[str]:
        """Compare the results with the best so far, and return the names of the better ones."""
        if self.save_best == AUTO and self._saved is None:
            self._saved = next(iter(results))
            self.best.pop(self._saved, None)
        if self._saved is not None and self._saved not in results:
            raise ConfigError(
                f"EvaluateHook: save_best: {label_of(self.function)} returned no '{self._saved}'; "
                f"{did_you_mean(self._saved, results)}"
            )
        better = set()
        for name, value in results.items():
            best = self._best_of(name)
            if best is None:
                continue
            before = (best.value, best.at, self.saved_at)
            if not best.take(value, place):
                continue
            better.add(name)
            self._publish_best(runner, best)
            if name == self._saved:
                self.saved_at = step
                runner.request_save(**self._save_options(runner, best, before))
        return better

    def _best_of(self, name: str) -> BestSoFar | None:
        """Return the best value of a result, or None if its rule is unknown."""
        if name not in self.best:
            rule = self.rule if self.save_best is None or name == self._saved else None
            try:
                self.best[name] = BestSoFar(watch(name, rule, who="EvaluateHook: save_best"))
            except ConfigError:
                if name == self._saved:
                    raise
                return None
        return self.best[name]

    def _publish_best(self, runner: Runner, best: BestSoFar) -> None:
        name = f"best_{self.prefix}/{best.monitor.name}"
        runner.hub.update_info(name, best.value)
        runner.hub.update_info(f"{name}_at", best.at)

    def _save_options(self, runner: Runner, best: BestSoFar, before: tuple[float | None, str, int]) -> dict[str, Any]:
        """Return the options to save the new best checkpoint. Once it is written, earlier ones are removed."""
        prefix = f"best_{safe_file_name(self.prefix)}_{safe_file_name(best.monitor.name)}_"
        names = re.compile(re.escape(prefix) + r"(epoch|iter)_[0-9]+\.(pth|dcp)")
        return {
            "by_epoch": self._counts_epochs(runner),
            "prefix": prefix,
            "needed": False,
            "together": True,
            "done": partial(remove_others, names),
            "failed": partial(self._undo_best, best, before),
        }

    def _undo_best(self, best: BestSoFar, before: tuple[float | None, str, int]) -> None:
        """Restore the previous best, whose file still exists, because the new one could not be written."""
        best.value, best.at, self.saved_at = before
        self._publish_best(self.runner, best)

    # -- across a resume

    def state_dict(self) -> dict[str, Any]:
        """Return when the last evaluation was, and the best values."""
        if self.evaluated_at < 0 and not self._owed:
            return {}
        return {
            "evaluated_at": self.evaluated_at,
            "owed": self._owed,
            "best": {name: best.state_dict() for name, best in self.best.items()},
            "saved": self._saved,
            "saved_at": self.saved_at,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        If `save_best` names another result now, its best value starts from scratch.
        """
        self.evaluated_at, self._owed = state["evaluated_at"], state["owed"]
        if self.save_best == AUTO:
            self._saved = state["saved"]
        for name, saved in state["best"].items():
            if name == self._saved and name != state["saved"]:
                continue
            best = self._best_of(name)
            if best is not None and best.load_state_dict(saved, "EvaluateHook") and name == self._saved:
                self.saved_at = state["saved_at"]
                if self._host is not None:
                    self._finish_save(best)

    def _finish_save(self, best: BestSoFar) -> None:
        """If the process was killed before it had saved the best, or had removed earlier ones, do this now."""
        runner = self.runner
        options = self._save_options(runner, best, (None, "", -1))
        path = runner.checkpoint_path(**options)
        if self.saved_at != runner.iter:
            return
        if runner.strategy.on_main(lambda: not path.exists()):
            runner.request_save(**options)
        elif runner.strategy.is_main:
            options["done"](path)


def results_of(function: Any, result: Any) -> dict[str, float]:
    """Check the result of an evaluation function, and return it as numbers by name. None becomes an empty dict."""
    from hookline.engine.metrics import plain  # it imports torch, and `hookline hooks` must not

    if result is None:
        return {}
    named = result if isinstance(result, Mapping) else {name_of(function) or "value": result}
    results = {}
    for name, entry in named.items():
        value = plain(entry)
        if not isinstance(name, str) or not name or isinstance(value, bool) or not isinstance(value, (int, float)):
            shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
            what = f"{type(entry).__name__}{shape}" + (f" as {name!r}" if named is result else "")
            raise ConfigError(
                f"EvaluateHook: {label_of(function)} returned {what}; it must return a number, a mapping of names "
                "to numbers, or None"
            )
        results[name] = float(value)
    return results
