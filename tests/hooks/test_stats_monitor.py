"""StatsMonitorHook: exact numbers and lines with a clock that the test controls, and the records that contain them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline import Hook, Optim, Runner
from hookline.errors import ConfigError
from hookline.hooks import StatsMonitorHook, stats_monitor
from hookline.testing import MemoryWriter, toy_data, toy_model, toy_runner
from tests.clock import Clock

NO_DEFAULTS = dict.fromkeys(["runtime_info", "timer", "sampler_seed", "logger", "param_scheduler", "checkpoint"])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace all clocks of a run, in a process of 300 MiB."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    monkeypatch.setattr(stats_monitor, "process_memory", lambda: 300 * 2**20)
    return clock


class Passing(Hook):
    """Lets time pass: a step takes a fixed time, or as many seconds as its number. All else takes 1000 s."""

    priority = "HIGHEST"

    def __init__(self, clock: Clock, step: float | None = None) -> None:
        self.clock, self.step = clock, step

    def before_backward(self, runner: Runner) -> None:
        self.clock.now += runner.iter + 1 if self.step is None else self.step

    def before_val_epoch(self) -> None:
        self.clock.now += 1000

    before_save_checkpoint = after_train_epoch = before_val_epoch


def stats(runner: Runner, name: str) -> list[float]:
    return runner.hub.get_scalar(f"train/stats/{name}").last()


def lines(runner: Runner) -> list[str]:
    found = [line.partition("  ")[2] for line in (runner.work_dir / "run.log").read_text().splitlines()]
    return [line for line in found if line.startswith("stats")]


def monitored(clock: Clock, seconds: float | None = None, hook: StatsMonitorHook | None = None, **parts: Any) -> Runner:
    runner = toy_runner(custom_hooks=[hook or StatsMonitorHook(step_log_freq=2), Passing(clock, seconds)], **parts)
    runner.train()
    return runner


# ------------------------------------------------------------------------------------------------- numbers


def test_exact_numbers_over_a_window_without_validation_and_saving(clock: Clock) -> None:
    hook = StatsMonitorHook(step_log_freq=2, epoch_log_freq=9, window_size=3)
    parts: dict[str, Any] = {"max_iters": 8, "train": {"val_interval": 2}}
    runner = monitored(clock, hook=hook, **parts)
    # Steps of 1, 2, ... s: every second step, the mean of the last three.
    means = [1.5, 3.0, 5.0, 7.0]
    assert stats(runner, "step_time") == means
    assert stats(runner, "samples_per_second") == [16 / 3, 24 / 9, 24 / 15, 24 / 21]
    assert stats(runner, "eta") == [mean * left for mean, left in zip(means, (6, 4, 2, 0), strict=True)]
    assert stats(runner, "lr") == [0.1] * 4
    assert stats(runner, "process_mib") == [300.0] * 4
    assert "train/stats/device_mib" not in runner.hub.scalars


def test_saving_without_validation_and_what_comes_between_epochs_is_not_counted(clock: Clock) -> None:
    checkpoint = {"checkpoint": {"interval": 1, "by_epoch": False}}
    hook = StatsMonitorHook(step_log_freq=3)
    runner = monitored(clock, 2.0, hook, max_epochs=3, batches=3, val=None, default_hooks=checkpoint)
    assert stats(runner, "step_time") == [2.0] * 3


def test_the_lines_for_people(clock: Clock) -> None:
    assert lines(monitored(clock, 0.5, max_epochs=2)) == [
        f"stats  iter {done}/8  16.0 samples/s  500.0 ms per step  eta {eta}  lr 0.1000  memory 300 MiB"
        for done, eta in ((2, "0:00:03"), (4, "0:00:02"), (6, "0:00:01"), (8, "0:00:00"))
    ]


def test_samples_are_found_from_the_batch_or_given(clock: Clock) -> None:
    assert stats(monitored(clock, 2.0), "samples_per_second") == [4.0] * 4
    given = StatsMonitorHook(batch_size=5, step_log_freq=4)
    assert stats(monitored(clock, 2.0, given), "samples_per_second") == [2.5] * 2
    uneven = [toy_data(1, size)[0] for size in (8, 8, 2, 2)]
    runner = toy_runner(max_epochs=1, custom_hooks=[StatsMonitorHook(step_log_freq=1), Passing(clock, 1.0)])
    runner.train_loop.dataloader = uneven
    runner.train()
    assert stats(runner, "samples_per_second") == [8.0, 8.0, 6.0, 5.0]


class Stream:
    """Batches without a length."""

    def __iter__(self) -> Any:
        return iter(toy_data(4))


def test_an_eta_is_there_only_where_the_length_is_known_or_told(clock: Clock) -> None:
    for hook, etas, first in (
        (StatsMonitorHook(step_log_freq=2), None,
         "stats  iter 2  8.0 samples/s  1000.0 ms per step  lr 0.1000  memory 300 MiB"),
        (StatsMonitorHook(step_log_freq=2, steps_per_epoch=4), [6.0, 4.0, 2.0, 0.0],
         "stats  iter 2/8  8.0 samples/s  1000.0 ms per step  eta 0:00:06  lr 0.1000  memory 300 MiB"),
        (StatsMonitorHook(step_log_freq=2, steps_per_epoch=3), [4.0, 2.0, 0.0, 0.0],
         "stats  iter 2/6  8.0 samples/s  1000.0 ms per step  eta 0:00:04  lr 0.1000  memory 300 MiB"),
    ):  # fmt: skip
        runner = toy_runner(max_epochs=2, custom_hooks=[hook, Passing(clock, 1.0)])
        runner.train_loop.dataloader = Stream()
        runner.train()
        assert (stats(runner, "eta") if "train/stats/eta" in runner.hub.scalars else None) == etas
        assert lines(runner)[0] == first


def test_the_rate_of_every_group_of_every_optim_is_there(clock: Clock) -> None:
    model = toy_model()
    first, second = list(model[0].parameters()), list(model[2].parameters())
    groups: list[dict[str, Any]] = [{"params": first}, {"params": second[:1], "lr": 0.5}]
    groups.append({"params": second[1:], "lr": 1e-5, "name": "bias"})
    runner = monitored(clock, 1.0, model=model, optim=Optim(torch.optim.SGD(groups, lr=0.1)), max_epochs=1)
    assert [stats(runner, name)[0] for name in ("lr", "lr_1", "lr_bias")] == [0.1, 0.5, 1e-5]
    assert "  lr 0.1000  lr_1 0.5000  lr_bias 1.00e-05  memory" in lines(runner)[0]

    def step(model: Any, batch: Any, optim: Any) -> None:
        optim["a"].update(model(batch[0]).sum())

    optims = {name: torch.optim.SGD(part, lr=lr) for name, part, lr in (("a", first, 0.2), ("b", second, 0.3))}
    runner = monitored(clock, 1.0, model=model, optim=optims, step=step, max_epochs=1)
    assert (stats(runner, "a/lr"), stats(runner, "b/lr")) == ([0.2] * 2, [0.3] * 2)
    assert "  a/lr 0.2000  b/lr 0.3000  memory" in lines(runner)[0]


def test_the_memory_of_a_device_is_there_where_it_is_counted(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def most(device: torch.device) -> int:
        asked.append(str(device))
        return 5 * 2**29

    monkeypatch.setattr(torch.xpu, "max_memory_allocated", most)
    runner = toy_runner(max_epochs=1, custom_hooks=[StatsMonitorHook(step_log_freq=2), Passing(clock, 1.0)])
    runner._host.compute.device = torch.device("xpu:1")
    runner.model.to = lambda device: runner.model  # type: ignore[method-assign, assignment]  # stays here
    runner.train()
    assert (stats(runner, "device_mib"), asked) == ([2560.0] * 2, ["xpu:1"] * 2)
    assert lines(runner)[0].endswith("  memory 300 MiB  device 2560 MiB")


def test_the_system_reports_the_memory_of_this_process() -> None:
    assert 10 * 2**20 < stats_monitor.process_memory() < 2**40


def test_a_clock_that_stands_still_gives_no_speed(clock: Clock) -> None:
    runner = monitored(clock, 0.0, max_epochs=1)
    assert "train/stats/samples_per_second" not in runner.hub.scalars
    assert lines(runner)[0] == "stats  iter 2/4  0.0 ms per step  eta 0:00:00  lr 0.1000  memory 300 MiB"


# ------------------------------------------------------------------------------------------------- records


def records(writer: MemoryWriter) -> list[tuple[int, str]]:
    """Return step and kind of every record: t for training, s for stats, v for validation."""
    kinds = {"t": "train/loss", "s": "train/stats/step_time", "v": "val/accuracy"}
    return [
        (record["step"], "".join(kind for kind, name in kinds.items() if name in record)) for record in writer.records
    ]


@pytest.mark.parametrize(
    ("interval", "freqs", "parts", "found"),
    [
        (2, (2, 9), {}, [(2, "ts"), (4, "ts"), (4, "v"), (6, "ts"), (8, "ts"), (8, "v")]),
        (2, (3, 9), {}, [(2, "t"), (3, "s"), (4, "t"), (4, "v"), (6, "ts"), (8, "t"), (8, "v")]),
        (3, (100, 1), {}, [(3, "t"), (4, "s"), (4, "v"), (7, "t"), (8, "s"), (8, "v")]),
        (4, (100, 2), {}, [(4, "t"), (4, "v"), (8, "ts"), (8, "v")]),
        (None, (2, 1), {}, [(2, "s"), (4, "s"), (6, "s"), (8, "s")]),
        (4, (1, 1), {"max_iters": 5, "train": {"val_interval": 2}},
         [(1, "s"), (2, "s"), (2, "v"), (3, "s"), (4, "ts"), (4, "v"), (5, "s"), (5, "v")]),
    ],
)  # fmt: skip
def test_the_numbers_are_in_the_record_of_their_step_or_one_of_their_own(
    clock: Clock, interval: int | None, freqs: tuple[int, int], parts: dict[str, Any], found: list[tuple[int, str]]
) -> None:
    writer = MemoryWriter()
    hook = StatsMonitorHook(step_log_freq=freqs[0], epoch_log_freq=freqs[1])
    defaults = {"logger": {"interval": interval}} if interval else NO_DEFAULTS
    monitored(clock, 1.0, hook, writers=[writer], default_hooks=defaults, **parts)
    assert records(writer) == found


def test_a_separate_record_is_complete(clock: Clock) -> None:
    writer = MemoryWriter()
    monitored(clock, 2.0, max_epochs=1, writers=[writer], default_hooks=NO_DEFAULTS, val=None)
    speed = {"train/stats/samples_per_second": 4.0, "train/stats/step_time": 2.0}
    rest = {"train/stats/lr": 0.1, "train/stats/process_mib": 300.0}
    assert writer.records == [
        {"step": 2, "epoch": 1, **speed, "train/stats/eta": 4.0, **rest},
        {"step": 4, "epoch": 1, **speed, "train/stats/eta": 0.0, **rest},
    ]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_run_that_fails_loses_no_numbers(clock: Clock, error: type[BaseException]) -> None:
    writer = MemoryWriter()
    runner = toy_runner(custom_hooks=[StatsMonitorHook(step_log_freq=3), Passing(clock, 1.0)], writers=[writer])

    @runner.on("after_backward")
    def fail(runner: Runner) -> None:
        if runner.iter == 3:
            raise error

    with pytest.raises(error):
        runner.train()
    assert records(writer) == [(3, "s")]


def test_a_stop_loses_no_numbers(clock: Clock) -> None:
    writer = MemoryWriter()
    runner = toy_runner(custom_hooks=[StatsMonitorHook(step_log_freq=3), Passing(clock, 1.0)], writers=[writer])
    runner.on("after_train_iter", every=3)(lambda runner: runner.stop("enough"))
    runner.train()
    assert records(writer) == [(3, "s")]


@pytest.mark.parametrize("saved_at", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("by", ["max_epochs", "max_iters"])
def test_a_resumed_run_has_the_same_records_and_weights(clock: Clock, tmp_path: Path, saved_at: int, by: str) -> None:
    length: dict[str, Any] = {"max_epochs": 2} if by == "max_epochs" else {"max_iters": 8, "train": {"val_interval": 4}}
    hooks = {"timer": None, "logger": {"interval": 4}, "checkpoint": {"interval": 100}}

    def runner(folder: str, **parts: Any) -> Runner:
        custom = [StatsMonitorHook(step_log_freq=3), Passing(clock, 1.0)]
        return toy_runner(work_dir=tmp_path / folder, custom_hooks=custom, default_hooks=hooks, **length, **parts)

    whole = runner("whole")
    whole.train()
    broken = runner("broken")

    @broken.on("after_train_iter")
    def save_and_fail(runner: Runner) -> None:
        if runner.iter + 1 == saved_at:
            runner.request_save()
        if runner.iter + 1 > saved_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken.train()
    resumed = runner("broken", resume=True)
    resumed.train()
    found = [
        [json.loads(line) for line in (tmp_path / folder / "metrics.jsonl").read_text().splitlines()]
        for folder in ("whole", "broken")
    ]
    assert found[0] == found[1]
    for name, value in whole.model.state_dict().items():
        assert value.equal(resumed.model.state_dict()[name])


# ------------------------------------------------------------------------------------------------- side effects


def test_nothing_is_read_from_the_device(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    for name in ("item", "tolist", "__float__", "__int__", "__bool__", "cpu"):

        def note(tensor: torch.Tensor, name: str = name) -> Any:
            read.append(name)
            return 0.0 if name != "tolist" else [True] * len(tensor)

        monkeypatch.setattr(torch.Tensor, name, note)
    hook = StatsMonitorHook(step_log_freq=3)
    runner = monitored(clock, 1.0, hook, val=None, default_hooks=NO_DEFAULTS, writers=[])
    assert stats(runner, "step_time") == [1.0] * 4
    # The loop checks the losses, and at the end the weights. Then the caller's random generators are restored.
    assert read == ["item"] * 8 + ["tolist"] * 2


def test_training_is_the_same_to_the_bit() -> None:
    having = toy_runner(custom_hooks=[StatsMonitorHook(step_log_freq=1, window_size=2)])
    without = toy_runner()
    for runner in (having, without):
        runner.train()
    for name, value in without.model.state_dict().items():
        assert value.equal(having.model.state_dict()[name])


def test_val_alone_is_not_measured(clock: Clock) -> None:
    runner = toy_runner(custom_hooks=[StatsMonitorHook(step_log_freq=1), Passing(clock)])
    runner.val()
    assert not [name for name in runner.hub.scalars if name.startswith("train/")]
    assert "StatsMonitorHook" not in [call.who for call in runner.plan.calls_at("after_val")]


def test_a_second_start_measures_from_scratch(clock: Clock) -> None:
    passing = Passing(clock, 1.0)
    runner = toy_runner(max_epochs=1, custom_hooks=[StatsMonitorHook(step_log_freq=4), passing])
    runner.train()
    clock.now += 500
    runner.train_loop.max_epochs, passing.step = 2, 3.0
    runner.train()
    assert stats(runner, "step_time") == [1.0, 3.0]


def test_registered_while_training_it_measures_from_the_next_step_on(clock: Clock) -> None:
    runner = toy_runner(max_epochs=2, custom_hooks=[Passing(clock, 2.0)])

    @runner.on("before_train_iter")
    def register(runner: Runner) -> None:
        if runner.iter == 1:
            runner.register_hook(StatsMonitorHook(step_log_freq=1))

    runner.train()
    assert stats(runner, "step_time") == [2.0] * 6


# ------------------------------------------------------------------------------------------------- constructing


def test_it_comes_between_timer_and_logger() -> None:
    names = [entry.name for entry in toy_runner(custom_hooks=[{"type": "StatsMonitorHook", "batch_size": 3}]).plan]
    assert names[1:5] == ["IterTimerHook", "DistSamplerSeedHook", "StatsMonitorHook", "LoggerHook"]


@pytest.mark.parametrize("name", ["batch_size", "steps_per_epoch", "step_log_freq", "epoch_log_freq", "window_size"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "8", None])
def test_wrong_parameters_are_refused(name: str, value: Any) -> None:
    given: dict[str, Any] = {name: value}
    if value is None and name in ("batch_size", "steps_per_epoch"):
        StatsMonitorHook(**given)
        return
    with pytest.raises(ConfigError) as refused:
        StatsMonitorHook(**given)
    assert str(refused.value) == f"StatsMonitorHook: {name} must be an int of at least 1, not {value!r}"
