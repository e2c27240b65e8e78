"""The examples in MMEngine's two documents about hooks: the design of hooks and the tutorial."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from hookline.dialects.mmengine.hooks import CheckpointHook, Hook
from hookline.dialects.mmengine.hooks.hook import STAGES
from hookline.dialects.mmengine.registry import HOOKS
from hookline.plan.plan import Plan
from hookline.plan.points import Point
from hookline.testing import toy_data
from tests.dialects.mmengine.parts import VAL, runner_of

if TYPE_CHECKING:
    from hookline.dialects.mmengine.runner import Runner


@pytest.fixture(autouse=True)
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HOOKS, "_registered", dict(HOOKS._registered))


# -- the design of hooks


def test_functions_before_and_after_something_without_changing_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Run the first example of the design, and the same with a plan, which works with any host object."""
    before: list[tuple[Callable[..., None], str]] = [(print, "hello")]
    after: list[tuple[Callable[..., None], str]] = [(print, "goodbye")]

    def work(first: list[Any], last: list[Any]) -> None:
        for function, word in first:
            function(word)
        print("working")
        for function, word in last:
            function(word)

    work(before, after)
    by_hand = capsys.readouterr().out
    plan = Plan(object(), table={name: Point(name) for name in ("before_work", "after_work")}, scopes={})
    plan.on("before_work", lambda host: print("hello"))
    plan.on("after_work", lambda host: print("goodbye"))
    plan.call("before_work", {})
    print("working")
    plan.call("after_work", {})
    assert capsys.readouterr().out == by_hand == "hello\nworking\ngoodbye\n"


def test_torchs_own_hooks_also_work() -> None:
    seen: list[tuple[str, Any, Any]] = []
    net = nn.Sequential(nn.Linear(3, 1))
    for module in net.children():
        module.register_forward_hook(lambda module, inputs, output: seen.append((str(module), inputs, output)))
    given = torch.tensor([[0.0, 1.0, 2.0]])
    found = net(given)
    assert seen == [("Linear(in_features=3, out_features=1, bias=True)", (given,), found)]


def test_the_points_of_a_run_are_in_the_order_of_the_design(tmp_path: Path) -> None:
    seen: list[str] = []

    def noting(name: str) -> Any:
        def method(self: Hook, runner: Any, **given: Any) -> None:
            seen.append(name)

        return method

    every_point = type("EveryPoint", (Hook,), {name: noting(name) for name in STAGES})
    runner_of(tmp_path / "first", train_cfg={"max_epochs": 1}, train_dataloader=toy_data(1)).train()
    runner = runner_of(
        tmp_path / "run", train_cfg={"max_epochs": 1}, train_dataloader=toy_data(1), val_dataloader=toy_data(1),
        test_dataloader=toy_data(1), custom_hooks=[every_point()], load_from=tmp_path / "first" / "epoch_1.pth",
    )  # fmt: skip
    runner.train()
    training, seen = seen, []
    runner.test()

    def around(stage: str) -> list[str]:
        return [
            *(f"before_{stage}", f"before_{stage}_epoch", f"before_{stage}_iter", f"after_{stage}_iter"),
            *(f"after_{stage}_epoch", f"after_{stage}"),
        ]

    assert training == [
        *("before_run", "after_load_checkpoint", "before_train", "before_train_epoch", "before_train_iter"),
        *(
            "after_train_iter",
            "after_train_epoch",
            "before_save_checkpoint",
            *around("val"),
            "after_train",
            "after_run",
        ),
    ]
    assert seen == ["before_run", *around("test"), "after_run"]
    assert set(training + seen) == set(STAGES)


# -- the tutorial


def run(folder: Path, **parts: Any) -> Runner:
    runner = runner_of(folder, **parts)
    runner.train()
    return runner


def test_default_and_custom_hooks_are_set_separately(tmp_path: Path) -> None:
    default_hooks = {
        "runtime_info": {"type": "RuntimeInfoHook"},
        "timer": {"type": "IterTimerHook"},
        "sampler_seed": {"type": "DistSamplerSeedHook"},
        "logger": {"type": "LoggerHook"},
        "param_scheduler": {"type": "ParamSchedulerHook"},
        "checkpoint": {"type": "CheckpointHook", "interval": 1},
    }
    runner = run(tmp_path / "run", default_hooks=default_hooks, custom_hooks=[{"type": "EMAHook"}])
    assert [type(hook).__name__ for hook in runner.hooks] == [
        *("RuntimeInfoHook", "IterTimerHook", "DistSamplerSeedHook", "EMAHook", "LoggerHook", "ParamSchedulerHook"),
        "CheckpointHook",
    ]


@pytest.mark.parametrize(
    ("saving", "expected"),
    [
        ({"interval": 5, "by_epoch": True}, ["epoch_10.pth", "epoch_15.pth", "epoch_20.pth", "epoch_5.pth"]),
        ({"interval": 5, "max_keep_ckpts": 2}, ["epoch_15.pth", "epoch_20.pth"]),
        ({"interval": 20, "by_epoch": False}, ["iter_20.pth", "iter_40.pth"]),
    ],
)
def test_checkpoints_of_twenty_epochs(tmp_path: Path, saving: dict[str, Any], expected: list[str]) -> None:
    default_hooks = {"checkpoint": dict(type="CheckpointHook", **saving)}
    run(tmp_path / "run", default_hooks=default_hooks, train_cfg={"max_epochs": 20}, train_dataloader=toy_data(2))
    assert sorted(path.name for path in (tmp_path / "run").glob("*.pth")) == expected


@pytest.mark.parametrize("saving", [{"save_best": "auto"}, {"save_best": "accuracy", "rule": "greater"}])
def test_best_checkpoints(tmp_path: Path, saving: dict[str, Any]) -> None:
    run(tmp_path / "run", default_hooks={"checkpoint": dict(type="CheckpointHook", interval=-1, **saving)})
    assert len(list((tmp_path / "run").glob("best_accuracy_epoch_*.pth"))) == 1


def test_a_custom_folder_and_published_weights(tmp_path: Path) -> None:
    saving = {
        "interval": 1,
        "out_dir": str(tmp_path / "elsewhere"),
        "save_best": "auto",
        "published_keys": ["state_dict"],
    }
    run(tmp_path / "run", default_hooks={"checkpoint": dict(type="CheckpointHook", **saving)})
    published = list((tmp_path / "elsewhere" / "run").glob("*-*.pth"))
    assert len(published) == 2
    assert all(list(torch.load(path, weights_only=True)) == ["state_dict"] for path in published)


def test_logs_every_twenty_iterations(tmp_path: Path) -> None:
    default_hooks = {"logger": {"type": "LoggerHook", "interval": 20}}
    run(tmp_path / "run", train_dataloader=toy_data(45), train_cfg={"max_epochs": 1}, default_hooks=default_hooks)
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if "train/loss" in record] == [20, 40]


@pytest.mark.parametrize(
    "hook",
    [
        {"type": "EMAHook"},
        {"type": "EMAHook", "ema_type": "StochasticWeightAverage"},
        {"type": "EmptyCacheHook", "after_epoch": True},
        {"type": "SyncBuffersHook"},
    ],
    ids=lambda hook: hook.get("ema_type", hook["type"]),
)
def test_custom_hooks_of_the_tutorial(tmp_path: Path, hook: dict[str, Any]) -> None:
    runner = run(tmp_path / "run", custom_hooks=[hook])
    assert hook["type"] in [type(each).__name__ for each in runner.hooks]


def make_check_invalid_loss() -> type[Hook]:
    @HOOKS.register_module()
    class CheckInvalidLossHook(Hook):
        """Checks the loss every `interval` iterations, and stops training when it is not finite."""

        def __init__(self, interval: int = 50) -> None:
            self.interval = interval
            self.checked: list[int] = []

        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            if self.every_n_train_iters(runner, self.interval):
                self.checked.append(runner.iter + 1)
                if not torch.isfinite(outputs["loss"]):
                    raise FloatingPointError(f"the loss is {outputs['loss'].item()}")

    return CheckInvalidLossHook


def test_a_custom_hook_can_replace_a_built_in_hook_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = make_check_invalid_loss()
    assert caplog.messages == [f"the hook 'CheckInvalidLossHook' from {__name__} replaces the built-in one"]
    runner = run(tmp_path / "run", custom_hooks=[{"type": "CheckInvalidLossHook", "interval": 3}])
    (hook,) = [each for each in runner.hooks if isinstance(each, own)]
    assert hook.checked == [3, 6]  # type: ignore[attr-defined]
    assert runner.hooks.index(hook) == 3


def test_its_priority_is_set_in_the_config(tmp_path: Path) -> None:
    make_check_invalid_loss()
    hook = {"type": "CheckInvalidLossHook", "interval": 3, "priority": "ABOVE_NORMAL"}
    runner = runner_of(tmp_path / "run", custom_hooks=[hook])
    assert [type(each).__name__ for each in runner.hooks][:3] == [
        *("RuntimeInfoHook", "CheckInvalidLossHook", "IterTimerHook")
    ]
    assert hook["priority"] == "ABOVE_NORMAL"


def test_it_finds_a_loss_that_is_not_finite(tmp_path: Path) -> None:
    make_check_invalid_loss()
    batch = (torch.full((8, 4), float("nan")), torch.zeros(8, dtype=torch.long))
    runner = runner_of(
        tmp_path / "run", VAL, train_dataloader=[*toy_data(2), batch],
        custom_hooks=[{"type": "CheckInvalidLossHook", "interval": 1, "priority": "HIGHEST"}],
    )  # fmt: skip
    with pytest.raises(FloatingPointError, match="^the loss is nan") as caught:
        runner.train()
    assert any("in hook CheckInvalidLossHook, at after_train_iter" in note for note in caught.value.__notes__)


def test_the_priorities_of_its_table() -> None:
    table = {
        **{"RuntimeInfoHook": "VERY_HIGH", "IterTimerHook": "NORMAL", "DistSamplerSeedHook": "NORMAL"},
        **{"LoggerHook": "BELOW_NORMAL", "ParamSchedulerHook": "LOW", "CheckpointHook": "VERY_LOW"},
        **{"EMAHook": "NORMAL", "EmptyCacheHook": "NORMAL", "SyncBuffersHook": "NORMAL"},
    }
    assert {name: HOOKS.get(name).priority for name in table} == table
    assert CheckpointHook.runs_after == ("ParamSchedulerHook",)


def test_a_sampler_shuffles_every_epoch_in_another_order(tmp_path: Path) -> None:
    orders: list[list[float]] = [[], []]

    class Reads(Hook):
        def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
            orders[runner.epoch] += data_batch[0][:, 0].tolist()

    samples = [(torch.full((4,), float(number)), torch.tensor(number % 2)) for number in range(8)]
    sampler, collate = {"type": "DefaultSampler", "shuffle": True}, {"type": "default_collate"}
    loader = {"dataset": samples, "batch_size": 2, "sampler": sampler, "collate_fn": collate}
    run(tmp_path, train_dataloader=loader, custom_hooks=[Reads()])
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == [float(number) for number in range(8)]
