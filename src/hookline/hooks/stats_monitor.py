"""StatsMonitorHook: records the speed of training, the ETA, and memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from hookline.common.checks import check_int
from hookline.common.durations import clock
from hookline.common.numbers import as_number, as_time
from hookline.plan.milestones import Counted, Milestone
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.runner.runner import Runner

PREFIX = "train/stats/"
MIB = 2**20


def process_memory() -> int:
    """Return the main memory of this process in bytes."""
    import psutil

    return int(psutil.Process().memory_info().rss)


class StatsMonitorHook(Hook):
    """Records samples per second, step time, ETA, learning rates and memory.

    It records them as scalars `train/stats/<name>`, and as one line in the log:

    - `samples_per_second` and `step_time` (in seconds, data and step together), over the last `window_size` steps.
      Validation and saving are excluded. With several processes, the samples of all of them count.
    - `eta`: the remaining seconds of training, if the length of the run is known.
    - `lr` of the first parameter group, and `lr_1` or `lr_<name>` of further ones. With several optims, `<optim>/lr`.
    - `process_mib`, the main memory of this process, and `device_mib`, the peak memory of its CUDA or XPU device so
      far.

    If LoggerHook writes a record for the same step, they are part of it. Otherwise, they are a separate record.

    Cost: one reading of the clock and one check of the batch's shape per iteration. It never waits for the device. A
    record takes about 0.1 ms.

    Example:
        from hookline.hooks import StatsMonitorHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[StatsMonitorHook(step_log_freq=2)]).train()

    YAML:
        custom_hooks:
          - {type: StatsMonitorHook, step_log_freq: 4, window_size: 50}

    Args:
        batch_size: The number of samples in a batch of each process. By default, it is read from the batch.
        steps_per_epoch: The number of iterations per epoch, for the ETA. By default, the length of the loader.
        step_log_freq: Record every `step_log_freq` iterations.
        epoch_log_freq: Record at the end of every `epoch_log_freq`-th epoch.
        window_size: The number of steps over which speed is measured.
    """

    priority = 55
    role = "observer"
    draws_random_numbers = False
    runs_after = ("IterTimerHook",)
    runs_before = ("LoggerHook",)

    def __init__(
        self,
        batch_size: int | None = None,
        steps_per_epoch: int | None = None,
        step_log_freq: int = 512,
        epoch_log_freq: int = 1,
        window_size: int = 128,
    ) -> None:
        optional = {"batch_size": batch_size, "steps_per_epoch": steps_per_epoch}
        always = {"step_log_freq": step_log_freq, "epoch_log_freq": epoch_log_freq, "window_size": window_size}
        for name, value in (optional | always).items():
            if name in always or value is not None:
                check_int(f"StatsMonitorHook: {name}", value, least=1)
        self.batch_size = batch_size
        self.steps_per_epoch = steps_per_epoch
        self.step_log_freq = step_log_freq
        self.epoch_log_freq = epoch_log_freq
        self.window_size = window_size
        self._times: deque[float] = deque(maxlen=window_size)
        self._samples: deque[int] = deque(maxlen=window_size)
        #: When the current step began; None before the first run.
        self._since: float | None = None
        self._paused = 0.0
        self._size_of: Callable[[Any], int] = lambda batch: batch_size or 0
        #: The step and epoch of numbers that may not be in a record yet.
        self._unwritten: tuple[int, int] | None = None

    def must_reach(self, runner: Runner) -> list[Milestone]:
        """Return the first record of each interval."""
        intervals: list[tuple[str, int, Counted]] = [
            ("step_log_freq", self.step_log_freq, "iteration"),
            ("epoch_log_freq", self.epoch_log_freq, "epoch"),
        ]
        return [Milestone(name, value, value, unit, "nothing is recorded") for name, value, unit in intervals]

    # -- measuring

    def idle_points(self, runner: Runner) -> list[str]:
        """Return the points to skip: all of them without training."""
        points = ("around_train", "before_train_epoch", "after_train_iter", "before_val", "after_val")
        return [] if runner.running == "train" else list(points)

    def around_train(self, runner: Runner) -> Iterator[None]:
        """Start from scratch, because times of an earlier run are irrelevant. At the end, write the rest."""
        self._begin(runner)
        try:
            yield
        finally:
            self._write_left_over(runner)

    def _begin(self, runner: Runner) -> None:
        self._times.clear()
        self._samples.clear()
        self._unwritten = None
        if self.batch_size is None:
            from hookline.data.weights import batch_size  # it imports torch, and `hookline hooks` must not

            self._size_of = batch_size
        self._restart(runner)

    def _restart(self, runner: Runner) -> None:
        self._since, self._paused = clock(), runner.seconds_waited

    def before_train_epoch(self, runner: Runner) -> None:
        """Start measuring: from here on, training waits for the loader."""
        self._restart(runner)

    def after_val(self, runner: Runner) -> None:
        """Restart measuring after a validation."""
        self._restart(runner)

    def after_train_iter(self, runner: Runner, data_batch: Any) -> None:
        """Measure the step, and record if it is due."""
        now, paused = clock(), runner.seconds_waited
        if self._since is None:  # registered during training: the next step is the first complete one
            self._begin(runner)
            return
        if self._unwritten is not None:
            self._write_left_over(runner)
        self._times.append(now - self._since - (paused - self._paused))
        self._samples.append(self._size_of(data_batch))
        self._since, self._paused = now, paused
        ends = runner.ends_epoch and self.every_n_epochs(runner, self.epoch_log_freq)
        if ends or self.every_n_train_iters(runner, self.step_log_freq):
            self._record(runner)

    # -- recording

    def _record(self, runner: Runner) -> None:
        total = self._total_iters(runner)
        numbers = self._speed(runner, total) | learning_rates(runner) | memory_in_mib(runner)
        runner.hub.update_scalars(numbers, prefix=PREFIX)
        self._unwritten = (runner.iter + 1, runner.epoch + 1)
        runner.terminal.detail(partial(format_line, runner.iter + 1, total, numbers))

    def _total_iters(self, runner: Runner) -> int | None:
        """Return the total number of iterations, or None if it is unknown."""
        if self.steps_per_epoch is not None and runner.max_epochs is not None:
            return self.steps_per_epoch * runner.max_epochs
        return runner.max_iters

    def _speed(self, runner: Runner, total: int | None) -> dict[str, float]:
        spent = sum(self._times)
        step_time = spent / len(self._times)
        numbers = {"samples_per_second": sum(self._samples) * runner.world_size / spent} if spent else {}
        numbers["step_time"] = step_time
        if total is not None:
            numbers["eta"] = step_time * max(0, total - runner.iter - 1)
        return numbers

    def before_val(self, runner: Runner) -> None:
        """Write the remaining numbers before the record of the validation."""
        self._write_left_over(runner)

    def _write_left_over(self, runner: Runner) -> None:
        """Write numbers that are in no record of their step yet as a separate record."""
        if self._unwritten is None:
            return
        (step, epoch), self._unwritten = self._unwritten, None
        numbers = {name: history.current() for name, (history, _) in runner.hub.take(PREFIX).items()}
        if numbers:
            runner.writers.write_scalars({"epoch": epoch, **numbers}, step)

    def state_dict(self) -> dict[str, Any]:
        """Return the step and epoch of numbers that may not be in a record yet."""
        return {} if self._unwritten is None else {"unwritten": list(self._unwritten)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        unwritten = state.get("unwritten")
        self._unwritten = None if unwritten is None else (unwritten[0], unwritten[1])


def learning_rates(runner: Runner) -> dict[str, float]:
    """Return the learning rate of every group of every optim: `lr`, `lr_1`, `lr_<name>`, `<optim>/lr`."""
    rates = {}
    for name, optim in runner.optims.items():
        for label, group in optim.named_groups():
            rates[f"{name}/" * bool(name) + label] = float(group["lr"])
    return rates


def memory_in_mib(runner: Runner) -> dict[str, float]:
    """Return the main memory, and the device's peak memory if it counts that. Do not wait for the device."""
    from hookline.common.devices import device_function  # it imports torch, and `hookline hooks` must not

    sizes = {"process_mib": process_memory() / MIB}
    most = device_function(runner.device, "max_memory_allocated")
    if most is not None:
        sizes["device_mib"] = most(runner.device) / MIB
    return sizes


def format_line(done: int, total: int | None, numbers: dict[str, float]) -> str:
    """Format the line for the log."""
    parts = [f"stats  iter {done}" + (f"/{total}" if total is not None else "")]
    if "samples_per_second" in numbers:
        parts.append(f"{numbers['samples_per_second']:.1f} samples/s")
    parts.append(f"{numbers['step_time'] * 1e3:.1f} ms per step")
    if "eta" in numbers:
        parts.append(f"eta {as_time(numbers['eta'])}")
    parts += [f"{name} {as_number(value)}" for name, value in numbers.items() if "lr" in name.split("/")[-1].split("_")]
    parts.append(f"memory {numbers['process_mib']:.0f} MiB")
    if "device_mib" in numbers:
        parts.append(f"device {numbers['device_mib']:.0f} MiB")
    return "  ".join(parts)
