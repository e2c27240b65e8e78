"""LoggerHook: what is due out of the hub, to the writers and the terminal."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.checks import check_int
from hookline.errors import ConfigError
from hookline.hook import Hook
from hookline.logs import LogCopies
from hookline.numerics import refuse_infinite_loss
from hookline.terminal import as_number, as_time

if TYPE_CHECKING:
    from hookline.runner import Runner
    from hookline.stages import TrainLoop


# What is noisy from step to step, and shown as a mean; anything else (a learning rate) is shown as it is now.
AVERAGED = re.compile("loss|time|grad_norm")


class LoggerHook(Hook):
    """Hands what is due to the writers and the terminal.

    Every `interval` iterations, the numbers under `train/` go out, losses, times and gradient norms as the mean since
    the last record; after a validation or test, its metrics. A record's step is the number of finished iterations.

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
          logger: {interval: 20, out_dir: all_logs}

    Args:
        interval: Every how many iterations of an epoch.
        ignore_last: Leave the last iterations of an epoch out when they are fewer than `interval`; an epoch that is
            shorter than `interval` is logged at its end all the same.
        interval_exp_name: Every how many iterations the log says the name of the experiment.
        out_dir: Where to copy the logs when the run ends.
        out_suffix: What the names of the files to copy end with.
        keep_local: Keep the logs in the run's folder, too; otherwise they are fetched back when the run goes on.
        log_metric_by_epoch: The step of a validation's or test's record is the number of finished epochs.
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
        out_suffix: tuple[str, ...] = (".json", ".jsonl", ".log", ".txt", ".yaml"),
        keep_local: bool = True,
        log_metric_by_epoch: bool = False,
    ) -> None:
        check_int("LoggerHook: interval", interval, least=1)
        check_int("LoggerHook: interval_exp_name", interval_exp_name, least=1)
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
        self._logged_at = 0

    @property
    def log_copies(self) -> LogCopies | None:
        """What the session does with the logs before it opens and after it has closed them."""
        return LogCopies(Path(self.out_dir), self.out_suffix, self.keep_local) if self.out_dir is not None else None

    def after_train_iter(self, runner: Runner, batch_idx: int) -> None:
        """A record, when it is due."""
        done = batch_idx + 1 if runner.train_loop.by_epoch else runner.position.iter + 1
        if done % self.interval == 0 or (runner.ends_window and (not self.ignore_last or done < self.interval)):
            self._log_training(runner, done)

    def _log_training(self, runner: Runner, done: int) -> None:
        hub = runner.hub
        refuse_infinite_loss(runner, runner.iter + 1)
        means = {
            name: history.mean(count) if AVERAGED.search(name) else history.current()
            for name, (history, count) in hub.take("train/").items()
        }
        runner.writers.write_scalars({"epoch": runner.epoch + 1, **means}, runner.iter + 1)
        loop, eta = runner.train_loop, hub.info.get("eta")
        runner.terminal.detail(partial(line_of, loop, runner.epoch, done, shown(means, runner), eta))
        if (runner.iter + 1) // self.interval_exp_name > self._logged_at // self.interval_exp_name:
            runner.terminal.detail(partial("experiment {}".format, runner.experiment_name))
        self._logged_at = runner.iter + 1

    def after_train(self, runner: Runner) -> None:
        """What is not recorded at every iteration, and came after the last record, is not lost."""
        rare = runner.hub.take_rare("train/", runner.iter - self._logged_at)
        if rare:
            found = {name: history.current() for name, history in rare.items()}
            counted = runner.epoch + (runner.position.batch > 0)
            runner.writers.write_scalars({"epoch": counted, **found}, runner.iter)

    def state_dict(self) -> dict[str, Any]:
        """After how many iterations the last record was."""
        return {"logged_at": self._logged_at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._logged_at = state["logged_at"]

    def after_val_epoch(self, runner: Runner) -> None:
        """The record of a validation."""
        self._log_evaluation(runner, "val")

    def after_test_epoch(self, runner: Runner) -> None:
        """The record of a test."""
        self._log_evaluation(runner, "test")

    def _log_evaluation(self, runner: Runner, stage: str) -> None:
        found = {name: history.current() for name, (history, _) in runner.hub.take(f"{stage}/").items()}
        step = runner.epoch if self.log_metric_by_epoch else runner.iter
        counted = runner.epoch + (runner.position.batch > 0)  # by iterations, a pass may be under way
        runner.writers.write_scalars({"epoch": counted, **found}, step)
        place = f"epoch {runner.epoch}" if runner.has_training and runner.train_loop.by_epoch else f"iter {runner.iter}"
        runner.terminal.say(f"{place}  {stage}  {numbers(found, f'{stage}/')}")


def shown(means: dict[str, float], runner: Runner) -> dict[str, float]:
    """What fits in a line: details further down (`train/grad_norm/<module>`) are for the writers."""
    stems = {"train", *(f"train/{name}" for name in runner.named_optims)}
    return {name: value for name, value in means.items() if name.rpartition("/")[0] in stems}


def numbers(found: dict[str, float], prefix: str) -> str:
    """Names and values for a line; times stand elsewhere in it."""
    cut = len(prefix)
    return "  ".join([f"{name[cut:]} {as_number(value)}" for name, value in found.items() if name[-4:] != "time"])


def line_of(loop: TrainLoop, epoch: int, done: int, means: dict[str, float], eta: float | None) -> str:
    """The line of a record: where it is, the numbers, how long a step takes, how long the run still will."""
    place = f"epoch {epoch + 1}/{loop.max_epochs}  iter {done}" if loop.by_epoch else f"iter {done}"
    total = loop.length if loop.by_epoch else loop.max_iters
    parts = [place if total is None else f"{place}/{total}", numbers(means, "train/")]
    if "train/time" in means:
        parts.append(f"{means['train/time'] * 1e3:.1f} ms (data {means.get('train/data_time', 0) * 1e3:.1f})")
    if eta is not None:
        parts.append(f"eta {as_time(eta)}")
    return "  ".join(parts)
