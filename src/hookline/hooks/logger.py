"""LoggerHook: what is due out of the hub, to the writers and the terminal."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common.checks import check_int
from hookline.common.numbers import as_number, as_time
from hookline.engine.numerics import check_loss_is_finite
from hookline.errors import ConfigError, did_you_mean
from hookline.hooks.timer import TIMES
from hookline.plan.hook import Hook, every
from hookline.record.smoothing import Smoothing, rules_of
from hookline.rundir.log_copies import LogCopies

if TYPE_CHECKING:
    from hookline.engine.loop_specs import TrainLoop
    from hookline.engine.runner import Runner


log = logging.getLogger("hookline")


class LoggerHook(Hook):
    """Hands what is due to the writers and the terminal.

    Every `interval` iterations, what the hub has of training goes out (all but `val/` and `test/`): losses, times and
    gradient norms as the mean since the last record, anything else as it is now; after a validation or test, its
    metrics. A record's step is the number of finished iterations.

    `smoothing` says otherwise for names that match a pattern, the first match first: `method` is mean, min, max or
    current, `window_size` the newest so many values, `epoch` or `global`; without it, those since the last record. With
    a `log_name`, the number is one more, under that name.

    With `out_dir`, the logs of the run are copied to a folder of the run's name in there when the run ends, however it
    ends. The table that the command line shows after that is only in the run's own folder.

    Cost: nothing between two records; then one wait for the device, and what the writers take.

    Example:
        from hookline.testing import MemoryWriter, toy_runner

        writer = MemoryWriter()
        toy_runner(default_hooks={"logger": {"interval": 2}}, writers=[writer]).train()
        print(writer.records[0])

    YAML:
        default_hooks:
          logger:
            interval: 20
            out_dir: all_logs
            smoothing: [{match: train/loss, window_size: epoch, log_name: train/loss_of_epoch}]

    Args:
        interval: Every how many iterations of an epoch.
        ignore_last: Leave the last iterations of an epoch out when they are fewer than `interval`; an epoch that is
            shorter than `interval` is logged at its end all the same.
        interval_exp_name: Every how many iterations the log says the name of the experiment.
        out_dir: Where to copy the logs when the run ends.
        out_suffix: What the names of the files to copy end with.
        keep_local: Keep the logs in the run's folder, too; otherwise they are fetched back when the run goes on.
        log_metric_by_epoch: The step of a validation's or test's record is the number of finished epochs.
        smoothing: How names that match are shown: a list of {match, method, window_size, log_name}.
        num_digits: How many digits behind the point a line has.
    """

    priority = "BELOW_NORMAL"
    role = "observer"
    draws_random_numbers = False
    runs_after = ("RuntimeInfoHook", "IterTimerHook")

    def __init__(
        self,
        interval: int = 10,
        ignore_last: bool = True,
        interval_exp_name: int = 1000,
        out_dir: str | None = None,
        out_suffix: tuple[str, ...] = (".csv", ".json", ".jsonl", ".log", ".txt", ".yaml"),
        keep_local: bool = True,
        log_metric_by_epoch: bool = False,
        smoothing: Sequence[Mapping[str, Any]] = (),
        num_digits: int = 4,
    ) -> None:
        check_int("LoggerHook: interval", interval, least=1)
        check_int("LoggerHook: interval_exp_name", interval_exp_name, least=1)
        check_int("LoggerHook: num_digits", num_digits, least=0)
        if isinstance(out_suffix, str) or not all(isinstance(suffix, str) for suffix in out_suffix):
            raise ConfigError(f"LoggerHook: out_suffix is a list of endings like '.log', not {out_suffix!r}")
        if not keep_local and out_dir is None:
            raise ConfigError("LoggerHook: keep_local=False needs an out_dir, or the logs would be nowhere")
        self.interval = interval
        self.ignore_last = ignore_last
        self.interval_exp_name = interval_exp_name
        self.out_dir = out_dir
        self.out_suffix = tuple(out_suffix)
        self.keep_local = keep_local
        self.log_metric_by_epoch = log_metric_by_epoch
        self.smoothing = Smoothing(rules_of(smoothing, "LoggerHook"))
        self._rules_given = len(smoothing)
        self.num_digits = num_digits
        self._logged_at = 0

    @property
    def log_copies(self) -> LogCopies | None:
        """What the session does with the logs before it opens and after it has closed them."""
        return LogCopies(Path(self.out_dir), self.out_suffix, self.keep_local) if self.out_dir is not None else None

    def idle_points(self, runner: Runner) -> list[str]:
        """The end of an epoch, unless a window ends with it."""
        return ["around_train_iter"] * (not self.smoothing.by_epoch)

    def before_train(self, runner: Runner) -> None:
        """The hub has to keep what the windows need."""
        # What an epoch has left over, with ignore_last, is part of the first record of the next.
        runner.hub.keep(max(2 * self.interval, self.smoothing.longest))

    def after_train_iter(self, runner: Runner, batch_idx: int) -> None:
        """A record, when it is due."""
        done = batch_idx + 1 if runner.train_loop.by_epoch else runner.position.iter + 1
        if done % self.interval == 0 or (runner.ends_window and (not self.ignore_last or done < self.interval)):
            self._log_training(runner, done)

    def _log_training(self, runner: Runner, done: int) -> None:
        hub = runner.hub
        hub.read("train/")
        check_loss_is_finite(runner, runner.iter + 1)
        means = self.smoothing.take(hub, "train/")
        runner.writers.write_scalars({"epoch": runner.epoch + 1, **means}, runner.iter + 1)
        loop, eta = runner.train_loop, hub.info.get("eta")
        line = partial(line_of, loop, runner.epoch, done, shown(means, runner), eta, self.num_digits)
        runner.terminal.detail(line)
        if (runner.iter + 1) // self.interval_exp_name > self._logged_at // self.interval_exp_name:
            runner.terminal.detail(partial("experiment {}".format, runner.experiment_name))
        self._logged_at = runner.iter + 1

    def after_train(self, runner: Runner) -> None:
        """What is not recorded at every iteration, and came after the last record, is not lost."""
        rare = self.smoothing.take(runner.hub, "train/", fewer_than=runner.iter - self._logged_at)
        if rare:
            runner.writers.write_scalars({"epoch": passes(runner), **rare}, runner.iter)
        for number, rule in self.smoothing.unused() if self._rules_given else ():
            hint = did_you_mean(rule.match, runner.hub.scalars)
            log.warning(
                "LoggerHook: smoothing[%d] is for '%s', and nothing was recorded so; %s", number, rule.match, hint
            )

    def state_dict(self) -> dict[str, Any]:
        """After how many iterations the last record was, and what long windows have added up."""
        return {"logged_at": self._logged_at, **self.smoothing.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._logged_at = state["logged_at"]
        self.smoothing.load_state_dict(state)

    @every("1ep")
    def around_train_iter(self, runner: Runner) -> Iterator[None]:
        """Behind the last record of an epoch, what is shown for an epoch begins anew."""
        yield
        self.smoothing.end_epoch(runner.hub, "train/")

    def after_val_epoch(self, runner: Runner) -> None:
        """The record of a validation."""
        self._log_evaluation(runner, "val")

    def after_test_epoch(self, runner: Runner) -> None:
        """The record of a test."""
        self._log_evaluation(runner, "test")

    def _log_evaluation(self, runner: Runner, stage: str) -> None:
        runner.hub.read(f"{stage}/")
        found = self.smoothing.take(runner.hub, f"{stage}/")
        self.smoothing.end_epoch(runner.hub, f"{stage}/")
        step = runner.epoch if self.log_metric_by_epoch else runner.iter
        runner.writers.write_scalars({"epoch": passes(runner), **found}, step)
        place = f"epoch {runner.epoch}" if runner.has_training and runner.train_loop.by_epoch else f"iter {runner.iter}"
        runner.terminal.say(f"{place}  {stage}  {numbers(found, f'{stage}/', self.num_digits)}")


def passes(runner: Runner) -> int:
    """The number of the pass over the data that training is in, or has just finished."""
    return runner.epoch + (runner.position.batch > 0)


def shown(means: dict[str, float], runner: Runner) -> dict[str, float]:
    """What fits in a line: details further down (`train/grad_norm/<module>`) are for the writers."""
    stems = {"train", *(f"train/{name}" for name in runner.optims)}
    return {name: value for name, value in means.items() if name.rpartition("/")[0] in stems}


def numbers(found: dict[str, float], prefix: str, digits: int = 4) -> str:
    """Names and values for a line; times stand elsewhere in it."""
    named = [(name.removeprefix(prefix), value) for name, value in found.items()]
    return "  ".join([f"{name} {as_number(value, digits)}" for name, value in named if name not in TIMES])


def line_of(loop: TrainLoop, epoch: int, done: int, means: dict[str, float], eta: float | None, digits: int = 4) -> str:
    """The line of a record: where it is, the numbers, how long a step takes, how long the run still will."""
    place = f"epoch {epoch + 1}/{loop.max_epochs}  iter {done}" if loop.by_epoch else f"iter {done}"
    total = loop.length if loop.by_epoch else loop.max_iters
    parts = [place if total is None else f"{place}/{total}", numbers(means, "train/", digits)]
    if "train/time" in means:
        parts.append(f"{means['train/time'] * 1e3:.1f} ms (data {means.get('train/data_time', 0) * 1e3:.1f})")
    if eta is not None:
        parts.append(f"eta {as_time(eta)}")
    return "  ".join(parts)
