"""EvaluateHook: a function of the user's, every so often, and the best of what it gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from hookline.common.checks import check_choice, check_int
from hookline.common.modes import in_mode
from hookline.common.monitor import AUTO, BestSoFar, Rule
from hookline.common.monitor import monitor as watch
from hookline.common.numbers import as_number
from hookline.errors import ConfigError, did_you_mean
from hookline.hooks.best import in_file_name, remove_others
from hookline.plan.functions import asked_for, label_of, name_of
from hookline.plan.hook import Hook

if TYPE_CHECKING:
    from hookline.engine.runner import Runner


class EvaluateHook(Hook):
    """Runs a function of yours every so often and at the end of training, and keeps the best.

    The function takes the model, or `(model, runner)`, or the runner if that is what its first parameter is called, or
    nothing. It is called in evaluation mode, without gradients, and the random numbers that it draws do not change the
    training. It gives a number, a mapping of names to numbers, or None where there is nothing to record. A single
    number goes by the name of the function.

    Results are recorded as `eval/<name>`: in the hub, as a record of their own for the writers, and as a line. The best
    of each result whose name tells whether more or less is better is the fact `best_eval/<name>` of the hub, and where
    it came is `best_eval/<name>_at`. Two of these hooks in one run need different prefixes.

    With `save_best`, the best of one result is kept as a checkpoint, `best_eval_<name>_epoch_3.pth`. If it cannot be
    written, that is said, and the best before it counts on. An evaluation that falls inside an accumulation window
    waits for its end, as saves do, so that what is saved is what was measured.

    The function sees the raw weights. Where an EMAHook averages, `with averaging.average.swapped(model):` in the
    function gives it the averaged ones. Lower precision is the function's choice, too: `with runner.autocast():`.

    Cost: the time of the function, which is left out of step times and ETA; between two of them, by iterations, a
    comparison an iteration, by epochs nothing.

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
        function: What to run; in YAML `module:name`.
        interval: Every how many epochs or iterations.
        by_epoch: Count epochs or iterations; as the training loop does, unless given.
        at_begin: Also before the first step.
        at_end: Also after the last iteration, unless that was just done.
        prefix: What stands before the names of the results.
        save_best: The name of a result whose best checkpoint is kept, or `auto`: the first.
        rule: Whether `greater` or `less` is better, for the result of `save_best`, or else for all; told by the name,
            unless given.
    """

    priority = 55
    role = "observer"
    draws_random_numbers = False  # the function may, and is isolated by itself: the points are called every iteration
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
                raise ConfigError(f"EvaluateHook: {name} must be a name, not {value!r}")
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
        #: The best of each result so far.
        self.best: dict[str, BestSoFar] = {}
        #: After how many iterations the newest evaluation was, and the one whose checkpoint is kept.
        self.evaluated_at = -1
        self.saved_at = -1
        # The result whose best is saved, once that is known; and whether an evaluation waits for the end of a window.
        self._saved = save_best if save_best != AUTO else None
        self._owed = False

    # -- when

    def how_often(self) -> dict[str, int]:
        """By iterations it looks at each: one that is due may have to wait."""
        return {"after_train_epoch": self.interval}

    def idle_points(self, runner: Runner) -> list[str]:
        """Epochs or iterations, whichever is not counted."""
        if not runner.has_training:
            return []
        return ["after_train_iter" if self._counts_epochs(runner) else "after_train_epoch"]

    def _counts_epochs(self, runner: Runner) -> bool:
        return runner.train_loop.counts_epochs(self.by_epoch, "EvaluateHook")

    def before_train(self, runner: Runner) -> None:
        """Refuse what cannot be; evaluate a run that begins here."""
        prefixes = [entry.hook.prefix for entry in runner.plan if isinstance(entry.hook, EvaluateHook)]
        if prefixes.count(self.prefix) > 1:
            raise ConfigError(f"EvaluateHook: two of them have the prefix '{self.prefix}'; give each its own")
        if self.at_begin and runner.iter == 0 and runner.saving.resumed_at < 0 and self.evaluated_at < 0:
            self._evaluate(runner, 0, 0 if self._counts_epochs(runner) else None)

    def after_train_iter(self, runner: Runner) -> None:
        """By iterations; inside an accumulation window it has to wait."""
        if self._counts_epochs(runner):
            return
        self._owed = self._owed or self.every_n_train_iters(runner, self.interval)
        if self._owed and not runner.accumulating:
            self._evaluate(runner, runner.iter + 1)

    def after_train_epoch(self, runner: Runner) -> None:
        """By epochs."""
        if self._counts_epochs(runner):
            self._evaluate(runner, runner.iter, runner.epoch + 1)

    def after_train(self, runner: Runner) -> None:
        """At the end, also of a training that was stopped."""
        if self.at_end and self.evaluated_at != runner.iter:
            between = self._counts_epochs(runner) and runner.position.batch == 0
            self._evaluate(runner, runner.iter, runner.epoch if between else None)

    # -- what

    def _evaluate(self, runner: Runner, step: int, epoch: int | None = None) -> None:
        """After so many iterations, and, at the end of one, so many epochs."""
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
        texts = [f"{name} {as_number(value)}{' (best)' * (name in better)}" for name, value in results.items()]
        runner.terminal.say("  ".join([place, self.prefix, *texts]))

    def _measure(self, runner: Runner) -> Any:
        from hookline.common import rng  # they need torch, and a hook's parameters are read without

        with runner.paused(), rng.preserved(), in_mode(runner.model, training=False):
            return self._call(model=runner.model, runner=runner)

    # -- the best of it

    def _compare(self, runner: Runner, results: Mapping[str, float], place: str, step: int) -> set[str]:
        """The names of those that are the best so far."""
        if self.save_best == AUTO and self._saved is None:
            self._saved = next(iter(results))
            self.best.pop(self._saved, None)
        if self._saved is not None and self._saved not in results:
            raise ConfigError(
                f"EvaluateHook: save_best: {label_of(self.function)} gave no '{self._saved}'; "
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
            self._tell(runner, best)
            if name == self._saved:
                self.saved_at = step
                runner.request_save(**self._options(runner, best, before))
        return better

    def _best_of(self, name: str) -> BestSoFar | None:
        """The best of a result; None where nothing tells whether more or less of it is better."""
        if name not in self.best:
            rule = self.rule if self.save_best is None or name == self._saved else None
            try:
                self.best[name] = BestSoFar(watch(name, rule, who="EvaluateHook: save_best"))
            except ConfigError:
                if name == self._saved:
                    raise
                return None
        return self.best[name]

    def _tell(self, runner: Runner, best: BestSoFar) -> None:
        name = f"best_{self.prefix}/{best.monitor.name}"
        runner.hub.update_info(name, best.value)
        runner.hub.update_info(f"{name}_at", best.at)

    def _options(self, runner: Runner, best: BestSoFar, before: tuple[float | None, str, int]) -> dict[str, Any]:
        """A checkpoint of the best that was found now; when it is there, those of earlier ones go."""
        prefix = f"best_{in_file_name(self.prefix)}_{in_file_name(best.monitor.name)}_"
        names = re.compile(re.escape(prefix) + r"(epoch|iter)_[0-9]+\.pth")
        return {
            "by_epoch": self._counts_epochs(runner),
            "prefix": prefix,
            "needed": False,
            "done": partial(remove_others, names),
            "failed": partial(self._take_back, best, before),
        }

    def _take_back(self, best: BestSoFar, before: tuple[float | None, str, int]) -> None:
        """It could not be written: the best before it, whose file is still there, counts again."""
        best.value, best.at, self.saved_at = before
        self._tell(self.runner, best)

    # -- across a resume

    def state_dict(self) -> dict[str, Any]:
        """When the newest evaluation was, and the bests."""
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
        """Go on comparing; the best of a result that was not saved until now begins anew."""
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
                    self._save_if_missing(best)

    def _save_if_missing(self, best: BestSoFar) -> None:
        """A kill between two saves of one moment leaves the first, which counts on the second: it is made up for."""
        runner = self.runner
        options = self._options(runner, best, (None, "", -1))
        if self.saved_at == runner.iter and not runner.checkpoint_path(**options).exists():
            runner.request_save(**options)


def results_of(function: Any, given: Any) -> dict[str, float]:
    """What a function that evaluates has given, as numbers by name; None is none at all."""
    from hookline.engine.metrics import plain  # it needs torch, and a hook's parameters are read without

    if given is None:
        return {}
    named = given if isinstance(given, Mapping) else {name_of(function) or "value": given}
    results = {}
    for name, found in named.items():
        value = plain(found)
        if not isinstance(name, str) or not name or isinstance(value, bool) or not isinstance(value, (int, float)):
            shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
            what = f"{type(found).__name__}{shape}" + (f" as {name!r}" if named is given else "")
            raise ConfigError(
                f"EvaluateHook: {label_of(function)} gave {what}; it has to give a number, a mapping of names to "
                "numbers, or None"
            )
        results[name] = float(value)
    return results
