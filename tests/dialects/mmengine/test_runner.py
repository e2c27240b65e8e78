"""Runner: its parts, when they are built, and how it counts."""

from __future__ import annotations

import copy
import gc
import json
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from hookline import Optim
from hookline.dialects.mmengine.config import Config
from hookline.dialects.mmengine.evaluator import Evaluator
from hookline.dialects.mmengine.hooks import CheckpointHook, Hook
from hookline.dialects.mmengine.logging import MessageHub, MMLogger
from hookline.dialects.mmengine.model import BaseModel
from hookline.dialects.mmengine.optim import OptimWrapper
from hookline.dialects.mmengine.registry import DATASETS, HOOKS, LOOPS, MODELS
from hookline.dialects.mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop, Runner, ValLoop
from hookline.errors import ConfigError, HookError
from hookline.testing import toy_data
from tests.dialects.mmengine.parts import TEST, TRAIN, VAL, Seen, ToyAccuracy, ToyNet, runner_of, weights


@pytest.fixture(autouse=True)
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (HOOKS, DATASETS, MODELS, LOOPS):
        monkeypatch.setattr(registry, "_registered", dict(registry._registered))


class Rows(Dataset[Any]):
    """A dataset that records when it was created."""

    made: list[str] = []  # noqa: RUF012  # shared by all instances on purpose
    metainfo = {"classes": ("low", "high")}  # noqa: RUF012

    def __init__(self, name: str, seed: int = 0) -> None:
        self.made.append(name)
        inputs, labels = (torch.cat(parts) for parts in zip(*toy_data(3, seed=seed), strict=True))
        self.rows = list(zip(inputs, labels, strict=True))

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)


def loader(name: str, shuffle: bool = False) -> dict[str, Any]:
    return {
        "dataset": {"type": "Rows", "name": name},
        "sampler": {"type": "DefaultSampler", "shuffle": shuffle},
        "collate_fn": {"type": "default_collate"},
        "batch_size": 8,
        "num_workers": 0,
    }


def test_a_run_from_a_config_of_dicts_does_not_change_the_config(tmp_path: Path) -> None:
    DATASETS.register_module(module=Rows)
    Rows.made.clear()
    config = {
        "model": {"type": "ToyNet", "dropout": 0.1},
        "work_dir": str(tmp_path / "run"),
        "train_dataloader": loader("train", shuffle=True),
        "val_dataloader": loader("val"),
        "test_dataloader": loader("test"),
        "train_cfg": {"by_epoch": True, "max_epochs": 2, "val_interval": 1},
        "val_cfg": {"type": "ValLoop"},
        "test_cfg": {"type": "TestLoop", "fp16": True},
        "optim_wrapper": {"type": "OptimWrapper", "optimizer": {"type": "AdamW", "lr": 0.01}},
        "param_scheduler": [{"type": "MultiStepLR", "milestones": [1], "by_epoch": True}],
        "val_evaluator": [{"type": "ToyAccuracy", "prefix": "toy"}],
        "test_evaluator": {"type": "ToyAccuracy"},
        "default_hooks": {"logger": {"type": "LoggerHook", "interval": 2}},
        "custom_hooks": [{"type": "EMAHook", "priority": "LOW"}],
        "randomness": {"seed": 7},
        "log_level": "WARNING",
        "log_processor": {"window_size": 5, "by_epoch": True},
        "visualizer": {"type": "Visualizer", "vis_backends": [{"type": "LocalVisBackend"}]},
        "experiment_name": "toy",
    }
    before = copy.deepcopy(config)
    runner = Runner.from_cfg(config)
    assert (runner.epoch, runner.iter, runner.max_epochs, runner.seed) == (0, 0, 2, 7)
    assert Rows.made == []
    assert runner.train() is runner.model
    assert Rows.made == ["train", "val"]
    assert (runner.epoch, runner.iter, runner.max_epochs, runner.max_iters) == (2, 6, 2, 6)
    assert list(runner.val()) == ["toy/accuracy"]
    assert list(runner.test()) == ["accuracy"]
    assert Rows.made == ["train", "val", "test"]
    assert config == before
    assert runner.experiment_name == "toy"
    assert runner.message_hub.get_info("dataset_meta") == Rows.metainfo
    assert runner.val_evaluator.dataset_meta == Rows.metainfo
    assert [type(scheduler).__name__ for scheduler in runner.param_schedulers] == ["MultiStepLR"]
    assert runner.optim_wrapper.get_lr() == {"lr": [pytest.approx(0.001)]}
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])["step"] == 2


def test_a_run_of_objects(tmp_path: Path) -> None:
    model = ToyNet()
    runner = Runner(
        model=model,
        work_dir=str(tmp_path / "run"),
        train_dataloader=toy_data(),
        val_dataloader=toy_data(2, seed=1),
        train_cfg={"max_epochs": 1},
        val_cfg={},
        optim_wrapper=OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.1)),
        val_evaluator=Evaluator([ToyAccuracy()]),
        custom_hooks=[Seen()],
        default_hooks={"checkpoint": CheckpointHook(interval=1)},
        randomness={"seed": 1},
        log_level="WARNING",
    )
    assert runner.train() is model
    assert runner.optim_wrapper.optimizer.param_groups[0]["lr"] == 0.1
    assert (tmp_path / "run" / "epoch_1.pth").is_file()
    assert isinstance(runner.train_loop, EpochBasedTrainLoop)
    assert isinstance(runner.val_loop, ValLoop)


def test_the_current_hub_and_logger_belong_to_the_newest_run(tmp_path: Path) -> None:
    one = runner_of(tmp_path / "one")
    two = runner_of(tmp_path / "two")
    assert MessageHub.get_current_instance() is two.message_hub is two.hub
    assert MMLogger.get_current_instance() is two.logger
    assert MessageHub.get_instance("one") is one.message_hub
    two.train()
    two.logger.info("a line of the run")
    assert MessageHub.get_current_instance().get_scalar("train/loss").current() > 0
    assert MessageHub.get_current_instance().get_info("max_iters") == 8


def test_the_parts_of_a_run_are_freed_with_it(tmp_path: Path) -> None:
    one = runner_of(tmp_path / "one")
    gone = [weakref.ref(each) for each in (one, one.message_hub, one.logger, one.visualizer)]
    two = runner_of(tmp_path / "two")
    del one
    gc.collect()
    assert [each() for each in gone] == [None] * 4
    assert not MessageHub.check_instance_created("one")
    assert MessageHub.get_instance("two") is two.message_hub


def test_a_subclass_can_override_the_build_methods(tmp_path: Path) -> None:
    class Mine(Runner):
        def build_model(self, model: Any) -> Any:
            built.append("model")
            return super().build_model({**model, "dropout": 0.5})

        def build_param_scheduler(self, scheduler: Any) -> Any:
            built.append("param_scheduler")
            return super().build_param_scheduler({**scheduler, "gamma": 0.5})

        def build_logger(self, *args: Any, **kwargs: Any) -> Any:
            built.append("logger")
            return super().build_logger(*args, **kwargs)

        def build_message_hub(self, message_hub: Any = None) -> Any:
            built.append("message_hub")
            return super().build_message_hub({"name": "mine"})

        def set_randomness(self, seed: Any, *args: Any, **kwargs: Any) -> None:
            built.append("randomness")
            super().set_randomness(7, *args, **kwargs)

    built: list[str] = []
    given = runner_of(tmp_path / "other")._given
    runner = Mine({"type": "ToyNet"}, tmp_path, **given["train"], param_scheduler={"type": "StepLR", "step_size": 1})
    assert built == ["randomness", "model", "message_hub", "logger"]
    runner.train()
    assert built[4:] == ["param_scheduler"]
    assert (runner.model.dropout.p, runner.seed, runner.message_hub.instance_name) == (0.5, 7, "mine")  # type: ignore[union-attr]
    assert runner.optim_wrapper.get_lr() == {"lr": [0.05]}


def test_a_subclass_may_wrap_the_model_itself(tmp_path: Path) -> None:
    class Outside(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.inner: Any = model
            self.steps = 0

        def train_step(self, data: Any, optim_wrapper: Any) -> Any:
            self.steps += 1
            return self.inner.train_step(data, optim_wrapper)

    class Mine(Runner):
        def wrap_model(self, model_wrapper_cfg: Any, model: nn.Module) -> nn.Module:
            return Outside(super().wrap_model(model_wrapper_cfg, model))

    runner = runner_of(tmp_path, (*VAL, *TEST), kind=Mine)
    inner = runner.model
    runner.train()
    wrapped: Any = runner.wrapped
    assert (type(wrapped), wrapped.inner, wrapped.steps, runner.model) == (Outside, inner, runner.iter, inner)


def test_the_config_is_written_under_its_original_name(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("lr: 0.1\n")
    runner = runner_of(tmp_path / "run", cfg=Config.fromfile(tmp_path / "mine.yaml"))
    runner.dump_config()
    assert (tmp_path / "run" / "mine.yaml").read_text() == "lr: 0.1\n"
    nameless = runner_of(tmp_path / "two", cfg=Config({"a": 1}))
    nameless.dump_config()
    assert (tmp_path / "two" / f"{nameless.timestamp}.yaml").read_text() == "a: 1\n"


def test_a_checkpoint_holds_the_config_and_the_metadata_of_the_dataset(tmp_path: Path) -> None:
    DATASETS.register_module(module=Rows)
    for meta, found in (({"classes": ("a", "b")},) * 2, ({"palette": {2, 1}}, {"palette": [1, 2]})):
        runner = runner_of(tmp_path, train_dataloader=loader("train"), cfg=Config({"lr": 0.1}))
        runner.train_dataloader.dataset.metainfo = meta
        runner.train()
        meta_saved = weights(tmp_path / "epoch_2.pth", "meta")
        assert (meta_saved["cfg"], meta_saved["dataset_meta"], meta_saved["epoch"]) == ("lr = 0.1\n", found, 2)


def test_losses_without_a_loss_are_refused(tmp_path: Path) -> None:
    class Accurate(ToyNet):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return {"acc": super().forward(*args, **kwargs)["loss"]}

    with pytest.raises(ValueError) as refused:  # noqa: PT011  # the whole message is checked below
        runner_of(tmp_path, model=Accurate()).train()
    assert str(refused.value) == (
        "Accurate.forward(mode='loss') returned ['acc'], and parse_losses, which sums the entries with 'loss' in their "
        "name, returned 0, not a tensor: there is nothing to train on"
    )
    assert refused.value.__notes__ == ["in the step, epoch=0 iter=0 rank=0"]


def test_lines_of_the_logger_are_in_the_log_of_the_run(tmp_path: Path) -> None:
    class Says(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            runner.logger.info("epoch %d is done", runner.epoch + 1)

    runner_of(tmp_path / "run", custom_hooks=[Says()], log_level="INFO").train()
    lines = (tmp_path / "run" / "run.log").read_text().splitlines()
    assert [line.split("  ")[1] for line in lines if "is done" in line] == ["epoch 1 is done", "epoch 2 is done"]


@pytest.mark.parametrize(
    ("changes", "without", "message"),
    [
        (
            {},
            ["train_cfg"],
            "for train, set all of train_dataloader, train_cfg, optim_wrapper, or none of them; missing: train_cfg",
        ),
        (
            {},
            ["val_evaluator"],
            "for val, set all of val_dataloader, val_cfg, val_evaluator, or none of them; missing: val_evaluator",
        ),
        (
            {"launcher": "pytorch"},
            [],
            "launcher is 'pytorch', but RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR is not set; start the processes with "
            "torchrun, or use launcher='none' for a single one",
        ),
        ({"launcher": "torchrun"}, [], "unknown launcher 'torchrun'; did you mean 'pytorch'?"),
        (
            {"launcher": "slurm", "env_cfg": {"dist_cfg": {"timeout": "long"}}},
            [],
            "the timeout of dist_cfg must be a number of seconds, not 'long'",
        ),
        ({"model": {"type": "ToyNett"}}, [], "unknown model 'ToyNett'; did you mean 'ToyNet'?"),
        ({"model": 3}, [], "the model must be a torch.nn.Module or a dict that describes one, not 3"),
        (
            {"param_scheduler": []},
            TRAIN[:3],
            "param_scheduler needs an optim_wrapper whose learning rates it can change",
        ),
        ({"log_level": "LOUD"}, [], "log_level must be a log level such as 'INFO', not 'LOUD'"),
        ({"randomness": {"sed": 0}}, [], "randomness has no option 'sed'; did you mean 'seed'?"),
        ({"randomness": {"seed": "abc"}}, [], "randomness: seed must be"),
        ({"resume": "yes"}, [], "resume must be True or False, not 'yes'; use load_from to name a checkpoint"),
        (
            {"custom_hooks": {"type": "EMAHook"}},
            [],
            "custom_hooks must be a list of hooks or of dicts with a 'type', not {",
        ),
        ({"custom_hooks": [{"type": "EMAHok"}]}, [], "unknown hook 'EMAHok'; did you mean 'EMAHook'?"),
        ({"custom_hooks": [{"type": "EMAHook", "momentun": 1}]}, [], "ExponentialMovingAverage has no parameter 'mom"),
    ],
)
def test_invalid_settings_are_refused_when_the_runner_is_created(
    tmp_path: Path, changes: dict[str, Any], without: list[str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        runner_of(tmp_path / "run", without, **changes)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "verb", "message"),
    [
        ({"train_cfg": {"type": "EpochBasedTrainLoop", "by_epoch": True}}, "train", "set type or by_epoch, not both"),
        ({"train_cfg": {"max_epoch": 3}}, "train", "EpochBasedTrainLoop has no parameter 'max_epoch'; did you mean 'm"),
        ({"train_cfg": 3}, "train", "train_cfg must be a loop or a dict that describes one, not 3"),
        ({"model": nn.Linear(4, 2)}, "train", "Linear has no method train_step, which its loop calls; inherit from"),
        ({"model": nn.Linear(4, 2)}, "test", "Linear has no method test_step, which its loop calls; inherit from"),
    ],
)
def test_invalid_settings_are_refused_when_the_part_is_built(
    tmp_path: Path, changes: dict[str, Any], verb: str, message: str
) -> None:
    runner = runner_of(tmp_path / "run", **changes)
    with pytest.raises(ConfigError) as caught:
        getattr(runner, verb)()
    assert message in str(caught.value)


def test_a_class_is_not_a_hook_and_a_number_is_not_a_folder(tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match=r"^a hook must inherit from Hook or be a dict with a 'type'; <class .*> is neither$"
    ):
        runner_of(tmp_path, custom_hooks=[Seen])
    with pytest.raises(TypeError, match=r"^work_dir must be the path of a folder, not 5$"):
        runner_of(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("custom_hook", "custom_hooks"),
        ("default_hook", "default_hooks"),
        ("load_form", "load_from"),
        ("ramdomness", "randomness"),
        ("train_config", "train_cfg"),
    ],
)
def test_a_misspelled_key_of_a_config_is_refused(tmp_path: Path, key: str, meant: str) -> None:
    cfg: dict[str, Any] = {"model": {"type": "ToyNet"}, "work_dir": str(tmp_path), key: {}}
    with pytest.raises(KeyError) as refused:
        Runner.from_cfg(cfg)
    assert refused.value.args[0] == (
        f"the config has '{key}', which nothing reads; did you mean '{meant}'? If it is your own key, give it a name "
        "that is less similar"
    )


def test_custom_keys_are_kept_in_a_config(tmp_path: Path) -> None:
    own = dict.fromkeys(("train_pipeline", "train_dataset", "vis_backends", "model2", "data_root", "optimizer", "_x"))
    runner = Runner.from_cfg({"model": {"type": "ToyNet"}, "work_dir": str(tmp_path), **own})
    assert runner.cfg["model2"] is None


def test_the_error_about_a_missing_stage_names_the_missing_settings(tmp_path: Path) -> None:
    runner = runner_of(tmp_path / "run", [*TRAIN, *VAL])
    assert list(runner.test()) == ["accuracy"]
    with pytest.raises(ConfigError, match="^this run has no val loop: set val_dataloader, val_cfg, val_evaluator$"):
        runner.val()
    with pytest.raises(ConfigError, match="^this run has no training: set train_dataloader, train_cfg and optim_wr"):
        runner.train()


# -- default hooks


def kinds(runner: Runner) -> list[str]:
    return [type(hook).__name__ for hook in runner.hooks]


def test_default_hooks_can_be_changed_removed_and_added(tmp_path: Path) -> None:
    HOOKS.register_module(name="Seen", module=Seen)
    changes = {"timer": None, "logger": {"interval": 3}, "visualization": {"type": "Seen"}, "own": Seen()}
    runner = runner_of(tmp_path / "run", default_hooks=changes)
    assert kinds(runner) == [
        *("RuntimeInfoHook", "DistSamplerSeedHook", "Seen", "Seen", "LoggerHook", "ParamSchedulerHook"),
        "CheckpointHook",
    ]
    assert runner.hooks[4].interval == 3
    assert runner.hooks[6].interval == 1


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("checkpont", {"type": "CheckpointHook"}, "unknown default hook 'checkpont'; did you mean 'checkpoint'?"),
        ("timers", None, "unknown default hook 'timers'; did you mean 'timer'?"),
        ("visualization", {"interval": 3}, "unknown default hook 'visualization'; available: runtime_info, timer,"),
    ],
)
def test_a_misspelled_key_of_default_hooks_is_refused(tmp_path: Path, key: str, value: Any, message: str) -> None:
    with pytest.raises(HookError) as caught:
        runner_of(tmp_path / "run", default_hooks={key: value})
    assert message in str(caught.value)


def test_a_users_hook_under_a_built_in_name_takes_its_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @HOOKS.register_module()
    class IterTimerHook(Hook):
        pass

    runner = runner_of(tmp_path / "run")
    assert type(runner.hooks[1]) is IterTimerHook
    assert caplog.messages == [f"the hook 'IterTimerHook' from {__name__} replaces the built-in one"]


def test_hooks_of_hookline_itself_can_be_named(tmp_path: Path) -> None:
    runner = runner_of(tmp_path / "run", custom_hooks=[{"type": "GradNormHook", "interval": 1}])
    runner.train()
    assert runner.message_hub.get_scalar("train/grad_norm/net").current() > 0


# -- loops


def validated_at(runner: Runner) -> list[tuple[int, int]]:
    class Notes(Hook):
        def before_val(self, runner: Any) -> None:
            seen.append((runner.epoch, runner.iter))

    seen: list[tuple[int, int]] = []
    runner.register_hook(Notes())
    runner.train()
    return seen


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_epochs": 5, "val_interval": 2}, [2, 4, 5]),
        ({"max_epochs": 5, "val_begin": 3}, [3, 4, 5]),
        ({"type": "EpochBasedTrainLoop", "max_epochs": 10, "val_interval": 3, "dynamic_intervals": [(6, 1)]},
         [3, 6, 7, 8, 9, 10]),
    ],
)  # fmt: skip
def test_validation_by_epochs(tmp_path: Path, given: dict[str, Any], expected: list[int]) -> None:
    assert [epoch for epoch, _ in validated_at(runner_of(tmp_path / "run", train_cfg=given))] == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"by_epoch": False, "max_iters": 10, "val_interval": 4}, [4, 8, 10]),
        ({"type": "IterBasedTrainLoop", "max_iters": 7}, [7]),
        ({"by_epoch": False, "max_iters": 9, "val_interval": 4, "val_begin": 5, "dynamic_intervals": [(6, 1)]},
         [6, 7, 8, 9]),
    ],
)  # fmt: skip
def test_validation_by_iterations(tmp_path: Path, given: dict[str, Any], expected: list[int]) -> None:
    runner = runner_of(tmp_path / "run", train_cfg=given)
    assert [iteration for _, iteration in validated_at(runner)] == expected
    assert isinstance(runner.train_loop, IterBasedTrainLoop)
    assert runner.max_epochs == 1
    assert runner.max_iters == given["max_iters"]


def test_iteration_based_training_is_saved_only_at_the_end_by_default(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    by_iterations = {"by_epoch": False, "max_iters": 6}
    runner_of(tmp_path / "one", train_cfg=by_iterations).train()
    assert sorted(path.name for path in (tmp_path / "one").glob("*.pth")) == ["iter_6.pth"]
    assert (
        "but this run trains by iterations, so it is saved only at the end; "
        in (tmp_path / "one" / "run.log").read_text()
    )
    every = {"checkpoint": {"type": "CheckpointHook", "by_epoch": False, "interval": 2}}
    runner_of(tmp_path / "two", train_cfg=by_iterations, default_hooks=every).train()
    assert sorted(path.name for path in (tmp_path / "two").glob("*.pth")) == ["iter_2.pth", "iter_4.pth", "iter_6.pth"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [({"max_epochs": 5}, (1, 4)), ({"by_epoch": False, "max_iters": 50}, (0, 2))],
)
def test_stop_training_ends_after_the_epoch_or_the_iteration(
    tmp_path: Path, given: dict[str, Any], expected: tuple[int, int]
) -> None:
    class Stops(Hook):
        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            if runner.iter == 1:
                assert not runner.train_loop.stop_training
                runner.train_loop.stop_training = True
                assert runner.train_loop.stop_training

    runner = runner_of(tmp_path / "run", train_cfg=given, custom_hooks=[Stops()])
    runner.train()
    assert (runner.epoch, runner.iter) == expected
    assert runner.train_loop.stop_training  # type: ignore[attr-defined]  # loops of this dialect have it
    assert "stopped by Stops: stop_training was set" in (tmp_path / "run" / "run.log").read_text()
    assert (tmp_path / "run" / ("epoch_1.pth" if expected[0] else "iter_2.pth")).is_file()


def test_stop_training_can_be_canceled(tmp_path: Path) -> None:
    class Wavers(Hook):
        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            runner.train_loop.stop_training = True
            runner.train_loop.stop_training = False

    runner = runner_of(tmp_path / "run", custom_hooks=[Wavers()])
    runner.train()
    assert runner.epoch == 2


def test_a_subclass_of_a_loop_that_changes_its_settings(tmp_path: Path) -> None:
    @LOOPS.register_module()
    class Doubled(EpochBasedTrainLoop):
        def __init__(self, runner: Any, dataloader: Any, max_epochs: int) -> None:
            super().__init__(runner, dataloader, 2 * max_epochs)

    runner = runner_of(tmp_path / "run", train_cfg={"type": "Doubled", "max_epochs": 1})
    runner.train()
    assert runner.epoch == 2


def test_a_hook_may_run_a_validation(tmp_path: Path) -> None:
    found = []

    class Asks(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            found.append(runner.val_loop.run())

    runner_of(tmp_path / "run", custom_hooks=[Asks()], train_cfg={"max_epochs": 1}).train()
    assert [list(metrics) for metrics in found] == [["accuracy"]]


# -- randomness, weights, learning rates


def test_equal_seeds_produce_equal_weights_and_different_seeds_do_not(tmp_path: Path) -> None:
    @MODELS.register_module()
    class Random(ToyNet):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))

    def final(name: str, seed: int) -> torch.Tensor:
        runner = runner_of(tmp_path / name, model={"type": "Random"}, randomness={"seed": seed})
        return torch.cat([weight.detach().flatten() for weight in runner.train().parameters()])

    assert torch.equal(final("one", 1), final("two", 1))
    assert not torch.equal(final("three", 1), final("four", 2))


def test_without_a_seed_one_is_drawn_and_kept(tmp_path: Path) -> None:
    seeds = {runner_of(tmp_path / name, randomness={}).seed for name in "abc"}
    assert len(seeds) == 3


def test_the_model_initializes_its_weights_once(tmp_path: Path) -> None:
    begun = []

    class Begins(Hook):
        def before_train(self, runner: Any) -> None:
            begun.append(runner.model.net[0].weight.clone())

    described = {"type": "ToyNet", "init_cfg": {"type": "Constant", "val": 0.25, "layer": "Linear"}}
    runner = runner_of(tmp_path / "run", model=described, custom_hooks=[Begins()])
    runner.train()
    assert torch.equal(begun[0], torch.full((8, 4), 0.25))
    assert not torch.equal(runner.model.net[0].weight, begun[0])  # type: ignore[index, union-attr]


def test_random_initial_weights_depend_on_the_seed_only(tmp_path: Path) -> None:
    def final(name: str, drawn: int) -> torch.Tensor:
        described = {"type": "ToyNet", "init_cfg": {"type": "Normal", "layer": "Linear"}}
        runner = runner_of(tmp_path / name, model=described)
        torch.rand(drawn)
        return torch.cat([weight.detach().flatten() for weight in runner.train().parameters()])

    assert torch.equal(final("one", 0), final("two", 7))


def test_learning_rates_follow_the_batch_size(tmp_path: Path) -> None:
    DATASETS.register_module(module=Rows)
    scaled = {"enable": True, "base_batch_size": 32}
    runner = runner_of(tmp_path / "run", train_dataloader=loader("train"), auto_scale_lr=scaled)
    runner.train()
    assert runner.optim_wrapper.get_lr() == {"lr": [0.025]}
    grouped = {"optimizer": {"type": "SGD", "lr": 0.1}, "paramwise_cfg": {"bias_lr_mult": 2.0}}
    data = loader("train")
    runner = runner_of(tmp_path / "run", train_dataloader=data, auto_scale_lr=scaled, optim_wrapper=grouped)
    runner.train()
    assert runner.optim_wrapper.get_lr() == {"base_lr": [0.025], "lr": [0.025, 0.05] * 2}
    native = Optim(torch.optim.SGD(ToyNet().parameters(), lr=0.1))
    runner.scale_lr(native, scaled)
    assert native.learning_rates() == [0.025]


def test_a_model_may_update_itself_and_return_any_outputs(tmp_path: Path) -> None:
    class Own(BaseModel):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 2)

        def train_step(self, data: Any, optim_wrapper: Any) -> dict[str, Any]:
            inputs, labels = self.data_preprocessor(data, True)
            with optim_wrapper.optim_context(self):
                error = nn.functional.cross_entropy(self.net(inputs), labels)
            optim_wrapper.update_params(error)
            return {"error": error, "note": "fine"}

        def forward(self, *args: Any, mode: str = "tensor", **kwargs: Any) -> Any: ...

    runner = runner_of(tmp_path / "run", [*VAL, *TEST], model=Own())
    runner.train()
    assert len(runner.message_hub.get_scalar("train/error")) == 8
    assert "train/note" not in runner.message_hub.log_scalars


def test_work_dir_is_a_path_with_string_methods(tmp_path: Path) -> None:
    runner = runner_of(tmp_path / "run")
    assert runner.work_dir == tmp_path / "run"
    assert runner.work_dir + "/x" == f"{tmp_path}/run/x"  # type: ignore[operator]
    assert runner.work_dir.rstrip("/").split("/")[-1] == "run"  # type: ignore[attr-defined]
    assert runner.log_dir == runner._log_dir == runner.work_dir
    assert (runner.model_name, runner.distributed, runner.launcher) == ("ToyNet", False, "none")


def test_a_stream_without_a_length_can_be_trained_on(tmp_path: Path) -> None:
    class Stream:
        def __iter__(self) -> Iterator[Any]:
            return iter(toy_data(3))

    runner = runner_of(tmp_path / "run", train_dataloader=Stream())
    runner.train()
    assert (runner.epoch, runner.iter, runner.max_iters) == (2, 6, None)


def test_a_resumed_run_keeps_a_drawn_seed(tmp_path: Path) -> None:
    inputs, labels = (torch.cat(each) for each in zip(*toy_data(4), strict=True))
    loader = {
        "dataset": torch.utils.data.TensorDataset(inputs, labels),
        "sampler": {"type": "DefaultSampler", "shuffle": True},
        "collate_fn": {"type": "default_collate"},
        "batch_size": 8,
    }

    class Keeps(Hook):
        def __init__(self) -> None:
            self.seen: dict[int, Any] = {}

        def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
            self.seen[runner.iter] = data_batch[1].tolist()

    def run(**more: Any) -> tuple[Any, dict[int, Any]]:
        keeps = Keeps()
        given = {"train_dataloader": loader, "randomness": None, "custom_hooks": [keeps], **more}
        runner = runner_of(tmp_path, train_cfg={"by_epoch": True, "max_epochs": 3}, **given)
        runner.train()
        return runner, keeps.seen

    first, whole = run()
    again, seen = run(resume=True, load_from=str(tmp_path / "epoch_1.pth"))
    assert again.seed == first.seed
    assert seen == {number: whole[number] for number in range(4, 12)}


class Normed(ToyNet):
    """Records the modes of the model and of its norm, at each forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.modes: list[Any] = []

    def forward(self, inputs: Any, labels: Any = None, mode: str = "tensor") -> Any:  # type: ignore[override]
        self.modes.append((mode, self.training, self.norm.training))
        return super().forward(self.norm(inputs), labels, mode)


TRAINS, STAYS, PREDICTS = ("loss", True, True), ("loss", False, False), ("predict", False, False)


@pytest.mark.parametrize(
    ("train_cfg", "modes"),
    [
        ({"by_epoch": True, "max_epochs": 2}, [TRAINS, STAYS, STAYS, PREDICTS, TRAINS, STAYS, STAYS, PREDICTS]),
        ({"by_epoch": False, "max_iters": 4, "val_interval": 2}, [TRAINS, TRAINS, PREDICTS, TRAINS, TRAINS, PREDICTS]),
    ],
)
def test_the_model_is_in_training_mode_at_each_epoch_and_by_iterations_at_each_step(
    tmp_path: Path, train_cfg: dict[str, Any], modes: list[Any]
) -> None:
    # mode_changes.py compares the same with the mmengine package
    class Switch(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            runner.model.norm.eval()

        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            runner.model.eval()

        def before_val_epoch(self, runner: Any) -> None:
            runner.model.train()

    model = Normed()
    data: Any = {"train_dataloader": toy_data(3), "val_dataloader": toy_data(1)}
    runner = runner_of(tmp_path / "run", model=model, train_cfg=train_cfg, custom_hooks=[Switch()], **data)
    runner.train()
    assert model.modes == modes


@pytest.mark.parametrize("train_cfg", [{"by_epoch": True, "max_epochs": 2}, {"by_epoch": False, "max_iters": 4}])
def test_the_norms_of_a_freeze_hook_stay_frozen(tmp_path: Path, train_cfg: dict[str, Any]) -> None:
    model = Normed()
    freeze = {"type": "FreezeHook", "patterns": "norm.*"}
    data: Any = {"train_dataloader": toy_data(2), "val_dataloader": toy_data(1)}
    runner_of(tmp_path / "run", model=model, train_cfg=train_cfg, custom_hooks=[freeze], **data).train()
    assert {modes for modes in model.modes if modes[0] == "loss"} == {("loss", True, False)}
    assert model.norm.num_batches_tracked == 0
