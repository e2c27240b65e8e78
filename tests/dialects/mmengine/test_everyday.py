"""Small things that code written for MMEngine does every day, as its own test suites show them."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError, RefusedError, WrongParameterError
from hookline.dialects.mmengine.hooks import CheckpointHook, EarlyStoppingHook, EMAHook, LoggerHook, ParamSchedulerHook
from hookline.dialects.mmengine.model import ExponentialMovingAverage
from hookline.dialects.mmengine.optim import OptimWrapper, StepLR, build_optim_wrapper
from hookline.dialects.mmengine.runner import LogProcessor
from hookline.dialects.mmengine.runner.checkpoint import load_checkpoint, load_from_local, save_checkpoint
from hookline.errors import ConfigError, StorageError
from tests.dialects.mmengine.parts import ToyNet, runner_of


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: LoggerHook(interval="100"), TypeError),  # type: ignore[arg-type]
        (lambda: LoggerHook(interval=-1), ValueError),
        (lambda: LoggerHook(ignore_last="False"), TypeError),  # type: ignore[arg-type]
        (lambda: LoggerHook(out_dir=1), TypeError),  # type: ignore[arg-type]
        (lambda: LoggerHook(out_suffix=[100]), TypeError),
        (lambda: EMAHook(begin_iter=-1), AssertionError),
        (lambda: EMAHook(begin_iter=1, begin_epoch=1), AssertionError),
        (lambda: CheckpointHook(save_best={"acc": "acc"}), AssertionError),  # type: ignore[arg-type]
        (lambda: CheckpointHook(save_best=["acc"], rule=1), AssertionError),  # type: ignore[arg-type]
        (lambda: CheckpointHook(file_client_args={}, backend_args={}), ValueError),
        (lambda: ExponentialMovingAverage(nn.Linear(1, 1), momentum=3), AssertionError),
        (lambda: LogProcessor(by_epoch=False, custom_cfg=[{"data_src": "a", "window_size": "epoch"}]), AssertionError),
        (lambda: EarlyStoppingHook("acc", rule="the world"), ValueError),
    ],
)
def test_a_wrong_parameter_raises_the_error_of_the_original(make: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        make()
    assert isinstance(caught.value, ConfigError)


def test_errors_are_of_hooklines_type_and_of_the_standard_ones() -> None:
    assert issubclass(RefusedError, (ConfigError, AssertionError))
    assert issubclass(WrongParameterError, ConfigValueError)
    assert issubclass(WrongParameterError, ConfigTypeError)


def test_starting_what_a_config_does_not_describe_is_a_runtime_error(tmp_path: Path) -> None:
    runner = runner_of(tmp_path, without=("test_dataloader", "test_cfg", "test_evaluator"))
    with pytest.raises(RuntimeError, match="^this run has no test loop: set test_dataloader, test_cfg, test_evaluator"):
        runner.test()
    with pytest.raises(RuntimeError, match="train_cfg: set type or by_epoch, not both"):
        runner_of(
            tmp_path / "two", train_cfg={"type": "EpochBasedTrainLoop", "by_epoch": True, "max_epochs": 1}
        ).train()


def test_the_folder_of_a_run_equals_its_text(tmp_path: Path) -> None:
    runner: Any = runner_of(tmp_path / "run")
    assert runner.work_dir == str(tmp_path / "run")
    assert runner.work_dir == tmp_path / "run"
    assert runner.work_dir != str(tmp_path)
    assert len({runner.work_dir, tmp_path / "run"}) == 1


def test_the_optim_of_a_runner_may_be_set_before_training(tmp_path: Path) -> None:
    runner = runner_of(tmp_path)
    runner.optim_wrapper = made = runner.build_optim_wrapper(runner.optim_wrapper)
    assert runner.optim_wrapper is made
    runner.train()
    assert runner.optim_wrapper is made


def test_the_schedulers_of_a_runner_may_be_set_before_training(tmp_path: Path) -> None:
    runner = runner_of(tmp_path)
    runner.param_schedulers = {"type": "StepLR", "step_size": 1}
    runner.train()
    assert runner.optim_wrapper.get_lr()["lr"] == pytest.approx([0.01])
    with pytest.raises(ConfigError, match="already built"):
        runner.param_schedulers = []


def test_a_batch_norm_over_several_processes_works_in_one(tmp_path: Path) -> None:
    net = ToyNet()
    net.norm = nn.SyncBatchNorm(3)
    weight = net.norm.weight
    runner: Any = runner_of(tmp_path, model=net)
    assert not isinstance(runner.model.norm, nn.SyncBatchNorm)
    assert runner.model.norm.weight is weight


def test_wrappers_by_name_must_all_be_built() -> None:
    one, two = nn.Linear(1, 1), nn.Linear(1, 1)
    wrapper = OptimWrapper(torch.optim.SGD(one.parameters(), lr=0.1))
    both = build_optim_wrapper(one, {"one": wrapper, "two": OptimWrapper(torch.optim.SGD(two.parameters(), lr=0.1))})
    assert list(both) == ["one", "two"]
    with pytest.raises(ValueError, match="OptimWrappers by name, but two is none"):
        build_optim_wrapper(one, {"one": wrapper, "two": {"optimizer": {"type": "SGD", "lr": 0.1}}})


def test_a_scheduler_hook_steps_the_schedulers_of_a_fake_runner() -> None:
    def scheduler(**options: Any) -> Any:
        steps: list[Any] = []
        return SimpleNamespace(steps=steps, step=lambda *given: steps.append(given), **options)

    by_iter, by_epoch = scheduler(by_epoch=False), scheduler(by_epoch=True)
    by_metric = scheduler(by_epoch=True, need_val_args=True)
    fake = SimpleNamespace(param_schedulers={"one": [by_iter], "two": [by_epoch, by_metric]})
    hook = ParamSchedulerHook()
    hook.after_train_iter(fake, 0)
    hook.after_train_epoch(fake)
    hook.after_val_epoch(fake, {"loss": 1.0})
    assert (by_iter.steps, by_epoch.steps) == ([()], [()])
    assert by_metric.steps == [(), ({"loss": 1.0},)]
    with pytest.raises(TypeError, match="param_schedulers must be a list, or a dict of lists"):
        hook.after_train_epoch(SimpleNamespace(param_schedulers=by_iter))


def test_early_stopping_and_checkpoint_hooks_expose_their_state() -> None:
    hook = EarlyStoppingHook("loss")
    assert (hook.rule, hook.best_score, hook.wait_count) == ("less", float("inf"), 0)
    saves = CheckpointHook(save_best=["acc", "loss_cls"])
    assert (saves.key_indicators, saves.rules) == (["acc", "loss_cls"], ["greater", "less"])
    assert (CheckpointHook(greater_keys="acc").greater_keys, saves.less_keys) == (("acc",), ("loss",))
    assert (CheckpointHook(save_best="auto").key_indicators, saves.best) == ([], {})


def test_schedulers_take_their_parameters_in_the_order_of_the_original() -> None:
    def optimizer() -> torch.optim.Optimizer:
        return torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)

    made = StepLR(optimizer(), 3, 0.5, 1, 9, -1, False)
    assert (made.step_size, made.gamma, made.begin, made.end, made.by_epoch) == (3, 0.5, 1, 9, False)

    class Own(StepLR):
        def __init__(self, optimizer: Any, every: int) -> None:
            super().__init__(optimizer, step_size=every)

    assert Own(optimizer(), every=2).step_size == 2
    with pytest.raises(TypeError, match="step_size"):
        StepLR(optimizer())
    with pytest.raises(TypeError, match="gama"):
        StepLR(optimizer(), 3, gama=0.5)


class Renamed(nn.Module):
    """A module whose second version has other names: weights of the first are converted when they are loaded."""

    _version = 2

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(1, 1), nn.Linear(1, 1)

    def _load_from_state_dict(self, state: Any, prefix: str, metadata: Any, *more: Any) -> None:
        if metadata.get("version", 1) < 2:
            for name in list(state):
                if name.startswith(f"{prefix}old_"):
                    state[name.replace("old_first", "first").replace("old_second", "second")] = state.pop(name)
        elif metadata["version"] != 2:
            raise AssertionError("unknown version")
        super()._load_from_state_dict(state, prefix, metadata, *more)


def first_version(model: Renamed) -> OrderedDict[str, Any]:
    """Return the weights as the first version of the module saved them."""
    return OrderedDict((f"old_{name}", value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("version", [1, 2])
def test_weights_of_any_version_of_a_module_are_loaded(tmp_path: Path, version: int) -> None:
    saved, loaded = Renamed(), Renamed()
    save_checkpoint(first_version(saved) if version == 1 else saved.state_dict(), tmp_path / "x.pth")
    load_checkpoint(loaded, str(tmp_path / "x.pth"))
    for name, value in saved.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)


def test_a_file_of_this_machine_is_read(tmp_path: Path) -> None:
    save_checkpoint({"state_dict": {"a": torch.ones(1)}}, tmp_path / "x.pth")
    assert load_from_local(str(tmp_path / "x.pth"))["state_dict"]["a"] == 1
    with pytest.raises(FileNotFoundError) as caught:
        load_from_local(tmp_path / "no.pth")
    assert isinstance(caught.value, StorageError)
