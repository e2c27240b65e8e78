"""The verdict on runs in which something was planted, and on a healthy one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hookline import Hook, Optim, Runner, TrainLoop
from hookline.checkpoint import store
from hookline.report import verdict
from hookline.report.downsample import Curve
from hookline.report.gather import gather_run
from hookline.steps import cross_entropy
from hookline.testing import toy_data, toy_model, toy_runner


def verdict_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = gather_run(folder)["verdict"]
    return found


def train(folder: Path, **parts: Any) -> Path:
    hooks = {"logger": {"interval": 1}, "checkpoint": None, **parts.pop("default_hooks", {})}
    runner = toy_runner(work_dir=folder, default_hooks=hooks, **parts)
    runner.terminal.quiet = True
    runner.train()
    return folder


class SlowLoader:
    def __len__(self) -> int:
        return 12

    def __iter__(self) -> Iterator[Any]:
        for batch in list(toy_data())[:1] * 12:
            time.sleep(0.1)
            yield batch


def test_a_slow_loader(tmp_path: Path) -> None:
    model = toy_model()
    loop = TrainLoop(SlowLoader(), cross_entropy, max_epochs=1)
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1))
    hooks = {"logger": {"interval": 1}}
    Runner(model, train=loop, optim=optim, default_hooks=hooks, work_dir=tmp_path, quiet=True, device="cpu").train()
    found = verdict_of(tmp_path)
    assert found["kind"] == "data"
    assert found["text"].startswith("Training waits for data: ")
    assert "is waiting for the loader" in found["evidence"][0]
    assert found["advice"].startswith("Raise num_workers of the training loader (now 0)")


class SlowHook(Hook):
    def after_train_iter(self) -> None:
        time.sleep(0.04)


def test_a_slow_hook(tmp_path: Path) -> None:
    found = verdict_of(train(tmp_path, custom_hooks=[SlowHook()], max_iters=35))
    assert found["kind"] == "hook"
    assert found["text"].startswith("The hook SlowHook takes ")
    assert "mostly at after_train_iter: " in found["evidence"][0]
    assert found["advice"].startswith("Let SlowHook run less often")


def costs(**points: tuple[int, int, float]) -> dict[str, Any]:
    """Return the costs of one hook: calls, measured calls and seconds at each point."""
    found = {
        name: {"calls": calls, "measured": measured, "seconds": seconds, "mean": seconds / calls, "longest": seconds}
        for name, (calls, measured, seconds) in points.items()
    }
    hook = {"name": "A", "seconds": sum(each["seconds"] for each in found.values()), "points": found}
    return {"version": 1, "seconds": 10.0, "hooks": [hook], "parts": {}, "memory": []}


def test_work_that_was_measured_once_is_not_a_slow_hook() -> None:
    assert judge(hooks=costs(before_train=(1, 1, 6.8)))["kind"] == "healthy"
    assert judge(hooks=costs(after_train_iter=(31, 1, 6.8)))["kind"] == "healthy"
    found = judge(hooks=costs(before_train=(1, 1, 6.8), after_val_epoch=(2, 2, 1.5)))
    assert (found["text"], found["evidence"]) == (
        "The hook A takes 15% of the time.",
        ["1.5s of 10s in total, mostly at after_val_epoch: 750 ms per call, 1.5e+03 ms at most."],
    )


def test_slow_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = store.write

    def write_slowly(*given: Any) -> str:
        time.sleep(0.15)
        return write(*given)

    monkeypatch.setattr(store, "write", write_slowly)
    checkpoint = {"interval": 1, "by_epoch": False, "max_keep_ckpts": 1}
    found = verdict_of(train(tmp_path, default_hooks={"checkpoint": checkpoint}, max_iters=10))
    assert found["kind"] == "saves"
    assert found["text"].startswith("Saving checkpoints takes ")
    assert found["evidence"][0].startswith("10 saves took ")
    assert "async_save: true" in found["advice"]


class LeakingHook(Hook):
    role = "observer"
    draws_random_numbers = False

    def __init__(self) -> None:
        self.kept: list[torch.Tensor] = []

    def after_train_iter(self, runner: Any) -> None:
        self.kept.append(torch.zeros(64 << 10))


def test_a_leaking_hook(tmp_path: Path) -> None:
    found = verdict_of(train(tmp_path, custom_hooks=[LeakingHook()], max_iters=320))
    assert found["kind"] == "memory"
    assert found["text"] == "The memory of tensors grows all the time; the hook LeakingHook keeps it."
    assert found["evidence"][1].startswith("LeakingHook holds ")
    assert found["advice"].endswith("in LeakingHook.")


def test_a_loss_that_spiked(tmp_path: Path) -> None:
    steps = iter(range(1, 1000))

    def step(model: Any, batch: Any) -> Any:
        inputs, target = batch
        loss = torch.nn.functional.cross_entropy(model(inputs), target)
        return loss + (50.0 if next(steps) == 40 else 0.0)

    found = verdict_of(train(tmp_path, step=step, max_iters=60))
    assert (found["kind"], found["text"]) == ("loss", "The loss spiked at step 40.")
    assert found["evidence"][0].endswith("it came back down.")
    assert "clip_norm" in found["advice"]


def test_a_healthy_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "LEAST_SECONDS", 30.0)  # the machine may be slow
    found = verdict_of(train(tmp_path, max_iters=70))
    assert (found["kind"], found["text"], found["others"]) == ("healthy", "Nothing stands out.", [])
    assert found["evidence"] == ["Checked: the loss, waiting for data, hooks, saves and memory."]


def curve(values: Any) -> Curve:
    made = Curve()
    made.add(np.arange(1, len(values) + 1), np.array(values, np.float64))
    return made


def judge(**changes: Any) -> dict[str, Any]:
    curves = changes.pop("curves", {})
    data = {"status": "finished", "steps": 1000, "loss": None, "hooks": None, "config": [], "marks": [], "warnings": []}
    return verdict.judge({**data, **changes}, curves)


def test_a_slow_rank() -> None:
    curves = {
        "train/ranks/slowest": curve([0.4] * 10),
        "train/ranks/fastest": curve([0.1] * 10),
        "train/ranks/slowest_rank": curve([3, 3, 3, 1, 3, 3, 3, 3, 3, 3]),
        "train/ranks/data_spread": curve([0.3] * 10),
        "train/ranks/forward_spread": curve([0.01] * 10),
    }
    found = judge(curves=curves)
    assert (found["kind"], found["text"]) == ("rank", "Rank 3 is slow, and all others wait for it.")
    assert found["evidence"] == [
        "Its own work takes 400 ms per step, the fastest rank's 100 ms. It was the slowest in 90% of the "
        "records, mostly because of data: 300 ms more."
    ]
    curves["train/ranks/slowest_rank"] = curve([0, 1, 2, 3, 0, 1, 2, 3, 0, 1])
    assert judge(curves=curves)["kind"] == "healthy"


def test_a_failed_and_a_killed_run_come_first() -> None:
    waits = {"train/time": curve([0.2] * 5), "train/data_time": curve([0.1] * 5)}
    text = "DataError: no\na\nb\nc\nd\ne"
    failed = judge(status="failed", warnings=[{"kind": "failure", "step": 990, "text": text}], curves=waits)
    assert (failed["text"], failed["evidence"]) == ("The run failed at step 990.", ["DataError: no", "c", "d", "e"])
    assert [other["kind"] for other in failed["others"]] == ["data"]
    killed = judge(status="killed", marks=[{"kind": "kill", "step": 1000}])
    assert killed["text"] == "The run was killed at step 1,000."
    assert "--resume" in killed["advice"]
    assert killed["evidence"] == ["Its process is gone, and events.jsonl records no end."]
    twice = judge(status="killed", marks=[{"kind": "kill", "step": 500}, {"kind": "kill", "step": 1000}])
    assert twice["evidence"] == [
        "Its process is gone, and events.jsonl records no end. It was killed 2 times in total."
    ]


def test_a_loss_that_is_not_finite() -> None:
    found = judge(loss="loss", curves={"loss": curve([1.0, float("nan"), 1.0])})
    assert found["text"] == "The loss is not a finite number at step 2."
    assert found["evidence"] == ["1 of 3 values of loss are NaN or Inf."]


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_not_a_spike(seed: int) -> None:
    noise = np.random.default_rng(seed)
    steps = np.arange(3000)
    losses = 2 * np.exp(-steps / 400) + 0.2 + noise.gamma(2.0, 0.05, 3000)  # with a long tail, as real losses have
    assert judge(loss="loss", curves={"loss": curve(losses)})["kind"] == "healthy"
    losses[2000] += 5
    assert judge(loss="loss", curves={"loss": curve(losses)})["text"] == "The loss spiked at step 2,001."


def test_a_cache_that_fills_once_is_not_a_leak() -> None:
    def memory(values: list[float]) -> dict[str, Any]:
        samples = [{"step": number, "resident": value * 2**20} for number, value in enumerate(values)]
        return {"version": 1, "seconds": 1.0, "hooks": [], "parts": {}, "memory": samples}

    assert judge(hooks=memory([500, 700, 900, 1000, 1000, 1000, 1001, 1000]))["kind"] == "healthy"
    found = judge(hooks=memory([500, 600, 700, 800, 900, 1000, 1100, 1200]))
    assert (found["kind"], found["evidence"]) == ("memory", ["From 700 MiB at step 2 to 1.17 GiB at step 7."])


@pytest.mark.parametrize(
    "hooks",
    [
        {"hooks": [None, 3, {"name": "A"}], "seconds": "x", "parts": [], "memory": [1, {}]},
        {"hooks": [{"name": "A", "seconds": 5.0, "points": [], "memory": 3}], "seconds": 10.0, "parts": {"saving": 1}},
        {"hooks": [{"name": "A", "seconds": float("nan")}], "seconds": float("inf"), "memory": None},
    ],
)
def test_a_file_that_something_else_has_written_is_no_problem(hooks: dict[str, Any]) -> None:
    assert judge(hooks=hooks)["kind"] in ("healthy", "hook")
