"""RankTimesHook: compares the work of the processes, and names the slowest."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from hookline.common.checks import check_int, check_number
from hookline.common.durations import clock
from hookline.plan.costs import Cost
from hookline.plan.milestones import Milestone
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.runner.runner import Runner

#: The parts of a step in which a process does not wait for others.
PARTS = ("data", "forward", "backward", "hooks")
#: The points of an iteration, whose hooks count: those within the forward pass, within the backward pass, and others.
IN_FORWARD = ("before_train_iter", "around_forward", "around_train_forward", "module_forward")
IN_BACKWARD = ("around_backward", "before_backward", "module_backward")
POINTS = ("train_iter", "forward", "backward", "optimizer_step")
#: The same process has to be the slowest in this many records in a row before a line is shown.
PERSISTENT = 3


class RankTimesHook(Hook):
    """Compares the work of the processes, and names the slowest.

    All processes wait for the slowest in every step, so the times of steps are the same everywhere. This hook measures
    the work of each process alone: waiting for data, the forward pass, the backward pass until its last gradient is
    there, and hooks. Every `interval` iterations, it records these scalars, in seconds:

    - `train/ranks/slowest` and `train/ranks/fastest`: the work of the slowest and of the fastest process;
    - `train/ranks/slowest_rank`: the number of the slowest process;
    - `train/ranks/data_spread`, and the same for `forward`, `backward` and `hooks`: the longest minus the shortest.

    If the same process is slower than the others by `factor` in three records in a row, a line says which, and why. On
    a GPU, only the time to start the work is measured. With sharded parameters, the backward pass is not measured.

    Cost: two comparisons per iteration. A measured iteration calls a function for each parameter, and the processes
    exchange five numbers.

    Example:
        from hookline.hooks import RankTimesHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[RankTimesHook(interval=10)]).train()

    YAML:
        custom_hooks:
          - {type: RankTimesHook, interval: 100}

    Args:
        interval: Measure one of `interval` iterations.
        factor: How many times as long as usual the work of a process has to take for a line on the screen.
    """

    priority = "VERY_HIGH"
    draws_random_numbers = False
    exchanges = True

    def __init__(self, interval: int = 50, factor: float = 1.2) -> None:
        check_int("RankTimesHook: interval", interval, least=1)
        check_number("RankTimesHook: factor", factor, least=1.0)
        self.interval = interval
        self.factor = factor
        self._active = False
        self._waiting = Cost()
        self._waited = 0.0
        self._done = 0
        self._handles: list[Any] = []
        self._began = self._called = self._last = self._synced = 0.0
        self._summed = self._summed_before = 0.0
        self._slowest: list[int] = []
        self._shown = -1

    def must_reach(self, runner: Runner) -> list[Milestone]:
        """Return the first iteration to measure. A single process is reported in `before_train`."""
        if runner.world_size == 1:
            return []
        return [Milestone("interval", self.interval, self.interval, "iteration", "nothing is measured")]

    def before_train(self, runner: Runner) -> None:
        """Begin to measure, if there is something to compare."""
        self._active = runner.world_size > 1
        self._slowest, self._shown, self._done = [], -1, 0
        if not self._active:
            runner.terminal.say("RankTimesHook: there is only one process, so there is nothing to compare")
            return
        self._waiting = runner.measure_data_wait()
        self._waited = self._waiting.seconds

    def before_train_iter(self, runner: Runner) -> None:
        """Measure this iteration, if it is due."""
        if not self._active or (runner.iter + 1) % self.interval:
            return
        self._stop_measuring()  # a skipped batch has left it running
        self._began = self._called = self._last = clock()
        self._synced = 0.0
        self._handles = [
            runner.wrapped.register_forward_pre_hook(self._note_call),
            runner.model.register_forward_pre_hook(self._note_begin),
            runner.model.register_forward_hook(self._note_forward),
        ]
        self._handles += [
            parameter.register_post_accumulate_grad_hook(self._note_gradient)  # type: ignore[no-untyped-call]  # torch's
            for parameter in runner.model.parameters()
            if parameter.requires_grad and parameter.is_leaf
        ]

    def _note_call(self, *_: Any) -> None:
        self._synced -= clock()

    def _note_begin(self, *_: Any) -> None:
        self._synced += clock()  # before the model is called, DDP may wait for other processes

    def _note_forward(self, *_: Any) -> None:
        self._called = self._last = clock()
        self._summed = self._summed_before = self.runner.strategy.seconds_summing

    def _note_gradient(self, _: Any) -> None:
        self._last, self._summed = clock(), self.runner.strategy.seconds_summing

    def after_train_iter(self, runner: Runner) -> None:
        """Compare the processes, if this iteration was measured."""
        self._done += 1
        if not self._handles:
            return
        self._stop_measuring()
        hooks = self._seconds_of_hooks(runner)
        waited = self._summed - self._summed_before  # for the weights of batches, before the backward pass
        within = [sum(hooks.get(point, 0.0) for point in points) for points in (IN_FORWARD, IN_BACKWARD)]
        seconds = [
            (self._waiting.seconds - self._waited) / self.interval,
            max(self._called - self._began - max(self._synced, 0.0) - within[0], 0.0),
            max(self._last - self._called - waited - within[1], 0.0),
            sum(hooks.values()),
        ]
        self._waited = self._waiting.seconds
        self._record(runner, runner.strategy.gather(seconds))

    def after_train(self) -> None:
        """Stop measuring: the last batch may have been skipped."""
        self._stop_measuring()

    def on_exception(self) -> None:
        """Stop measuring."""
        self._stop_measuring()

    def _stop_measuring(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _seconds_of_hooks(self, runner: Runner) -> dict[str, float]:
        """Return the mean seconds per iteration of the other hooks, by point."""
        costs = runner.plan.ledger.seconds_of_hooks()
        costs.pop(runner.plan.name_of(self))  # it waits for the others
        means: dict[str, float] = {}
        for points in costs.values():
            for point, seconds in points.items():
                if point.partition("_")[2] in POINTS:
                    means[point] = means.get(point, 0.0) + seconds / self._done
        return means

    def _record(self, runner: Runner, times: list[list[float]]) -> None:
        works = [sum(seconds) for seconds in times]
        slowest = max(range(len(works)), key=works.__getitem__)
        values: dict[str, float] = {"slowest": works[slowest], "fastest": min(works), "slowest_rank": float(slowest)}
        for part, seconds in zip(PARTS, zip(*times, strict=True), strict=True):
            values[f"{part}_spread"] = max(seconds) - min(seconds)
        runner.hub.update_scalars(values, "train/ranks/")
        self._slowest = [*self._slowest, slowest if self._is_slow(slowest, works) else -1][-PERSISTENT:]
        if self._slowest == [slowest] * PERSISTENT and self._shown != slowest:
            self._shown = slowest
            runner.terminal.say(describe(slowest, times))

    def _is_slow(self, rank: int, works: list[float]) -> bool:
        others = [work for other, work in enumerate(works) if other != rank]
        return works[rank] > self.factor * median(others)


def describe(slowest: int, times: list[list[float]]) -> str:
    """Return the line about the slowest process: how slow it is, and in which part of a step."""
    others = [seconds for rank, seconds in enumerate(times) if rank != slowest]
    usual = [median(seconds) for seconds in zip(*others, strict=True)]
    more, part = max((slow - other, part) for slow, other, part in zip(times[slowest], usual, PARTS, strict=True))
    return (
        f"rank {slowest} is slower than the others: {1000 * sum(times[slowest]):.1f} ms of its own work per step "
        f"against {1000 * sum(usual):.1f} ms, mostly because of {part} ({1000 * more:.1f} ms more)"
    )
