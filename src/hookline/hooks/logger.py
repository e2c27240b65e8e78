"""LoggerHook: what is due out of the hub, to the writers and the terminal."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from hookline.checks import check_int
from hookline.hook import Hook
from hookline.numerics import refuse_infinite_loss
from hookline.terminal import as_number, as_time

if TYPE_CHECKING:
    from hookline.runner import Runner
    from hookline.stages import TrainLoop


# What is noisy from step to step, and shown as a mean; anything else (a learning rate) is shown as it is now.
AVERAGED = re.compile("loss|time|grad_norm")


class LoggerHook(Hook):
    """Every `interval` iterations, hands the numbers under `train/` to the writers, losses, times and gradient
    norms as the mean since the last record, and a line to the terminal; after a validation or test, its metrics.

    A record's step is the number of finished iterations.

    Cost: nothing between two records; then one wait for the device, and what the writers take.

    Args:
        interval: Every how many iterations of an epoch.
        ignore_last: Leave the last iterations of an epoch out when they are fewer than `interval`; an epoch that is
            shorter than `interval` is logged at its end all the same.
    """

    priority = "BELOW_NORMAL"
    role = "observer"
    draws_random_numbers = False
    runs_after = ("RuntimeInfoHook", "IterTimerHook")

    def __init__(self, interval: int = 10, ignore_last: bool = True) -> None:
        check_int("LoggerHook: interval", interval, least=1)
        self.interval = interval
        self.ignore_last = ignore_last

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
        runner.terminal.detail(partial(line_of, loop, runner.epoch, done, means, eta))

    def after_val_epoch(self, runner: Runner) -> None:
        """The record of a validation."""
        self._log_evaluation(runner, "val")

    def after_test_epoch(self, runner: Runner) -> None:
        """The record of a test."""
        self._log_evaluation(runner, "test")

    def _log_evaluation(self, runner: Runner, stage: str) -> None:
        found = {name: history.current() for name, (history, _) in runner.hub.take(f"{stage}/").items()}
        runner.writers.write_scalars({"epoch": runner.epoch, **found}, runner.iter)
        place = f"epoch {runner.epoch}" if runner.has_training and runner.train_loop.by_epoch else f"iter {runner.iter}"
        runner.terminal.say(f"{place}  {stage}  {numbers(found, f'{stage}/')}")


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
