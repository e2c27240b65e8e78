"""Checkpoints under iMIX's names, bit-exact resuming, and averages of weights."""

from __future__ import annotations

import json
import logging
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from hookline.checkpoint import store
from hookline.common.averaging import ExponentialMovingAverage
from hookline.dialects.imix.engine.hooks import CheckPointHook, EMAEpochHook, EMAIterHook, HookBase
from hookline.errors import ConfigError, HookError, StorageError
from hookline.testing import toy_data, toy_model
from tests.faults.children import start

from .engines import engine_in, same_weights

if TYPE_CHECKING:
    from hookline.dialects.imix.engine.imix_engine import imixEngine


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.pth"))


def test_names_by_epochs(tmp_path: Path) -> None:
    engine_in(tmp_path, total_epochs=3, checkpoint_config={"epoch_period": 2, "prefix": "net_vqa"}).train()
    assert files(tmp_path) == ["net_vqa_epoch1_model.pth", "net_vqa_model_final.pth"]


def test_names_in_the_middle_of_epochs(tmp_path: Path) -> None:
    cfg = {"model": {"type": "LXMERT"}, "dataset_type": "VQA", "checkpoint_config": {"period": 2}}
    engine_in(tmp_path, batches=3, more=cfg).train()
    assert files(tmp_path) == [
        "LXMERT_VQA_epoch0_iter1_model.pth",
        "LXMERT_VQA_epoch0_model.pth",
        "LXMERT_VQA_epoch1_iter3_model.pth",
        "LXMERT_VQA_epoch1_iter5_model.pth",
        "LXMERT_VQA_epoch1_model.pth",
        "LXMERT_VQA_model_final.pth",
    ]


def test_names_by_iterations_and_a_save_in_a_window_has_the_name_of_its_end(tmp_path: Path) -> None:
    cfg: dict[str, Any] = {"by_iter": True, "max_iter": 5, "checkpoint_config": {"iter_period": 2}}
    engine_in(tmp_path / "a", **cfg).train()
    expected = ["Sequential_iter0000001_model.pth", "Sequential_iter0000003_model.pth", "Sequential_model_final.pth"]
    assert files(tmp_path / "a") == expected
    engine_in(tmp_path / "b", gradient_accumulation_steps=3, **cfg).train()
    expected = ["Sequential_iter0000002_model.pth", "Sequential_iter0000004_model.pth", "Sequential_model_final.pth"]
    assert files(tmp_path / "b") == expected


def test_only_the_newest_are_kept_and_a_folder_may_be_given(tmp_path: Path) -> None:
    class Checkpointer:
        save_dir = str(tmp_path / "saved")

    hook = CheckPointHook(Checkpointer(), prefix="x", max_num_checkpoints=2)
    engine = engine_in(tmp_path / "run", total_epochs=4, custom_hooks=[hook])
    engine.train()
    assert files(tmp_path / "saved") == ["x_epoch2_model.pth", "x_epoch3_model.pth", "x_model_final.pth"]
    assert files(tmp_path / "run") == []
    again = engine_in(tmp_path / "run", total_epochs=5, custom_hooks=[CheckPointHook(Checkpointer(), "x")])
    again.resume_from = True
    again.train()
    assert (again.start_epoch, again.iter) == (4, 10)


@pytest.mark.parametrize(
    ("saves", "models", "averages"),
    [
        ({"max_num_checkpoints": 2}, ["epoch3", "epoch4"], [3, 4]),
        ({"max_num_checkpoints": 1, "epoch_period": 2}, ["epoch3"], [3, 4]),
        (
            {"max_num_checkpoints": 3, "iter_period": 1, "epoch_period": None},
            ["epoch3_iter7", "epoch4_iter8", "epoch4_iter9"],
            [3, 4],
        ),
        ({}, ["epoch0", "epoch1", "epoch2", "epoch3", "epoch4"], [0, 1, 2, 3, 4]),
    ],
)
def test_averages_of_epochs_before_the_checkpoints_that_are_kept_go_with_them(
    tmp_path: Path, saves: dict[str, Any], models: list[str], averages: list[int]
) -> None:
    hooks = [EMAIterHook(), EMAEpochHook()]
    engine_in(tmp_path, total_epochs=5, checkpoint_config=saves, custom_hooks=hooks).train()
    expected = [f"Sequential_{name}_model.pth" for name in models] + ["Sequential_model_final.pth"]
    assert files(tmp_path) == sorted(expected + [f"Sequential_epoch{number}_ema.pth" for number in averages])


def test_no_checkpoints_where_none_are_wanted_and_parameters_are_checked(tmp_path: Path) -> None:
    engine_in(tmp_path, checkpoint_config=None).train()
    assert files(tmp_path) == []
    for parameters, message in (
        ({"epoch_period": 0}, r"^CheckPointHook: epoch_period must be an int of at least 1, not 0$"),
        ({"prefix": "a/b"}, r"^CheckPointHook: prefix must be the beginning of a file name, not 'a/b'$"),
        ({"checkpointer": 3}, r"^CheckPointHook: checkpointer must be a folder or have a save_dir, not 3$"),
    ):
        with pytest.raises(ConfigError, match=message):
            CheckPointHook(**parameters)


# -------------------------------------------------------------------------------------------------------- resuming


class Remembers(HookBase):
    """A hook with a state."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def after_train_iter(self) -> None:
        self.losses.append(self.trainer.output["loss"].item())

    def state_dict(self) -> dict[str, Any]:
        return {"losses": list(self.losses)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.losses = state["losses"]


class Kills(HookBase):
    """Kills the process with SIGKILL at an iteration."""

    _level = "LOWEST"

    def __init__(self, at: int) -> None:
        self.at = at

    def before_train_iter(self) -> None:
        if self.trainer.iter == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


class Dropping(nn.Module):
    """Draws random numbers in training."""

    def __init__(self) -> None:
        super().__init__()
        self.net = toy_model()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.net(nn.functional.dropout(inputs, 0.3, self.training))
        return scores


def mean_weight(model: nn.Module) -> dict[str, float]:
    return {"mean_loss": float(sum(each.double().mean() for each in model.parameters()))}


def long_engine(folder: Path, by_iter: bool, kill_at: int | None = None, **cfg: Any) -> imixEngine:
    model = Dropping()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    hooks: list[Any] = [Remembers(), {"type": "EMAIterHook", "momentum": 0.1}]
    hooks.append({"type": "EvaluateHook", "eval_function": mean_weight, "eval_iter_period": 4 if by_iter else None})
    length: dict[str, Any] = {"by_iter": True, "max_iter": 15} if by_iter else {"total_epochs": 3}
    return engine_in(
        folder,
        model=model,
        optimizer=optimizer,
        batches=torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*toy_data(1, 40)[0]), 8, shuffle=True),
        custom_hooks=[*hooks, *([] if kill_at is None else [Kills(kill_at)])],
        lr_config={"policy": "ExponentialLR", "gamma": 0.9},
        checkpoint_config={"iter_period": 2},
        gradient_accumulation_steps=2,
        log_config={"period": 1, "hooks": [{"type": "JSONLoggerHook"}]},
        **length,
        **cfg,
    )


def train_until_killed(folder: str, by_iter: bool, at: int) -> None:
    long_engine(Path(folder), by_iter, at).train()


def contents(folder: Path) -> dict[str, Any]:
    return {name: store.read(folder / name, sealed=True) for name in files(folder)}


def losses(folder: Path) -> list[Any]:
    records = [json.loads(line) for line in (folder / "metrics.json").read_text().splitlines()]
    return [(record["iteration"], record.get("loss"), record.get("lr"), record.get("mean_loss")) for record in records]


@pytest.mark.parametrize("by_iter", [False, True])
@pytest.mark.parametrize("at", [3, 6, 11, 14])
def test_a_run_that_was_killed_resumes_bit_exactly(tmp_path: Path, by_iter: bool, at: int) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    long_engine(whole, by_iter).train()
    child = start(train_until_killed, str(killed), by_iter, at)
    assert child.wait(60) == -signal.SIGKILL
    engine = long_engine(killed, by_iter, resume_from=True)
    engine.train()
    ours, theirs = contents(killed), contents(whole)
    assert list(ours) == list(theirs)
    for name in ours:
        assert ours[name].get("position") == theirs[name].get("position")
        for part in ("state_dict", "optimizer", "param_schedulers"):
            if part in theirs[name]:
                torch.testing.assert_close(ours[name][part], theirs[name][part], rtol=0, atol=0)
        assert repr(ours[name].get("hooks")) == repr(theirs[name].get("hooks"))
    assert losses(killed) == losses(whole)
    assert (killed / "eval_result.json").read_bytes() == (whole / "eval_result.json").read_bytes()


def test_a_path_resumes_that_checkpoint_and_a_missing_one_is_refused(tmp_path: Path) -> None:
    engine_in(tmp_path / "a", total_epochs=3).train()
    engine = engine_in(tmp_path / "b", total_epochs=3, resume_from=str(tmp_path / "a" / "Sequential_epoch0_model.pth"))
    engine.train()
    assert (engine.start_epoch, engine.start_iter) == (1, 2)
    assert same_weights(engine.model, engine_in(tmp_path / "c", total_epochs=3).train())
    with pytest.raises(StorageError, match=r"^there is no checkpoint .*gone\.pth; to list "):
        engine_in(tmp_path / "d", resume_from=str(tmp_path / "gone.pth")).train()


def test_weights_are_loaded_out_of_files_as_imix_wrote_them(tmp_path: Path) -> None:
    other = toy_model(seed=5)
    torch.save({"model": other.state_dict(), "epoch": 3, "by_epoch": True}, tmp_path / "old.pth")
    engine = engine_in(tmp_path / "run", load_from=tmp_path / "old.pth", total_epochs=1, batches=1)
    seen = []

    class Looks(HookBase):
        def before_train(self) -> None:
            seen.append(same_weights(self.trainer.model, other))

    engine.register_hooks([Looks()])
    engine.train()
    assert seen == [True]


def test_training_a_second_time_finds_nothing_left_to_do(tmp_path: Path) -> None:
    engine = engine_in(tmp_path)
    engine.train()
    before = {name: value.clone() for name, value in engine.model.state_dict().items()}
    engine.train()
    assert all(value.equal(before[name]) for name, value in engine.model.state_dict().items())
    assert "training is already finished: 2 epochs, 4 iterations" in (tmp_path / "run.log").read_text()


# -------------------------------------------------------------------------------------------------------- averages


def test_if_the_model_has_no_average_hookline_averages_it(tmp_path: Path) -> None:
    average, evaluated = ExponentialMovingAverage(0.1), []

    class Follows(HookBase):
        def after_train_iter(self) -> None:
            average.update(self.trainer.model)

    def look(model: nn.Module) -> float:
        evaluated.append([parameter.clone() for parameter in model.parameters()])
        return 1.0

    ema = EMAIterHook(momentum=0.1)
    hooks = [Follows(), ema, EMAEpochHook(), {"type": "EvaluateHook", "eval_function": look}]
    engine = engine_in(tmp_path, custom_hooks=hooks)
    engine.train()
    expected = average.state_dict(engine.model)["averaged"]
    saved = store.read(tmp_path / "Sequential_model_final.pth", sealed=True)["hooks"]["EMAIterHook"]
    weights = store.read(tmp_path / "Sequential_epoch1_ema.pth", sealed=True)["state_dict"]
    for found in (saved["averaged"], weights, dict(zip(expected, evaluated[-1], strict=True))):
        assert all(found[name].equal(value) for name, value in expected.items())
    assert saved["steps"] == 4
    assert same_weights(engine.model, engine_in(tmp_path / "other").train())


class OwnAverage(nn.Module):
    """Averages its weights itself, in parameters that `init_ema` creates."""

    def __init__(self) -> None:
        super().__init__()
        self.net = toy_model()
        self.saved: list[tuple[int, str]] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.net(inputs)
        return scores

    def init_ema(self) -> None:
        self.ema = nn.ParameterDict()
        for name, parameter in self.net.named_parameters():
            self.ema[name.replace(".", "_")] = nn.Parameter(parameter.detach().clone(), requires_grad=False)

    def update_ema(self) -> None:
        for name, parameter in self.net.named_parameters():
            self.ema[name.replace(".", "_")].data.lerp_(parameter.detach(), 0.1)

    def save_checkpoint_ema(self, epoch: int, work_dir: str) -> None:
        self.saved.append((epoch, Path(work_dir).name))


def test_a_model_that_averages_itself_resumes_with_its_average(tmp_path: Path) -> None:
    def engine_of(folder: Path, **cfg: Any) -> imixEngine:
        hooks = [{"type": "EMAIterHook", "level": 30}, {"type": "EMAEpochHook", "level": 40}]
        return engine_in(folder, model=OwnAverage(), custom_hooks=hooks, **cfg)

    whole = engine_of(tmp_path / "whole", total_epochs=3)
    whole.train()
    assert whole.model.saved == [(0, "whole"), (1, "whole"), (2, "whole")]
    engine_of(tmp_path / "part").train()
    again = engine_of(tmp_path / "part", total_epochs=3, resume_from=True)
    again.train()
    assert same_weights(again.model, whole.model)
    assert again.model.saved == [(2, "part")]


def test_half_an_average_is_refused_and_nothing_to_save_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = toy_model()
    model.init_ema = lambda: None  # type: ignore[assignment]
    with pytest.raises(
        HookError, match=r"^EMAIterHook: Sequential has init_ema\(\) but no update_ema\(\); define both"
    ):
        engine_in(tmp_path, model=model, custom_hooks=[EMAIterHook()]).train()
    with caplog.at_level(logging.WARNING, "hookline"):
        engine_in(tmp_path, custom_hooks=[EMAEpochHook()]).train()
    assert "EMAEpochHook saves nothing" in (tmp_path / "run.log").read_text()
