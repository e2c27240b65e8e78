"""StatsMonitorHook: how fast training is, how long it still takes, and how much memory it uses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from hookline.common.checks import check_int
from hookline.common.durations import clock
from hookline.common.numbers import as_number, as_time
from hookline.plan.hook import Hook

if TYPE_CHECKING:
    from hookline.engine.runner import Runner

PREFIX = "train/stats/"
MIB = 2**20


def process_memory() -> int:
    """How many bytes of main memory this process uses."""
    import psutil

    return int(psutil.Process().memory_info().rss)


class StatsMonitorHook(Hook):
    """Records samples a second, step time, ETA, learning rates and memory.

    Every so many steps and epochs, they are scalars of the hub, `train/stats/<name>`, and one line for people:

    - `samples_per_second` and `step_time` (seconds, data and step together), over the last `window_size` steps. What
      validation, saving and evaluations of hooks take is not counted. With several processes, the samples of all of
      them count.
    - `eta`: seconds of training that are left; not there where nobody knows how long the run is.
    - `lr` of the first group of parameters, `lr_1` or `lr_<name>` of further ones; with several optims, `<optim>/lr`.
    - `process_mib`, the main memory of this process, and `device_mib`, the most that was in use on its CUDA or XPU
      device so far.

    Where LoggerHook makes a record of the same step, they are in it. Otherwise they are a record of their own, so none
    is lost, whatever the logger's interval.

    Cost: a reading of the clock and a look at the shape of the batch an iteration; never a wait for the device. About
    0.1 ms when it records.

    Example:
        from hookline.hooks import StatsMonitorHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[StatsMonitorHook(step_log_freq=2)]).train()

    YAML:
        custom_hooks:
          - {type: StatsMonitorHook, step_log_freq: 4, window_size: 50}

    Args:
        batch_size: Samples of a batch in each process; found from the batch, unless given.
        steps_per_epoch: Iterations of an epoch, for the ETA; those of the loader, unless given.
        step_log_freq: Record every so many iterations.
        epoch_log_freq: Record at the end of every so many epochs.
        window_size: Over how many steps to measure.
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
        given = {"batch_size": batch_size, "steps_per_epoch": steps_per_epoch}
        always = {"step_log_freq": step_log_freq, "epoch_log_freq": epoch_log_freq, "window_size": window_size}
        for name, value in (given | always).items():
            if name in always or value is not None:
                check_int(f"StatsMonitorHook: {name}", value, least=1)
        self.batch_size = batch_size
        self.steps_per_epoch = steps_per_epoch
        self.step_log_freq = step_log_freq
        self.epoch_log_freq = epoch_log_freq
        self.window_size = window_size
        self._times: deque[float] = deque(maxlen=window_size)
        self._samples: deque[int] = deque(maxlen=window_size)
        #: Since when the current step takes; None before the first run.
        self._since: float | None = None
        self._paused = 0.0
        self._size_of: Callable[[Any], int] = lambda batch: batch_size or 0
        #: Step and epoch of numbers that may not be in a record yet.
        self._unwritten: tuple[int, int] | None = None

    # -- measuring

    def idle_points(self, runner: Runner) -> list[str]:
        """Without training, all of them."""
        points = ("around_train", "before_train_epoch", "after_train_iter", "before_val", "after_val")
        return [] if runner.running == "train" else list(points)

    def around_train(self, runner: Runner) -> Iterator[None]:
        """Begin anew: times of an earlier start say nothing about this one. At its end, nothing is left over."""
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
            from hookline.engine.metrics import batch_size  # it needs torch, and a hook's parameters are read without

            self._size_of = batch_size
        self._restart(runner)

    def _restart(self, runner: Runner) -> None:
        self._since, self._paused = clock(), runner.seconds_waited

    def before_train_epoch(self, runner: Runner) -> None:
        """From here on the loader is waited for."""
        self._restart(runner)

    def after_val(self, runner: Runner) -> None:
        """What follows is training again."""
        self._restart(runner)

    def after_train_iter(self, runner: Runner, data_batch: Any) -> None:
        """One more step is measured; a record, when it is due."""
        now, paused = clock(), runner.seconds_waited
        if self._since is None:  # registered while training is under way: the next step is the first that is whole
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
        found = self._speed(runner, total) | learning_rates(runner) | memory(runner)
        runner.hub.update_scalars(found, prefix=PREFIX)
        self._unwritten = (runner.iter + 1, runner.epoch + 1)
        runner.terminal.detail(partial(line_of, runner.iter + 1, total, found))

    def _total_iters(self, runner: Runner) -> int | None:
        """How many iterations there will be, where that is known."""
        if self.steps_per_epoch is not None and runner.max_epochs is not None:
            return self.steps_per_epoch * runner.max_epochs
        return runner.max_iters

    def _speed(self, runner: Runner, total: int | None) -> dict[str, float]:
        spent = sum(self._times)
        step_time = spent / len(self._times)
        found = {"samples_per_second": sum(self._samples) * runner.world_size / spent} if spent else {}
        found["step_time"] = step_time
        if total is not None:
            found["eta"] = step_time * max(0, total - runner.iter - 1)
        return found

    def before_val(self, runner: Runner) -> None:
        """Their record comes before that of the validation."""
        self._write_left_over(runner)

    def _write_left_over(self, runner: Runner) -> None:
        """Numbers that no record of their step has taken make one themselves."""
        if self._unwritten is None:
            return
        (step, epoch), self._unwritten = self._unwritten, None
        found = {name: history.current() for name, (history, _) in runner.hub.take(PREFIX).items()}
        if found:
            runner.writers.write_scalars({"epoch": epoch, **found}, step)

    def state_dict(self) -> dict[str, Any]:
        """Of which step the hub has numbers that may not be in a record yet."""
        return {} if self._unwritten is None else {"unwritten": list(self._unwritten)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        unwritten = state.get("unwritten")
        self._unwritten = None if unwritten is None else (unwritten[0], unwritten[1])


def learning_rates(runner: Runner) -> dict[str, float]:
    """The learning rate of every group of every optim: `lr`, `lr_1`, `lr_<name>`, `<optim>/lr`."""
    found = {}
    for name, optim in runner.optims.items():
        for label, group in optim.named_groups():
            found[f"{name}/" * bool(name) + label] = float(group["lr"])
    return found


def memory(runner: Runner) -> dict[str, float]:
    """MiB of main memory, and the most so far on a device that counts it, which is no wait for the device."""
    from hookline.common.devices import device_function  # it needs torch, and a hook's parameters are read without

    found = {"process_mib": process_memory() / MIB}
    most = device_function(runner.device, "max_memory_allocated")
    if most is not None:
        found["device_mib"] = most(runner.device) / MIB
    return found


def line_of(done: int, total: int | None, found: dict[str, float]) -> str:
    """The line for people."""
    parts = [f"stats  iter {done}" + (f"/{total}" if total is not None else "")]
    if "samples_per_second" in found:
        parts.append(f"{found['samples_per_second']:.1f} samples/s")
    parts.append(f"{found['step_time'] * 1e3:.1f} ms a step")
    if "eta" in found:
        parts.append(f"eta {as_time(found['eta'])}")
    parts += [f"{name} {as_number(value)}" for name, value in found.items() if "lr" in name.split("/")[-1].split("_")]
    parts.append(f"memory {found['process_mib']:.0f} MiB")
    if "device_mib" in found:
        parts.append(f"device {found['device_mib']:.0f} MiB")
    return "  ".join(parts)
