"""ProfilerHook: what torch's profiler sees of the first epochs or iterations."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.checks import check_choice, check_int
from hookline.errors import ConfigError, HookError
from hookline.hooks.traces import Traces
from hookline.plan.hook import Hook

if TYPE_CHECKING:
    from hookline.engine.runner import Runner
    from hookline.hooks.profiling import Profile

log = logging.getLogger("hookline")

Stage = Literal["train", "val", "test"]
STAGES: tuple[Stage, ...] = ("train", "val", "test")
# What a schedule may hold, and the least value of each.
SCHEDULE = {"wait": 0, "warmup": 0, "active": 1, "repeat": 0, "skip_first": 0}


class ProfilerHook(Hook):
    """Profiles the first epochs or iterations with torch.profiler.

    What it sees becomes a table, a Chrome trace, or one for TensorBoard. Without `on_trace_ready` and
    `json_trace_path`, a table of what took longest is shown and goes to `run.log`, and the trace goes to `profile.json`
    in the run's folder, for chrome://tracing or ui.perfetto.dev. Every iteration is labelled `ProfilerStep#<number>` in
    it.

    A trace is of one stage, and, by epochs, of one epoch: a validation in the middle of what is profiled ends it, and
    training goes on in the next one. Further traces get a number, `profile_2.json`, and no file is overwritten. One
    that cannot be written is warned about, and the run goes on. Whatever ends the run, the profiler is ended, and what
    it saw is written.

    What was profiled in this process is not profiled again by a second `train()`; a run that is resumed in another
    process begins anew. Another profiler that is active in the process is refused, since two at once would crash it.

    Cost: while it profiles, a small iteration takes 2 to 3 times as long, and memory that grows with it. Then nothing:
    the hook takes itself out of the plan.

    Example:
        from hookline.hooks import ProfilerHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[ProfilerHook(by_epoch=False, profile_times=3)]).train()

    YAML:
        custom_hooks:
          - type: ProfilerHook
            by_epoch: false
            profile_times: 10
            schedule: {wait: 1, warmup: 2, active: 3, repeat: 1}
            on_trace_ready: {type: log_trace, sort_by: self_cpu_time_total, row_limit: 15}
            json_trace_path: trace.json

    Args:
        by_epoch: Count epochs (passes over the data, validations), or iterations.
        profile_times: Profile the first so many of each stage.
        activity_with_cpu: See what the CPU does.
        activity_with_cuda: See what CUDA does; where there is none, that is said.
        schedule: Which iterations of those to record, as torch.profiler.schedule takes it: `wait`, `warmup`, `active`,
            `repeat`, `skip_first`.
        on_trace_ready: What to do with a trace: `log_trace`, `tb_trace`, one of them with its settings ({type:
            log_trace, sort_by: ..., row_limit: ...}, {type: tb_trace, dir_name: ...}), or a function that takes the
            profiler.
        record_shapes: Record the shapes of inputs.
        profile_memory: Record how much memory is allocated and freed.
        with_stack: Record the line of source of each operation.
        with_flops: Estimate floating-point operations.
        json_trace_path: A file for the Chrome trace, relative to the run's folder; with `.gz` at its end, compressed.
        stages: Which of train, val and test to profile.
    """

    priority = "VERY_LOW"
    role = "observer"
    draws_random_numbers = False

    def __init__(
        self,
        *,
        by_epoch: bool = True,
        profile_times: int = 1,
        activity_with_cpu: bool = True,
        activity_with_cuda: bool = False,
        schedule: dict[str, int] | None = None,
        on_trace_ready: Callable[..., Any] | dict[str, Any] | Literal["log_trace", "tb_trace"] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        json_trace_path: str | None = None,
        stages: Sequence[Literal["train", "val", "test"]] = ("train",),
    ) -> None:
        check_int("ProfilerHook: profile_times", profile_times, least=1)
        if not activity_with_cpu and not activity_with_cuda:
            raise ConfigError(
                "ProfilerHook: give activity_with_cpu or activity_with_cuda; without both it sees nothing"
            )
        self.by_epoch = by_epoch
        self.profile_times = profile_times
        self.activity_with_cpu = activity_with_cpu
        self.activity_with_cuda = activity_with_cuda
        self.schedule = _checked_schedule(schedule, None if by_epoch else profile_times)
        self.traces = Traces(on_trace_ready, json_trace_path)
        self.stages = _checked_stages(stages)
        self._options = {
            "record_shapes": record_shapes,
            "profile_memory": profile_memory,
            "with_stack": with_stack,
            "with_flops": with_flops,
        }
        #: How many epochs or iterations are still to be profiled, of each stage.
        self._left = dict.fromkeys(self.stages, profile_times)
        #: Iterations of each stage that the schedule has gone through, and traces that came of them.
        self._steps = dict.fromkeys(self.stages, 0)
        self._traces = dict.fromkeys(self.stages, 0)
        self._profile: Profile | None = None
        #: The numbers of the iterations in the current trace.
        self._recorded: list[int] = []

    # -- where it profiles

    def idle_points(self, runner: Runner) -> list[str]:
        """Those of stages that are done, or not asked for; training goes on being interrupted by validations."""
        idle = []
        for stage in STAGES:
            if not self._left.get(stage):
                idle += [f"around_{stage}_epoch", f"around_{stage}_iter"]
                if stage != "val" or not self._left.get("train"):
                    idle.append(f"around_{stage}")
            elif not self.by_epoch:
                idle.append(f"around_{stage}_epoch")
        return idle if any(self._left.values()) else [*idle, "on_exception", "after_run"]

    def around_train(self, runner: Runner) -> Iterator[None]:
        """Refuse what cannot be, and end the profiler whatever happens."""
        yield from self._stage(runner, "train")

    def around_val(self, runner: Runner) -> Iterator[None]:
        """Likewise; a trace of the training around it ends here."""
        yield from self._stage(runner, "val")

    def around_test(self, runner: Runner) -> Iterator[None]:
        """Likewise."""
        yield from self._stage(runner, "test")

    def around_train_epoch(self, runner: Runner) -> Iterator[None]:
        """Profile also how the loader begins."""
        yield from self._epoch(runner, "train")

    def around_val_epoch(self, runner: Runner) -> Iterator[None]:
        """One validation."""
        yield from self._epoch(runner, "val")

    def around_test_epoch(self, runner: Runner) -> Iterator[None]:
        """One test."""
        yield from self._epoch(runner, "test")

    def around_train_iter(self, runner: Runner) -> Iterator[None]:
        """One iteration of training."""
        yield from self._iteration(runner, "train")

    def around_val_iter(self, runner: Runner) -> Iterator[None]:
        """One batch of a validation."""
        yield from self._iteration(runner, "val")

    def around_test_iter(self, runner: Runner) -> Iterator[None]:
        """One batch of a test."""
        yield from self._iteration(runner, "test")

    def on_exception(self, runner: Runner) -> None:
        """End the profiler also where it was registered while the run was under way."""
        self._end()

    def after_run(self, runner: Runner) -> None:
        """Likewise."""
        self._end()

    # -- when it begins and ends

    def _stage(self, runner: Runner, stage: Stage) -> Iterator[None]:
        self._end()
        if self._left.get(stage):
            self._refuse_what_cannot_be()
        try:
            yield
        finally:
            self._end()
        if stage == "train" and self._steps.get(stage) and not self._traces[stage]:
            text = "ProfilerHook: there is no trace of train: the schedule records none of its first %d iterations"
            log.warning(text, self._steps[stage])

    def _epoch(self, runner: Runner, stage: Stage) -> Iterator[None]:
        self._begin(runner, stage)
        yield
        self._end()
        # In a run by iterations this scope is all of training, so there the passes over the data are counted.
        if stage != "train" and self._left[stage]:
            self._count_one(runner, stage)

    def _iteration(self, runner: Runner, stage: Stage) -> Iterator[None]:
        profile = self._begin(runner, stage)
        if profile is None:
            yield
            return
        number = runner.iter + 1 if stage == "train" else self._steps[stage] + 1
        if profile.records:
            self._recorded.append(number)
        with profile.label(number):
            yield
        self._steps[stage] += 1
        if self._is_used_up(stage):
            self._left[stage] = 1  # it is the last, whatever profile_times says
            self._count_one(runner, stage)
        elif not self.by_epoch or (stage == "train" and runner.ends_epoch):
            self._count_one(runner, stage)
        if self._profile is not None and self.schedule:
            self._profile.step()

    def _is_used_up(self, stage: Stage) -> bool:
        """Whether the schedule has come to its end."""
        cycle = self.schedule
        if not cycle.get("repeat"):
            return False
        each = cycle.get("wait", 0) + cycle.get("warmup", 0) + cycle["active"]
        return self._steps[stage] >= cycle.get("skip_first", 0) + cycle["repeat"] * each

    def _count_one(self, runner: Runner, stage: Stage) -> None:
        """One epoch or iteration less to profile; after the last, this stage costs nothing any more."""
        self._left[stage] -= 1
        if self.by_epoch or not self._left[stage]:
            self._end()
        if not self._left[stage]:
            runner.plan.skip_idle_points(self)

    def _begin(self, runner: Runner, stage: Stage) -> Profile | None:
        """The profiler, begun if it is not; None when this stage is done."""
        if self._profile is None and self._left.get(stage):
            from hookline.hooks.profiling import Profile, refuse_another

            refuse_another(thoroughly=False)
            self._recorded = []
            self._profile = Profile(
                self._activities(),
                self.schedule,
                self._steps[stage],
                self._options,
                partial(self._ready, runner, stage),
            )
        return self._profile

    def _end(self) -> None:
        """End the profiler, if it is active; what it saw goes where it was asked for."""
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.end()

    def _refuse_what_cannot_be(self) -> None:
        from hookline.hooks.profiling import refuse_another

        refuse_another()
        if not self._activities():
            raise HookError(
                "ProfilerHook: activity_with_cpu is off, and there is no CUDA here, so it would see nothing"
            )
        if self.activity_with_cuda and len(self._activities()) < 1 + self.activity_with_cpu:
            log.warning("ProfilerHook: there is no CUDA here, so only the CPU is profiled")

    def _activities(self) -> list[Any]:
        import torch
        from torch.profiler import ProfilerActivity

        cuda = self.activity_with_cuda and torch.cuda.is_available()
        return [ProfilerActivity.CPU] * self.activity_with_cpu + [ProfilerActivity.CUDA] * cuda

    def _ready(self, runner: Runner, stage: Stage, profile: Profile) -> None:
        """A trace is complete."""
        recorded, self._recorded = self._recorded, []
        if recorded:
            self._traces[stage] += 1
            many = f"s {recorded[0]} to" if len(recorded) > 1 else ""
            self.traces.take(runner, f"{stage} iteration{many} {recorded[-1]}", profile)


def _checked_schedule(given: Mapping[str, int] | None, iterations: int | None) -> dict[str, int]:
    """The schedule, empty where there is none; one that records none of so many iterations is refused."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"ProfilerHook: schedule is a mapping of {', '.join(SCHEDULE)}, not {given!r}")
    for name, value in given.items():
        check_choice("ProfilerHook: the key of a schedule", name, SCHEDULE)
        check_int(f"ProfilerHook: schedule: {name}", value, least=SCHEDULE[name])
    if "active" not in given:
        raise ConfigError("ProfilerHook: schedule needs 'active', how many iterations to record")
    waits = sum(given.get(name, 0) for name in ("skip_first", "wait", "warmup"))
    if iterations is not None and waits >= iterations:
        raise ConfigError(
            f"ProfilerHook: the schedule records none of profile_times={iterations} iterations, because it waits for "
            f"{waits}; profile_times counts those, too: give at least {waits + given['active']}"
        )
    return dict(given)


def _checked_stages(given: Any) -> tuple[Stage, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise ConfigError(f"ProfilerHook: stages is a list of {', '.join(STAGES)}, not {given!r}")
    for stage in given:
        check_choice("ProfilerHook: stages", stage, STAGES)
    return tuple(stage for stage in STAGES if stage in given)
