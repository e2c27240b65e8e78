"""SyncBuffersHook: exact values of every buffer in several real processes or one, and when they are averaged."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import distributed, nn

from hookline.engine.steps import cross_entropy
from hookline.errors import DistributedError, exit_code_of
from hookline.hooks import EMAHook, SyncBuffersHook, sync_buffers
from hookline.testing import toy_data, toy_model, toy_runner
from tests.faults.children import close_all, start

if TYPE_CHECKING:
    from hookline import Runner

State = dict[str, torch.Tensor]


@pytest.fixture(autouse=True)
def _end_children() -> Iterator[None]:
    yield
    close_all()


def in_group(scenario: str, rank: int, world: int, folder: str) -> None:
    """Run a scenario in one process of the group. The processes meet through a file."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world, timeout=timedelta(seconds=30)
    )
    try:
        torch.save(globals()[scenario](rank, Path(folder)), f"{folder}/result-{rank}.pt")
    finally:
        distributed.destroy_process_group()


def together(scenario: str, folder: Path, world: int = 2) -> list[Any]:
    """Return what a scenario returns in each of several processes."""
    children = [start(in_group, scenario, rank, world, str(folder)) for rank in range(world)]
    codes = [child.wait() for child in children]
    assert codes == [0] * world, "\n".join(child.output() for child in children)
    return [torch.load(folder / f"result-{rank}.pt", weights_only=True) for rank in range(world)]


def assert_same(ours: State, theirs: State) -> None:
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype
        assert ours[name].equal(value), name


def buffers_of(model: nn.Module) -> State:
    return {name: value.clone() for name, value in model.named_buffers()}


# ---------------------------------------------------------------------------------------------------- values


LOWEST = torch.finfo(torch.float32).min


def constant() -> torch.Tensor:
    """Return numbers that are equal in all processes."""
    return torch.randn(1000, generator=torch.Generator().manual_seed(0))


def averaged(rank: int, folder: Path) -> State:
    """Average buffers of all kinds that are different in every process."""
    model, inner = nn.Module(), nn.BatchNorm1d(2)
    inner.running_mean = torch.tensor([1.0, 2.0]) * rank
    inner.num_batches_tracked = torch.tensor(10 - 3 * rank)
    model.norm = inner
    model.weight = nn.Parameter(torch.tensor([float(rank)]))
    kinds = {
        "float32": torch.tensor([[0.5, -3.0]]) * rank,
        "float64": torch.tensor(1.5, dtype=torch.float64) * rank,
        "float16": torch.tensor([60000.0, 3.0 * rank], dtype=torch.float16),
        "brain": torch.tensor([256.0, 6.0 * rank], dtype=torch.bfloat16),
        "complex": torch.tensor([complex(3 * rank, -6 * rank)]),
        "constant": constant(),
        "mask": torch.tensor([float("-inf"), float("inf"), LOWEST, 0.0]),
        "long": torch.tensor([5, -rank, 2**60 + rank]),
        "int": torch.tensor([rank], dtype=torch.int32),
        "short": torch.tensor([-7 * rank], dtype=torch.int16),
        "byte": torch.tensor([[200 + rank]], dtype=torch.uint8),
        "bool": torch.tensor([False, rank == 1, True]),
        "turned": (torch.arange(6.0).reshape(2, 3) * rank).T,
        "none": torch.zeros(0, 3),
        "sparse": torch.eye(2).to_sparse() * rank,
    }
    for name, value in kinds.items():
        model.register_buffer(name, value)
    model.register_buffer("unsaved", torch.tensor([9.0]) * rank, persistent=False)
    inner.register_buffer("again", model.get_buffer("float32"))
    sync_buffers.average_buffers(model)
    assert model.get_buffer("float32") is inner.again
    assert not model.get_buffer("turned").is_contiguous()
    model.sparse = model.get_buffer("sparse").to_dense()
    return buffers_of(model) | {"weight": model.weight.detach()}


@pytest.mark.parametrize("world", [2, 3])
def test_every_buffer_is_the_same_everywhere_afterwards(tmp_path: Path, world: int) -> None:
    results = together("averaged", tmp_path, world)
    mean = (world - 1) / 2
    expected: dict[str, Any] = {
        "norm.running_mean": torch.tensor([1.0, 2.0]) * mean,
        "norm.num_batches_tracked": torch.tensor(10),
        "norm.running_var": torch.ones(2),
        "float32": torch.tensor([[0.5, -3.0]]) * mean,
        "float64": torch.tensor(1.5, dtype=torch.float64) * mean,
        "float16": torch.tensor([60000.0, 3 * mean], dtype=torch.float16),
        "brain": torch.tensor([256.0, 6 * mean], dtype=torch.bfloat16),
        "complex": torch.tensor([complex(3 * mean, -6 * mean)]),
        "constant": constant(),
        "mask": torch.tensor([float("-inf"), float("inf"), LOWEST, 0.0]),
        "long": torch.tensor([5, 0, 2**60 + world - 1]),
        "int": torch.tensor([world - 1], dtype=torch.int32),
        "short": torch.tensor([0], dtype=torch.int16),
        "byte": torch.tensor([[200 + world - 1]], dtype=torch.uint8),
        "bool": torch.tensor([False, True, True]),
        "turned": (torch.arange(6.0).reshape(2, 3) * mean).T,
        "none": torch.zeros(0, 3),
        "unsaved": torch.tensor([9.0]) * mean,
    }
    for rank, found in enumerate(results):
        assert found.pop("weight").tolist() == [rank]
        assert found.pop("sparse").equal(torch.eye(2) * rank)
        assert_same(dict(sorted(found.items())), dict(sorted(expected.items())))


# ------------------------------------------------------------------------------------------------------ when


def net() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


def runner_of(rank: int, folder: Path, *hooks: Any, **parts: Any) -> Runner:
    """Return a run with its own data, in its own folder."""
    given: dict[str, Any] = {"work_dir": folder / f"{parts.pop('name', 'run')}-{rank}", "model": net(), **parts}
    runner = toy_runner(custom_hooks=[SyncBuffersHook(), *hooks], **given)
    runner.train_loop.dataloader = toy_data(4, seed=10 + rank)
    return runner


def recorded() -> list[tuple[int, State, State]]:
    """Return a list that a runner fills with the number and the buffers before and after each averaging."""
    events: list[tuple[int, State, State]] = []
    real = sync_buffers.average_buffers

    def average(model: nn.Module) -> None:
        before = buffers_of(model)
        real(model)
        events.append((len(events), before, buffers_of(model)))

    sync_buffers.average_buffers = average  # this process is used for nothing else
    return events


def points_of(runner: Runner, events: list[Any]) -> list[list[Any]]:
    """Return the place in training, and how often buffers were averaged so far."""
    seen: list[list[Any]] = []

    def watch(point: str) -> None:
        runner.on(point, priority="LOWEST")(lambda runner: seen.append([point, runner.iter, len(events)]))

    for point in ("before_train", "after_train_iter", "before_val", "after_train"):
        watch(point)
    return seen


def by_epochs(rank: int, folder: Path) -> Any:
    events = recorded()
    runner = runner_of(rank, folder, max_epochs=2)
    seen = points_of(runner, events)
    runner.on("after_train_iter")(lambda runner: runner.request_val() if runner.iter == 5 else None)
    runner.train()
    runner.val()
    runner.test()
    return {"seen": seen, "events": events, "last": buffers_of(runner.model)}


def by_iterations(rank: int, folder: Path) -> Any:
    events = recorded()
    runner = runner_of(rank, folder, max_iters=6, train={"val_interval": 3, "val_begin": 0})
    seen = points_of(runner, events)
    runner.train()
    return {"seen": seen, "events": events, "last": buffers_of(runner.model)}


def stopped(rank: int, folder: Path) -> Any:
    events = recorded()
    runner = runner_of(rank, folder, max_epochs=2)
    seen = points_of(runner, events)
    runner.on("after_train_iter")(lambda runner: runner.stop("enough") if runner.iter == 5 else None)
    runner.train()
    saved = torch.load(runner.work_dir / "iter_6.pth", weights_only=True)
    assert saved["hooks"]["SyncBuffersHook"] == {"synced_at": 6}
    for name, value in buffers_of(runner.model).items():
        assert saved["state_dict"][name].equal(value)
    return {"seen": seen, "events": events, "last": buffers_of(runner.model)}


def failed(rank: int, folder: Path) -> Any:
    """Fail in the middle of an epoch, and evaluate afterwards."""
    events = recorded()
    runner = runner_of(rank, folder, max_epochs=2)
    seen = points_of(runner, events)
    runner.on("before_backward")(lambda runner: 1 // (6 - runner.iter))
    with suppress(ZeroDivisionError):
        runner.train()
    runner.val()
    runner.test()
    return {"seen": seen, "events": events, "last": events[0][2]}


STEPS = {
    "failed": [
        ["before_train", 0, 0],
        *[["after_train_iter", i, 0] for i in range(4)],
        ["before_val", 4, 1],
        *[["after_train_iter", i, 1] for i in (4, 5)],
        ["before_val", 6, 1],
    ],
    "by_epochs": [
        ["before_train", 0, 0],
        *[["after_train_iter", i, 0] for i in range(4)],
        ["before_val", 4, 1],
        *[["after_train_iter", i, 1] for i in (4, 5)],
        ["before_val", 6, 2],
        *[["after_train_iter", i, 2] for i in (6, 7)],
        ["before_val", 8, 3],
        ["after_train", 8, 3],
        ["before_val", 8, 3],
    ],
    "by_iterations": [
        ["before_train", 0, 0],
        ["before_val", 0, 0],
        *[["after_train_iter", i, 0] for i in range(3)],
        ["before_val", 3, 1],
        *[["after_train_iter", i, 1] for i in (3, 4, 5)],
        ["before_val", 6, 2],
        ["after_train", 6, 2],
    ],
    "stopped": [
        ["before_train", 0, 0],
        *[["after_train_iter", i, 0] for i in range(4)],
        ["before_val", 4, 1],
        *[["after_train_iter", i, 1] for i in (4, 5)],
        ["after_train", 6, 2],
    ],
}


@pytest.mark.parametrize("scenario", STEPS)
def test_buffers_are_averaged_exactly_where_training_went_on_since(tmp_path: Path, scenario: str) -> None:
    one, two = together(scenario, tmp_path)
    assert one["seen"] == two["seen"] == STEPS[scenario]
    for (_, mine, after), (_, yours, too) in zip(one["events"], two["events"], strict=True):
        assert not mine["1.running_mean"].equal(yours["1.running_mean"])
        means = {name: ((value.double() + yours[name].double()) / 2).to(value.dtype) for name, value in mine.items()}
        assert_same(after, means)
        assert_same(too, means)
    assert_same(one["last"], two["last"])


# ----------------------------------------------------------------------------------- saving, resuming, failing


def resumed(rank: int, folder: Path) -> Any:
    """Fail after the first epoch was saved, but before it was validated."""
    whole = runner_of(rank, folder, max_epochs=2, name="whole")
    whole.train()
    broken = runner_of(rank, folder, max_epochs=2, name="broken")
    broken.on("before_val")(lambda runner: 1 // 0)
    with suppress(ZeroDivisionError):
        broken.train()
    events = recorded()
    again = runner_of(rank, folder, max_epochs=2, name="broken", resume=True)
    seen = points_of(again, events)
    again.train()
    assert_same(again.model.state_dict(), whole.model.state_dict())
    return seen


def test_a_resumed_run_averages_no_more_often_than_a_whole_one(tmp_path: Path) -> None:
    steps = [["after_train_iter", i, 0] for i in (4, 5, 6, 7)]
    expected = [["before_train", 4, 0], ["before_val", 4, 0], *steps, ["before_val", 8, 1], ["after_train", 8, 1]]
    assert together("resumed", tmp_path) == [expected, expected]


def left_alone(rank: int, folder: Path) -> Any:
    """Average when the other process is gone."""
    runner = runner_of(rank, folder, max_epochs=1)
    if rank == 1:
        return None
    try:
        runner.train()
    except DistributedError as error:
        return [str(error).split(": ")[:2], exit_code_of(error), error.__notes__[0].split(" (")[0]]
    return None


def test_a_group_that_fails_ends_the_run_with_the_name_of_the_hook(tmp_path: Path) -> None:
    found, _ = together("left_alone", tmp_path)
    assert found == [
        ["SyncBuffersHook", "cannot average the buffers over 2 processes"],
        6,
        "in hook SyncBuffersHook, at after_train_epoch, epoch=0 iter=4 rank=0",
    ]


def with_average(rank: int, folder: Path) -> Any:
    """Average the training buffers, even if EMAHook has its own buffers in the model."""
    events = recorded()
    average = EMAHook(momentum=0.5, update_buffers=True)
    runner = runner_of(rank, folder, average, max_iters=4, train={"val_interval": 2})
    raw: list[State] = []
    runner.on("after_train_iter")(lambda runner: raw.append(buffers_of(runner.model)))
    runner.train()
    assert_same(events[0][1], raw[1])
    return events[0][2]


def test_the_buffers_of_the_training_are_meant_and_not_an_average_of_them(tmp_path: Path) -> None:
    one, two = together("with_average", tmp_path)
    assert_same(one, two)


# ------------------------------------------------------------------------------------------------ one process


@pytest.mark.parametrize("late", [False, True])
def test_in_one_process_there_is_nothing_to_do(late: bool) -> None:
    hook = SyncBuffersHook()
    runner = toy_runner(max_epochs=2, custom_hooks=[] if late else [hook])
    if late:
        runner.on("before_train_iter")(lambda runner: runner.register_hook(hook) if runner.iter == 1 else None)
    runner.train()
    if not late:
        for point in ("after_train_epoch", "after_train", "around_val"):
            assert hook not in [getattr(call.method, "__self__", None) for call in runner.plan.calls_at(point)]
    plain = toy_runner(max_epochs=2)
    plain.train()
    assert_same(dict(runner.model.state_dict()), dict(plain.model.state_dict()))
    assert hook.state_dict() == {"synced_at": 0}


def test_it_stands_before_the_hook_that_puts_other_buffers_into_the_model() -> None:
    runner = toy_runner(custom_hooks=[EMAHook(), "SyncBuffersHook"])
    names = [entry.name for entry in runner.plan]
    assert names.index("EMAHook") == names.index("SyncBuffersHook") + 1
    assert [entry.priority for entry in runner.plan if entry.name == "SyncBuffersHook"] == [50]


def test_it_is_built_from_a_config_and_its_state_comes_back(tmp_path: Path) -> None:
    parts: dict[str, Any] = {"custom_hooks": [{"type": "SyncBuffersHook"}], "work_dir": tmp_path}
    toy_runner(max_epochs=1, **parts).train()
    runner = toy_runner(max_epochs=2, resume=True, **parts)
    runner.train()
    whole = toy_runner(max_epochs=2)
    whole.train()
    assert_same(dict(runner.model.state_dict()), dict(whole.model.state_dict()))
    runner.val()
    hook = SyncBuffersHook()
    hook.load_state_dict({"synced_at": 7})
    assert hook.state_dict() == {"synced_at": 7}


def test_an_exception_in_the_step_is_its_own() -> None:
    def step(model: nn.Module, batch: Any) -> torch.Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        toy_runner(step=step, custom_hooks=[SyncBuffersHook()]).train()
    assert cross_entropy(toy_model(), toy_data(1)[0]).isfinite()


def test_making_the_hook_does_not_import_torch() -> None:
    code = "import sys; from hookline.hooks import SyncBuffersHook; SyncBuffersHook(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
