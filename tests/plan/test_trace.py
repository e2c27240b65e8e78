"""Chrome traces: what is in them, how large they become, and that they are valid JSON at any time."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hookline import Hook, Runner
from hookline.errors import ConfigError, HookError, StorageError
from hookline.plan import trace
from hookline.testing import toy_runner
from tests.clock import Clock


class Ticks(Hook):
    """Advances the clock by one second at each of its points."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def before_train_iter(self) -> None:
        self.clock.now += 1

    def after_val_epoch(self) -> None:
        self.clock.now += 1


def events_of(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return found


def spans_of(path: Path, *kinds: str) -> list[tuple[str, float, float]]:
    """Return name, begin and end of the spans, in the order in which they end, in seconds since the first."""
    found = [event for event in events_of(path) if event["ph"] == "X" and event["cat"] in kinds]
    first = min(event["ts"] for event in found)
    return [(event["name"], (event["ts"] - first) / 1e6, (event["ts"] + event["dur"] - first) / 1e6) for event in found]


def test_steps_parts_points_and_hooks_are_on_one_timeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)

    def step(model: Any, batch: Any) -> Any:
        clock.now += 4
        return model(batch[0]).square().mean()

    runner = toy_runner(max_epochs=1, batches=2, step=step, custom_hooks=[Ticks(clock)])
    runner.trace(tmp_path / "trace.json")
    runner.train()
    assert spans_of(tmp_path / "trace.json", "step") == [("step 1", 0.0, 5.0), ("step 2", 5.0, 10.0)]
    assert spans_of(tmp_path / "trace.json", "part")[:8] == [
        ("forward", 0.0, 4.0),
        ("backward", 4.0, 4.0),
        ("optimizer", 4.0, 4.0),
        ("forward", 5.0, 9.0),
        ("backward", 9.0, 9.0),
        ("optimizer", 9.0, 9.0),
        ("saving", 9.0, 9.0),
        ("validation", 9.0, 10.0),
    ]
    longest = [span[0] for span in spans_of(tmp_path / "trace.json", "hook", "point") if span[2] > span[1]]
    assert longest == [
        *["Ticks.before_train_iter", "before_train_iter"] * 2,
        *["Ticks.after_val_epoch", "after_val_epoch"],
    ]
    events = events_of(tmp_path / "trace.json")
    assert [event["args"]["name"] for event in events if event["ph"] == "M"] == [
        f"{runner.experiment_name} rank 0",
        "training",
    ]
    assert {event["pid"] for event in events} == {event["tid"] for event in events} == {0}
    hook = next(event for event in events if event["name"] == "Ticks.before_train_iter")
    assert hook["args"] == {"hook": "Ticks", "point": "before_train_iter"}


def test_after_the_first_steps_one_of_31_is_traced(tmp_path: Path) -> None:
    runner = toy_runner(max_iters=100)
    runner.trace(tmp_path / "trace.json", steps=5)
    runner.train()
    names = [name for name, _, _ in spans_of(tmp_path / "trace.json", "step")]
    assert names == [*(f"step {number}" for number in range(1, 6)), "step 36", "step 67", "step 98"]
    assert runner.costs().sampled_steps == 8
    assert runner.costs().parts["forward"].calls == 100
    runner = toy_runner(max_iters=20)
    runner.trace(tmp_path / "short.json", steps=5)
    runner.train()
    assert runner.costs().parts["forward"].calls == 20, "no step after the first five was measured, so they are typical"
    runner = toy_runner(max_iters=40)
    runner.trace(tmp_path / "few.json", steps=0)
    runner.train()
    assert [name for name, _, _ in spans_of(tmp_path / "few.json", "step")] == ["step 2", "step 33"]


def test_a_trace_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST", 50)
    runner = toy_runner(max_iters=40)
    runner.trace(tmp_path / "trace.json")
    runner.train()
    events = events_of(tmp_path / "trace.json")
    assert len(events) == 50
    assert events[-1]["name"] == "the trace is full"


def test_it_is_valid_json_at_every_step_and_when_the_run_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "BATCH", 1)
    sizes: list[int] = []
    runner = toy_runner(max_iters=10)
    runner.trace(tmp_path / "trace.json")

    @runner.on("after_train_iter")
    def read(runner: Runner) -> None:
        sizes.append(len(events_of(tmp_path / "trace.json")))
        if runner.iter == 5:
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        runner.train()
    assert sizes == sorted(set(sizes))
    assert len(sizes) == 6
    found = Counter(event["name"] for event in events_of(tmp_path / "trace.json"))
    assert [found[name] for name in ("step 6", "forward", "optimizer", "before_train_iter")] == [1, 6, 6, 6]


def test_the_next_training_is_not_traced_and_an_earlier_trace_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "trace.json"
    for steps in (10, 3):
        runner = toy_runner(max_iters=steps)
        runner.trace(path)
        runner.train()
        assert len(spans_of(path, "step")) == steps
    runner.train_loop.max_iters = 6
    runner.train()
    assert len(spans_of(path, "step")) == 3


def test_every_process_has_a_file(tmp_path: Path) -> None:
    made = trace.Trace(tmp_path / "trace.json", rank=2, name="run")
    made.close()
    assert [path.name for path in tmp_path.iterdir()] == ["trace.rank2.json"]
    [process, thread] = events_of(tmp_path / "trace.rank2.json")
    assert (process["pid"], process["args"]["name"], thread["pid"]) == (2, "run rank 2", 2)


def test_a_file_that_cannot_be_written_is_refused_at_once_and_unchanged(tmp_path: Path) -> None:
    config, folder, pipe = tmp_path / "digits.yaml", tmp_path / "folder", tmp_path / "pipe"
    config.write_text("model: mine\n")
    folder.mkdir()
    os.mkfifo(pipe)
    runner = toy_runner()
    with pytest.raises(StorageError) as refused:
        runner.trace(config)
    assert str(refused.value) == (
        f"{config} exists and is not a trace, so it is not replaced; give another name to the trace"
    )
    assert config.read_text() == "model: mine\n"
    for path, kind in ((folder, "a folder"), (pipe, "a named pipe")):
        with pytest.raises(StorageError) as refused:
            runner.trace(path)
        assert str(refused.value) == (
            f"{path} is {kind}, so no trace can be written there; give the name of a file, such as trace.json"
        )
    for path in (config / "trace.json", Path("/proc/trace.json")):
        with pytest.raises(StorageError):
            runner.trace(path)
    with pytest.raises(ConfigError, match="the file of a trace cannot have a NUL character in its name: 'a\\\\x00b'"):
        runner.trace("a\0b")
    with pytest.raises(ConfigError, match="the number of traced steps must be"):
        runner.trace(tmp_path / "trace.json", steps=-1)
    runner.on("before_train")(lambda runner: runner.trace(tmp_path / "trace.json"))
    with pytest.raises(HookError, match=r"call it before runner\.train\(\)"):
        runner.train()


def test_a_full_disk_is_reported_once_and_the_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runner = toy_runner(max_iters=5, default_hooks={"checkpoint": None})
    runner.trace(tmp_path / "trace.json")
    monkeypatch.setattr(trace, "BATCH", 10)

    def no_space(*arguments: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", no_space)
    runner.train()
    text = (runner.work_dir / "run.log").read_text()
    assert text.count("trace.json cannot be written: No space left on device. The run continues without it.") == 1
    assert len(events_of(tmp_path / "trace.json")) == 2


def test_a_write_that_is_cut_off_leaves_a_valid_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runner = toy_runner(max_iters=5, default_hooks={"checkpoint": None})
    runner.trace(tmp_path / "trace.json")
    monkeypatch.setattr(trace, "BATCH", 10)
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, text, where: write(file, text[:20], where))
    runner.train()
    text = (runner.work_dir / "run.log").read_text()
    assert text.count("trace.json cannot be written: No space left on device. The run continues without it.") == 1
    assert len(events_of(tmp_path / "trace.json")) == 2
