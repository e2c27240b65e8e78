"""The six default hooks: exact sequences of what they record and when."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.sampler import Sampler

from hookline import Hook
from hookline.errors import ConfigError
from hookline.hooks import IterTimerHook, LoggerHook, RuntimeInfoHook
from hookline.testing import MemoryWriter, toy_data, toy_runner


def logged_steps(batches: int, by: str = "max_epochs", **logger: Any) -> list[int]:
    writer = MemoryWriter()
    length: Any = {by: 2 if by == "max_epochs" else 10}
    toy_runner(batches=batches, writers=[writer], default_hooks={"logger": logger}, val=None, **length).train()
    return [record["step"] for record in writer.records]


@pytest.mark.parametrize(
    ("batches", "by", "logger", "steps"),
    [
        (6, "max_epochs", {"interval": 3}, [3, 6, 9, 12]),
        (7, "max_epochs", {"interval": 3}, [3, 6, 10, 13]),
        (7, "max_epochs", {"interval": 3, "ignore_last": False}, [3, 6, 7, 10, 13, 14]),
        (4, "max_epochs", {"interval": 10}, [4, 8]),
        (4, "max_epochs", {}, [4, 8]),
        (4, "max_iters", {"interval": 4}, [4, 8]),
        (4, "max_iters", {"interval": 4, "ignore_last": False}, [4, 8, 10]),
        (4, "max_iters", {"interval": 100}, [10]),
    ],
)
def test_the_logger_logs_exactly_these_steps(batches: int, by: str, logger: dict[str, Any], steps: list[int]) -> None:
    assert logged_steps(batches, by, **logger) == steps


def test_losses_and_times_are_means_over_the_interval_and_rates_are_as_they_are() -> None:
    writer = MemoryWriter()
    losses: list[float] = []
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = (torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5), "iter")
    from hookline import Optim

    runner = toy_runner(
        model=model, max_epochs=1, batches=4, writers=[writer], default_hooks={"logger": {"interval": 2}},
        optim=Optim(optimizer, [scheduler]), val=None,
    )  # fmt: skip
    runner.on("after_train_iter")(lambda runner, outputs: losses.append(outputs["loss"].item()))
    runner.train()
    assert [record["train/lr"] for record in writer.records] == [0.5, 0.125]
    assert [record["train/loss"] for record in writer.records] == pytest.approx(
        [sum(losses[:2]) / 2, sum(losses[2:]) / 2], rel=1e-12
    )


def test_the_line_of_a_step_says_where_it_is_and_how_long_it_takes() -> None:
    runner = toy_runner(max_epochs=1, batches=2, default_hooks={"logger": {"interval": 2}})
    runner.train()
    line = (runner.work_dir / "run.log").read_text().splitlines()[0]
    loss = runner.hub.get_scalar("train/loss").mean(2)
    found = re.sub(r"[0-9.]+ ms \(data [0-9.]+\)", "TIMES", line.split("  ", 1)[1])
    assert found == f"epoch 1/1  iter 2/2  lr 0.1000  loss {loss:.4f}  TIMES  eta 0:00:00"


@pytest.mark.parametrize("interval", [0, -1, 1.5, True])
def test_an_interval_that_is_none_is_refused(interval: Any) -> None:
    with pytest.raises(ConfigError, match=f"^LoggerHook: interval must be an int of at least 1, not {interval!r}$"):
        LoggerHook(interval=interval)


def test_a_test_is_recorded_at_the_step_that_was_trained() -> None:
    runner = toy_runner(max_epochs=1)
    runner.train()
    runner.test()
    last = json.loads((runner.work_dir / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["step"], last["epoch"]) == (4, 1)
    assert sorted(last) == ["epoch", "step", "test/accuracy", "test/data_time", "test/time"]


def test_runtime_info_puts_facts_and_numbers_into_the_hub() -> None:
    def step(model: torch.nn.Module, batch: Any) -> dict[str, Any]:
        loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        return {"loss": loss, "share": 0.5, "logits": torch.zeros(3), "flag": True, "name": "x"}

    runner = toy_runner(max_epochs=2, batches=3, step=step, experiment_name="exp", seed=4)
    runner.train()
    hub = runner.hub
    facts = {
        name: hub.get_info(name) for name in ("experiment_name", "seed", "max_epochs", "max_iters", "epoch", "iter")
    }
    assert facts == {"experiment_name": "exp", "seed": 4, "max_epochs": 2, "max_iters": 6, "epoch": 1, "iter": 5}
    recorded = {name: len(history) for name, history in hub.scalars.items() if not name.endswith("time")}
    assert recorded == {"train/lr": 6, "train/loss": 6, "train/share": 6, "val/accuracy": 2}


def test_a_metric_that_is_no_single_number_becomes_a_fact() -> None:
    runner = toy_runner()
    RuntimeInfoHook().after_val_epoch(runner, {"accuracy": 0.5, "per_class": torch.tensor([1.0, 0.0])})
    assert runner.hub.get_scalar("val/accuracy").current() == 0.5
    assert runner.hub.get_info("val/per_class").tolist() == [1.0, 0.0]


class Clock:
    """A clock that the test controls."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_timer_counts_data_and_step_but_neither_validation_nor_saving(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)

    class Slow:
        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Any:
            for batch in toy_data(3):
                clock.now += 1
                yield batch

    class Passing(Hook):
        priority = "HIGH"

        def before_backward(self, runner: Any) -> None:
            clock.now += 10

        def before_val(self, runner: Any) -> None:
            clock.now += 1000

        def before_save_checkpoint(self, runner: Any) -> None:
            clock.now += 5000

    runner = toy_runner(max_iters=6, batches=3, train={"val_interval": 2}, custom_hooks=[Passing()])
    runner.train_loop.dataloader = Slow()
    etas: list[float] = []
    runner.on("after_train_iter")(lambda runner: etas.append(runner.hub.get_info("eta")))
    runner.train()
    assert runner.hub.get_scalar("train/data_time").last() == [1.0] * 6
    assert runner.hub.get_scalar("train/time").last() == [11.0] * 6
    assert etas == [55.0, 44.0, 33.0, 22.0, 11.0, 0.0]


def test_the_eta_restarts_with_every_start() -> None:
    hook = IterTimerHook()
    runner = toy_runner(max_epochs=1)
    hook.bind(runner)
    hook.before_train(runner)
    assert runner.hub.get_info("eta") is None


class Epochs(Sampler[int]):
    """A sampler with `set_epoch`."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __iter__(self) -> Any:
        return iter(range(4))

    def __len__(self) -> int:
        return 4


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize(("by", "amount", "epochs"), [("max_epochs", 3, [0, 1, 2]), ("max_iters", 5, [0, 1, 2])])
def test_samplers_learn_every_pass(inner: bool, by: str, amount: int, epochs: list[int]) -> None:
    sampler = Epochs()
    inputs, target = toy_data(1, 4)[0]
    data = TensorDataset(inputs, target)
    if inner:
        batches = torch.utils.data.BatchSampler(sampler, 2, False)
        loader: Any = DataLoader(data, batch_sampler=batches)
    else:
        loader = DataLoader(data, batch_size=2, sampler=sampler)
    length: Any = {by: amount}
    runner = toy_runner(**length)
    runner.train_loop.dataloader = loader
    runner.train()
    assert sampler.epochs == epochs


@pytest.mark.parametrize("clip", [{"clip_norm": 0.01}, {"clip_value": 0.001}])
def test_the_norm_before_an_optim_clips_is_recorded_once_a_window(clip: dict[str, float]) -> None:
    from hookline import Optim

    model = torch.nn.Linear(4, 2)
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1), accumulate=2, **clip)  # type: ignore[arg-type]
    writer = MemoryWriter()
    runner = toy_runner(
        model=model, optim=optim, batches=5, max_epochs=2, writers=[writer], val=None,
        default_hooks={"logger": {"interval": 1}},
    )  # fmt: skip
    norms: list[float] = []

    @runner.on("before_optimizer_step")
    def note(runner: Any) -> None:
        whole = torch.cat([p.grad.flatten() for p in runner.model.parameters()])
        norms.append(whole.norm().item())

    runner.train()
    assert len(norms) == 6
    assert [record.get("train/grad_norm") for record in writer.records] == pytest.approx(
        [None, norms[0], None, norms[1], norms[2], None, norms[3], None, norms[4], norms[5]]
    )
