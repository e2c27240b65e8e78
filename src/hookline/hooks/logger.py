"""LoggerHook: sends records from the hub to the writers and the terminal."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common.checks import check_int
from hookline.common.escape import escaped
from hookline.common.numbers import as_number, as_time
from hookline.errors import ConfigError, did_you_mean
from hookline.hooks.epoch_loss import LossOfEpoch
from hookline.plan.hook import every
from hookline.record.hub import LAST, TIMES
from hookline.record.smoothing import Smoothing, rules_of
from hookline.rundir.log_copies import LogCopies
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.runner.runner import Runner


log = logging.getLogger("hookline")

# The name under which processes average the loss of an epoch. It is not recorded.
EPOCH_LOSS = "train/loss of the epoch"


class LoggerHook(Hook):
    """Sends records of training, validation and test to the writers and the terminal.

    Every `interval` iterations, it sends everything in the hub except `val/` and `test/`. Losses, times and gradient
    norms are averaged since the last record. Everything else is the current value. After a validation or test, it sends
    the metrics. The step of a record is the number of finished iterations.

    `smoothing` changes this for names that match a pattern. The first match applies. `method` is mean, min, max or
    current. `window_size` is a number of newest values, `epoch` or `global`. Without it, the window is everything since
    the last record. With a `log_name`, the result is an additional number under that name.

    The line of a validation also shows the mean training loss since the last one. It is not recorded.

    Cost: nothing between two records. A record waits for the device once, and takes the time of the writers. So does
    the end of an epoch, without the writers.

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
        interval: Log every `interval` iterations of an epoch.
        ignore_last: Skip the last iterations of an epoch if there are fewer than `interval`. An epoch that is shorter
            than `interval` is still logged at its end.
        interval_exp_name: Log the name of the experiment every `interval_exp_name` iterations.
        out_dir: Copy the logs to `<out_dir>/<name of the run's folder>` when the run ends, for whatever reason.
        out_suffix: The suffixes of the files to copy.
        keep_local: Also keep the logs in the run's folder. Otherwise, they are moved, and copied back when the run is
            resumed.
        log_metric_by_epoch: Use the number of finished epochs as the step of validation and test records.
        smoothing: Rules for names that match a pattern: a list of {match, method, window_size, log_name}.
        num_digits: The number of digits after the decimal point in the terminal.
    """

    priority = "BELOW_NORMAL"
    role = "observer"
    draws_random_numbers = False
    exchanges = True
    state_per_rank = True
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
            raise ConfigError(f"LoggerHook: out_suffix must be a list of suffixes like '.log', not {out_suffix!r}")
        if not keep_local and out_dir is None:
            raise ConfigError("LoggerHook: keep_local=False needs an out_dir, because otherwise no logs would be kept")
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
        self._loss_of_epoch = LossOfEpoch()

    @property
    def log_copies(self) -> LogCopies | None:
        """Return what the session does with the logs before it opens them and after it closes them."""
        return LogCopies(Path(self.out_dir), self.out_suffix, self.keep_local) if self.out_dir is not None else None

    def idle_points(self, runner: Runner) -> list[str]:
        """Return the points to skip: the iteration scope, unless a smoothing window ends with the epoch.

        The end of the epoch, too, if no validation shows the loss of the epoch.
        """
        shows_loss = runner.has_training and runner.train_loop.by_epoch and runner.may_validate
        return ["around_train_iter"] * (not self.smoothing.by_epoch) + ["after_train_epoch"] * (not shows_loss)

    def before_train(self, runner: Runner) -> None:
        """Make the hub keep as many values as the windows need."""
        # With ignore_last, the last iterations of an epoch are part of the first record of the next one.
        runner.hub.keep(max(2 * self.interval, self.smoothing.longest))

    def after_train_iter(self, runner: Runner, batch_idx: int) -> None:
        """Write a record if it is due."""
        done = batch_idx + 1 if runner.train_loop.by_epoch else runner.position.iter + 1
        if done % self.interval == 0 or (runner.ends_window and (not self.ignore_last or done < self.interval)):
            self._log_training(runner, done)

    def _log_training(self, runner: Runner, done: int) -> None:
        hub, step = runner.hub, runner.position.iter + 1
        hub.read("train/")
        runner.check_loss(self._logged_at)
        self._loss_of_epoch.take(hub.history("train/loss"), logged=True)
        named = step // self.interval_exp_name > self._logged_at // self.interval_exp_name
        self._logged_at = step
        use = partial(self._write, runner, runner.position.epoch, step, done, hub.info.get("eta"), named)
        runner.strategy.average(self.smoothing.take(hub, "train/"), use, runner.writers.reserve)

    def _write(
        self, runner: Runner, epoch: int, step: int, done: int, eta: float | None, named: bool, means: dict[str, float]
    ) -> None:
        """Write a record, and show its line."""
        runner.writers.fill({"epoch": epoch + 1, **means}, step)
        runner.terminal.detail(partial(format_line, runner, epoch, done, means, eta, self.num_digits))
        runner.plan.ledger.refresh()
        if named:
            runner.terminal.detail(partial("experiment {}".format, runner.experiment_name))

    def after_train_epoch(self, runner: Runner) -> None:
        """Compute the mean loss of the epoch, which is shown beside the validation after it."""
        runner.hub.read("train/")
        self._loss_of_epoch.finish(runner.hub.history("train/loss"))

    def after_train(self, runner: Runner) -> None:
        """Set the last loss, and report rules for names that were never recorded."""
        loss = runner.hub.history("train/loss")
        last = {"loss": loss.mean(LAST)} if loss.values else {}
        runner.strategy.average(
            last, lambda means: runner.hub.update_info("last_loss", means.get("loss"), resumed=False)
        )
        runner.strategy.settle()
        for number, rule in self.smoothing.unused() if self._rules_given else ():
            hint = did_you_mean(rule.match, runner.hub.scalars)
            log.warning(
                "LoggerHook: smoothing[%d] matches '%s', but nothing was recorded under such a name; %s",
                *(number, rule.match, hint),
            )

    def after_run(self, runner: Runner) -> None:
        """Write values that are not recorded every iteration and came after the last record.

        The last checkpoint is already saved. A run that resumes from it removes this record, because it has more
        values for it.
        """
        if runner.running != "train":
            return
        since, loss = runner.iter - self._logged_at, runner.hub.history("train/loss")
        fewer_than = min(since, loss.fresh or since)  # a skipped iteration has no loss
        rare = self.smoothing.take(runner.hub, "train/", fewer_than=fewer_than or None)
        runner.strategy.average(rare, partial(self._write_rare, runner))
        runner.strategy.settle()

    def _write_rare(self, runner: Runner, rare: dict[str, float]) -> None:
        if rare:
            runner.writers.write_scalars({"epoch": current_pass(runner), **rare}, runner.iter)

    def state_dict(self) -> dict[str, Any]:
        """Return the iteration of the last record, and the sums of long windows."""
        return {
            "logged_at": self._logged_at,
            "loss_of_epoch": self._loss_of_epoch.state_dict(),
            **self.smoothing.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._logged_at = state["logged_at"]
        self._loss_of_epoch.load_state_dict(state.get("loss_of_epoch", {}))  # a checkpoint of version 0.1 has none
        self.smoothing.load_state_dict(state)

    @every("1ep")
    def around_train_iter(self, runner: Runner) -> Iterator[None]:
        """After the last record of an epoch, reset the windows that cover an epoch."""
        yield
        self.smoothing.end_epoch(runner.hub, "train/")

    def after_val_epoch(self, runner: Runner, metrics: dict[str, Any]) -> None:
        """Write the record of a validation."""
        self._log_evaluation(runner, "val", metrics)

    def after_test_epoch(self, runner: Runner, metrics: dict[str, Any]) -> None:
        """Write the record of a test."""
        self._log_evaluation(runner, "test", metrics)

    def _log_evaluation(self, runner: Runner, stage: str, metrics: dict[str, Any]) -> None:
        runner.hub.read(f"{stage}/")
        numbers = self.smoothing.take(runner.hub, f"{stage}/")
        self.smoothing.end_epoch(runner.hub, f"{stage}/")
        # Metrics are the same in all processes. Whatever else was recorded is averaged.
        others = {name: value for name, value in numbers.items() if name.removeprefix(f"{stage}/") not in metrics}
        trained = self._trained(runner) if stage == "val" else None
        runner.strategy.average(others if trained is None else {**others, EPOCH_LOSS: trained}, numbers.update)
        runner.strategy.settle()
        loss = numbers.pop(EPOCH_LOSS, None)
        step = runner.epoch if self.log_metric_by_epoch else runner.iter
        runner.writers.write_scalars({"epoch": current_pass(runner), **numbers}, step)
        by_epoch = runner.has_training and runner.train_loop.by_epoch
        place = f"epoch {current_pass(runner)}" if by_epoch else f"iter {runner.iter}"
        line = f"{place}  {stage}  {format_numbers(numbers, f'{stage}/', self.num_digits)}"
        runner.terminal.say(line if loss is None else f"{line}  train loss {as_number(float(loss), self.num_digits)}")

    def _trained(self, runner: Runner) -> float | None:
        """Return the mean training loss to show beside a validation; None if there is none.

        It is the mean of the epoch, or, in training by iterations, of all iterations since the last validation.
        """
        if runner.running != "train":
            return None
        if not runner.train_loop.by_epoch or runner.position.batch:
            runner.hub.read("train/")
            self._loss_of_epoch.finish(runner.hub.history("train/loss"), reset=not runner.train_loop.by_epoch)
        return self._loss_of_epoch.mean


def current_pass(runner: Runner) -> int:
    """Return the number of the pass over the data that training is in or has just finished."""
    return runner.epoch + (runner.position.batch > 0)


@lru_cache(maxsize=10_000)
def label_of(name: str, prefix: str) -> str:
    """Return a name for a line, without its prefix. It is empty for times, which have their own place in the line."""
    short = name.removeprefix(prefix)
    return "" if short in TIMES else escaped(short)


def format_numbers(numbers: dict[str, float], prefix: str, digits: int = 4) -> str:
    """Format names and values for a line."""
    labeled = [(label_of(name, prefix), value) for name, value in numbers.items()]
    return "  ".join([f"{label} {as_number(value, digits)}" for label, value in labeled if label])


def format_line(
    runner: Runner, epoch: int, done: int, means: dict[str, float], eta: float | None, digits: int = 4
) -> str:
    """Format the line of a record: the place in training, the numbers, the time per step, and the ETA.

    Details such as `train/grad_norm/<module>` are left out.
    """
    loop, stems = runner.train_loop, {"train", *(f"train/{name}" for name in runner.optims)}
    place = f"epoch {epoch + 1}/{loop.max_epochs}  iter {done}" if loop.by_epoch else f"iter {done}"
    total = loop.length_of_pass(epoch) if loop.by_epoch else loop.max_iters
    shown = {name: value for name, value in means.items() if name.rpartition("/")[0] in stems}
    parts = [place if total is None else f"{place}/{total}", format_numbers(shown, "train/", digits)]
    if "train/time" in means:
        parts.append(f"{means['train/time'] * 1e3:.1f} ms (data {means.get('train/data_time', 0) * 1e3:.1f})")
    if eta is not None:
        parts.append(f"eta {as_time(eta)}")
    return "  ".join(parts)
