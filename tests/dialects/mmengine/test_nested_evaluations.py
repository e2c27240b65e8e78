"""`runner.val()` and `runner.test()` in a hook, as in MMEngine. The expected values are MMEngine's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from hookline.dialects.mmengine.hooks import Hook, RuntimeInfoHook
from tests.dialects.mmengine.parts import runner_of

NESTED = ["before_run", "before_val", "before_val_epoch", "after_val_epoch", "after_val", "after_run"]
NESTED += ["before_run", "before_test", "before_test_epoch", "after_test_epoch", "after_test", "after_run"]
SCHEDULED = ["before_val", "before_val_epoch", "after_val_epoch", "after_val"]


class Evaluates(Hook):
    """Validates and tests at one point, and records the points."""

    def __init__(self, point: str) -> None:
        self.point, self.evaluating = point, False
        self.seen: list[str] = []
        self.of_hub: list[Any] = []

    def at(self, runner: Any, point: str) -> None:
        self.seen.append(point)
        self.of_hub.append(runner.message_hub.get_info("loop_stage"))
        if point == self.point and not self.evaluating:
            self.evaluating, modes = True, [module.training for module in runner.model.modules()]
            assert (set(runner.val()), set(runner.test())) == ({"accuracy"}, {"accuracy"})
            assert [module.training for module in runner.model.modules()] == modes
            assert runner.message_hub.get_info("loop_stage") == self.of_hub[self.seen.index(point)]
            self.evaluating = False


def _method(point: str) -> Any:
    if point in ("after_val_epoch", "after_test_epoch"):
        return lambda self, runner, metrics=None: self.at(runner, point)
    return lambda self, runner: self.at(runner, point)


for _point in Hook.stages:
    if "iter" not in _point and "checkpoint" not in _point:
        setattr(Evaluates, _point, _method(_point))


@pytest.mark.parametrize(
    ("point", "epoch"),
    [
        ("after_train_epoch", ["before_train_epoch", "after_train_epoch", *NESTED, *SCHEDULED]),
        ("before_train_epoch", ["before_train_epoch", *NESTED, "after_train_epoch", *SCHEDULED]),
        ("after_val", ["before_train_epoch", "after_train_epoch", *SCHEDULED, *NESTED]),
    ],
)
def test_the_points_are_called_as_in_the_original(tmp_path: Path, point: str, epoch: list[str]) -> None:
    hook = Evaluates(point)
    runner_of(tmp_path, custom_hooks=[hook]).train()
    assert hook.seen == ["before_run", "before_train", *epoch, *epoch, "after_train", "after_run"]
    stages = {point: stage for point, stage in zip(hook.seen, hook.of_hub, strict=True) if point[:6] == "before"}
    assert stages["before_train_epoch"] == "train"
    assert (stages["before_val"], stages["before_test"]) == ("val", "test")


def test_a_best_checkpoint_has_the_counters_of_its_validation(tmp_path: Path) -> None:
    class Validates(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            runner.val()

    saving = {"checkpoint": {"type": "CheckpointHook", "save_best": "accuracy", "rule": "less"}}
    runner = runner_of(
        tmp_path,
        custom_hooks=[Validates()],
        default_hooks=saving,
        train_cfg={"by_epoch": True, "max_epochs": 1, "val_begin": 5},
    )
    runner.train()
    assert [path.name for path in tmp_path.glob("best_*")] == ["best_accuracy_epoch_0.pth"]
    best = torch.load(tmp_path / "best_accuracy_epoch_0.pth", weights_only=True)
    last = torch.load(tmp_path / "epoch_1.pth", weights_only=True)
    assert all(torch.equal(value, best["state_dict"][name]) for name, value in last["state_dict"].items())
    assert runner.message_hub.get_info("best_ckpt") == str(tmp_path / "best_accuracy_epoch_0.pth")


def test_nothing_of_the_users_is_called_before_the_original_would(tmp_path: Path) -> None:
    calls: list[str] = []

    class Data(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            calls.append("data")
            return super().__getitem__(index)

    from tests.dialects.mmengine.parts import ToyAccuracy, ToyNet

    class Net(ToyNet):
        def val_step(self, data: Any) -> Any:
            calls.append("val_step")
            return super().val_step(data)

    class Metric(ToyAccuracy):
        def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
            calls.append("compute_metrics")
            return super().compute_metrics(results)

    class First(Hook):
        def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
            calls.append("before_train_iter")

    loader = {
        "dataset": Data([(torch.ones(4), torch.tensor(1))] * 2),
        "batch_size": 2,
        "sampler": {"type": "DefaultSampler", "shuffle": False},
        "collate_fn": {"type": "default_collate"},
    }
    runner_of(
        tmp_path,
        model=Net(),
        val_dataloader=loader,
        val_evaluator=Metric(),
        custom_hooks=[First()],
        default_hooks={"checkpoint": {"type": "CheckpointHook", "save_best": "accuracy"}},
        train_cfg={"by_epoch": True, "max_epochs": 1},
    ).train()
    assert calls == ["before_train_iter"] * 4 + ["data", "data", "val_step", "compute_metrics"]


def test_the_stage_that_an_evaluation_interrupts_is_known(tmp_path: Path) -> None:
    class Looks(Hook):
        seen: ClassVar[list[Any]] = []

        def before_val(self, runner: Any) -> None:
            (info,) = (hook for hook in runner.hooks if isinstance(hook, RuntimeInfoHook))
            self.seen.append(info.last_loop_stage)

        def after_train(self, runner: Any) -> None:
            self.before_val(runner)

    runner = runner_of(tmp_path, custom_hooks=[Looks()], train_cfg={"by_epoch": True, "max_epochs": 1})
    runner.train()
    runner.val()
    assert Looks.seen == ["train", None, None]


@pytest.mark.parametrize("option", ["save_optimizer", "save_param_scheduler"])
def test_a_partial_checkpoint_of_a_hook_has_the_counters_of_the_original(tmp_path: Path, option: str) -> None:
    class Saves(Hook):
        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            runner.save_checkpoint(tmp_path, f"iter_{runner.iter}.pth", by_epoch=False, **{option: False})

        def after_train_epoch(self, runner: Any) -> None:
            runner.save_checkpoint(tmp_path, "epoch.pth", **{option: False})

    def counters(name: str) -> tuple[int, int]:
        meta = torch.load(tmp_path / name, weights_only=True)["meta"]
        return meta["epoch"], meta["iter"]

    runner_of(tmp_path, custom_hooks=[Saves()]).train()
    assert [counters(f"iter_{number}.pth") for number in (0, 3, 4)] == [(0, 1), (0, 4), (1, 5)]
    assert counters("epoch.pth") == (2, 8)
