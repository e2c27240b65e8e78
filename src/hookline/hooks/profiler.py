"""ProfilerHook: profiles the first epochs or iterations with torch's profiler."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.checks import check_choice, check_int
from hookline.common.numbers import as_repr
from hookline.errors import ConfigError, HookError
from hookline.hooks.traces import Traces
from hookline.plan.milestones import Counted, Milestone
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.hooks.profiling import Profile
    from hookline.runner.runner import Runner

log = logging.getLogger("hookline")

Stage = Literal["train", "val", "test"]
STAGES: tuple[Stage, ...] = ("train", "val", "test")
# The keys of a schedule, and the smallest value of each.
SCHEDULE = {"wait": 0, "warmup": 0, "active": 1, "repeat": 0, "skip_first": 0}


class ProfilerHook(Hook):
    """Profiles the first epochs or iterations with torch.profiler.

    Without `on_trace_ready` and `json_trace_path`, a table of the slowest operations is shown and written to `run.log`,
    and the trace is written to `profile.json` in the run's folder, for chrome://tracing or ui.perfetto.dev.

    A trace covers one stage, and, when counting epochs, one epoch. A validation ends a trace, and training continues in
    the next one. Further traces are numbered, as in `profile_2.json`. However the run ends, the trace is written.

    A second `train()` in the same process does not profile again. If another profiler is active in the process, the
    hook refuses to start.

    Cost: while profiling, a small iteration takes 2 to 3 times as long, and memory grows with the length of the trace.
    Afterwards, nothing.

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
        by_epoch: Count epochs (passes over the data, validations) instead of iterations.
        profile_times: Profile this many epochs or iterations of each stage, from the first one on.
        activity_with_cpu: Profile the CPU.
        activity_with_cuda: Profile CUDA. If it is not available, the hook warns.
        schedule: Which of those iterations to record, as for torch.profiler.schedule: `wait`, `warmup`, `active`,
            `repeat`, `skip_first`.
        on_trace_ready: What to do with a trace: `log_trace`, `tb_trace`, one of them with its settings ({type:
            log_trace, sort_by: ..., row_limit: ...}, {type: tb_trace, dir_name: ...}), or a function that takes the
            profiler.
        record_shapes: Record the shapes of inputs.
        profile_memory: Record how much memory is allocated and freed.
        with_stack: Record the source line of each operation.
        with_flops: Estimate floating-point operations.
        json_trace_path: The file for the Chrome trace, relative to the run's folder. It is compressed if it ends with
            `.gz`.
        stages: The stages to profile: any of train, val and test.
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
                "ProfilerHook: turn on activity_with_cpu or activity_with_cuda; with both off, there is nothing "
                "to profile"
            )
        self.by_epoch = by_epoch
        self.profile_times = profile_times
        self.activity_with_cpu = activity_with_cpu
        self.activity_with_cuda = activity_with_cuda
        self.schedule = _check_schedule(schedule, None if by_epoch else profile_times)
        self.traces = Traces(on_trace_ready, json_trace_path)
        self.stages = _check_stages(stages)
        self._options = {
            "record_shapes": record_shapes,
            "profile_memory": profile_memory,
            "with_stack": with_stack,
            "with_flops": with_flops,
        }
        #: The number of epochs or iterations that remain to be profiled, by stage.
        self._left = dict.fromkeys(self.stages, profile_times)
        #: The number of iterations that the schedule has covered, and of traces so far, by stage.
        self._steps = dict.fromkeys(self.stages, 0)
        self._traces = dict.fromkeys(self.stages, 0)
        self._profile: Profile | None = None
        #: The numbers of the iterations in the current trace.
        self._recorded: list[int] = []

    def must_reach(self, runner: Runner) -> list[Milestone]:
        """Return the milestone that each stage has to reach so that there is a trace of it."""
        before = sum(self.schedule.get(name, 0) for name in ("skip_first", "wait", "warmup"))
        needed: dict[Stage, tuple[int, Counted]] = {
            "train": (before + 1, "iteration"),
            "val": (1, "validation"),
            "test": (1, "test"),
        }
        return [Milestone("", 0, *needed[stage], "nothing is profiled") for stage in self.stages]

    # -- points

    def idle_points(self, runner: Runner) -> list[str]:
        """Return the points to skip: the points of stages that are finished or off. A validation still ends a trace."""
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
        """Check that profiling is possible, and stop the profiler however training ends."""
        yield from self._stage(runner, "train")

    def around_val(self, runner: Runner) -> Iterator[None]:
        """Do the same for a validation. This ends a trace of the training around it."""
        yield from self._stage(runner, "val")

    def around_test(self, runner: Runner) -> Iterator[None]:
        """Do the same for a test."""
        yield from self._stage(runner, "test")

    def around_train_epoch(self, runner: Runner) -> Iterator[None]:
        """Profile the epoch, including the start of the loader."""
        yield from self._epoch(runner, "train")

    def around_val_epoch(self, runner: Runner) -> Iterator[None]:
        """Profile one validation."""
        yield from self._epoch(runner, "val")

    def around_test_epoch(self, runner: Runner) -> Iterator[None]:
        """Profile one test."""
        yield from self._epoch(runner, "test")

    def around_train_iter(self, runner: Runner) -> Iterator[None]:
        """Profile one iteration of training."""
        yield from self._iteration(runner, "train")

    def around_val_iter(self, runner: Runner) -> Iterator[None]:
        """Profile one batch of a validation."""
        yield from self._iteration(runner, "val")

    def around_test_iter(self, runner: Runner) -> Iterator[None]:
        """Profile one batch of a test."""
        yield from self._iteration(runner, "test")

    def on_exception(self, runner: Runner) -> None:
        """Stop the profiler, even for a hook that was registered during the run."""
        self._end()

    def after_run(self, runner: Runner) -> None:
        """Stop the profiler, even for a hook that was registered during the run."""
        self._end()

    # -- starting and stopping

    def _stage(self, runner: Runner, stage: Stage) -> Iterator[None]:
        self._end()
        if self._left.get(stage):
            self._refuse_if_impossible()
        try:
            yield
        finally:
            self._end()
        if stage == "train" and self._steps.get(stage) and not self._traces[stage]:
            text = (
                "ProfilerHook: there is no trace of train, because the schedule records none of its first %d iterations"
            )
            log.warning(text, self._steps[stage])

    def _epoch(self, runner: Runner, stage: Stage) -> Iterator[None]:
        self._begin(runner, stage)
        yield
        self._end()
        # When training by iterations, this scope is all of training, so `_iteration` counts the passes over the data.
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
        if self._schedule_is_over(stage):
            self._left[stage] = 1  # the last one, even if profile_times is higher
            self._count_one(runner, stage)
        elif not self.by_epoch or (stage == "train" and runner.ends_epoch):
            self._count_one(runner, stage)
        if self._profile is not None and self.schedule:
            self._profile.step()

    def _schedule_is_over(self, stage: Stage) -> bool:
        """Return whether the schedule has no more iterations to record."""
        cycle = self.schedule
        if not cycle.get("repeat"):
            return False
        length = cycle.get("wait", 0) + cycle.get("warmup", 0) + cycle["active"]
        return self._steps[stage] >= cycle.get("skip_first", 0) + cycle["repeat"] * length

    def _count_one(self, runner: Runner, stage: Stage) -> None:
        """Count one epoch or iteration as profiled. After the last one, this stage costs nothing."""
        self._left[stage] -= 1
        if self.by_epoch or not self._left[stage]:
            self._end()
        if not self._left[stage]:
            runner.plan.skip_idle_points(self)

    def _begin(self, runner: Runner, stage: Stage) -> Profile | None:
        """Return the profiler, and start it if necessary. Return None if this stage is finished."""
        if self._profile is None and self._left.get(stage):
            from hookline.hooks.profiling import Profile, refuse_another

            refuse_another(thoroughly=False)
            self._recorded = []
            self._profile = Profile(
                self._activities(),
                self.schedule,
                self._steps[stage],
                self._options,
                partial(self._handle_trace, runner, stage),
            )
        return self._profile

    def _end(self) -> None:
        """Stop the profiler if it is active. This outputs its trace."""
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.end()

    def _refuse_if_impossible(self) -> None:
        from hookline.hooks.profiling import refuse_another

        refuse_another()
        if not self._activities():
            raise HookError(
                "ProfilerHook: activity_with_cpu is off and CUDA is not available, so there is nothing to profile"
            )
        if self.activity_with_cuda and len(self._activities()) < 1 + self.activity_with_cpu:
            log.warning("ProfilerHook: CUDA is not available, so only the CPU is profiled")

    def _activities(self) -> list[Any]:
        import torch
        from torch.profiler import ProfilerActivity

        cuda = self.activity_with_cuda and torch.cuda.is_available()
        return [ProfilerActivity.CPU] * self.activity_with_cpu + [ProfilerActivity.CUDA] * cuda

    def _handle_trace(self, runner: Runner, stage: Stage, profile: Profile) -> None:
        """Output a trace that is complete."""
        recorded, self._recorded = self._recorded, []
        if recorded:
            self._traces[stage] += 1
            many = f"s {recorded[0]} to" if len(recorded) > 1 else ""
            self.traces.output(runner, f"{stage} iteration{many} {recorded[-1]}", profile)


def _check_schedule(schedule: Mapping[str, int] | None, iterations: int | None) -> dict[str, int]:
    """Check and return the schedule, or an empty one. Refuse one that records none of the iterations."""
    if schedule is None:
        return {}
    if not isinstance(schedule, Mapping):
        raise ConfigError(f"ProfilerHook: schedule must be a mapping of {', '.join(SCHEDULE)}, not {as_repr(schedule)}")
    for name, value in schedule.items():
        check_choice("ProfilerHook: a key of schedule", name, SCHEDULE)
        check_int(f"ProfilerHook: schedule: {name}", value, least=SCHEDULE[name])
    if "active" not in schedule:
        raise ConfigError("ProfilerHook: schedule needs 'active', the number of iterations to record")
    waits = sum(schedule.get(name, 0) for name in ("skip_first", "wait", "warmup"))
    if iterations is not None and waits >= iterations:
        raise ConfigError(
            f"ProfilerHook: the schedule records none of profile_times={iterations} iterations, because it first "
            f"waits for {waits}; profile_times counts those, too: set it to at least {waits + schedule['active']}"
        )
    return dict(schedule)


def _check_stages(stages: Any) -> tuple[Stage, ...]:
    if isinstance(stages, str) or not isinstance(stages, Sequence) or not stages:
        raise ConfigError(f"ProfilerHook: stages must be a list of {', '.join(STAGES)}, not {stages!r}")
    for stage in stages:
        check_choice("ProfilerHook: stages", stage, STAGES)
    return tuple(stage for stage in STAGES if stage in stages)
