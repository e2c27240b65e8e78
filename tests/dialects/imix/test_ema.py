"""Averages that a model keeps itself, as iMIX's models do."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hookline.checkpoint import store
from hookline.errors import ConfigError
from hookline.plan.sources import source_of
from hookline.testing import toy_data, toy_model

from .engines import engine_in, same_weights


class SwapsItsAverage(nn.Module):
    """Has the methods that iMIX's models have: the average is a dict, and an evaluation swaps it in."""

    def __init__(self) -> None:
        super().__init__()
        self.net = toy_model()
        self.ema_state_dict: dict[str, torch.Tensor] = {}
        self.bkp_state_dict: dict[str, torch.Tensor] | None = None
        self.is_ema_state = False
        self.calls: list[Any] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not self.training:
            self.load_ema_state_dict()
        scores: torch.Tensor = self.net(inputs)
        return scores

    def init_ema(self) -> None:
        for name, tensor in self.net.state_dict().items():
            self.ema_state_dict[name] = tensor.clone().detach()

    def update_ema(self) -> None:
        for name, tensor in self.net.state_dict().items():
            self.ema_state_dict[name] -= 0.1 * (self.ema_state_dict[name] - tensor)

    def load_ema_state_dict(self) -> None:
        if not self.is_ema_state:
            self.bkp_state_dict = {name: tensor.clone() for name, tensor in self.net.state_dict().items()}
            self.net.load_state_dict(self.ema_state_dict)
            self.is_ema_state = True

    def load_bkp_state_dict(self) -> None:
        assert self.bkp_state_dict is not None
        self.calls.append("load_bkp_state_dict")
        self.net.load_state_dict(self.bkp_state_dict)
        self.is_ema_state = False

    def save_checkpoint_ema(self, savePath: str, epochId: int) -> None:  # noqa: N803  # the names in iMIX
        assert self.ema_state_dict.keys() == self.net.state_dict().keys()
        self.calls.append((Path(savePath).name, epochId))


def look_at(model: nn.Module) -> float:
    model(toy_data(1)[0][0])
    return 1.0


EMA_HOOKS = [{"type": "EMAIterHook", "level": 30}, {"type": "EMAEpochHook", "level": 40}]
EVALUATE = {"type": "EvaluateHook", "eval_function": look_at}


def test_a_model_that_swaps_its_average_trains_on_with_its_own_weights(tmp_path: Path) -> None:
    model = SwapsItsAverage()
    engine_in(tmp_path / "run", model=model, custom_hooks=[EVALUATE, *EMA_HOOKS], total_epochs=3).train()
    assert [call for call in model.calls if call != "load_bkp_state_dict"] == [("run", 0), ("run", 1), ("run", 2)]
    assert model.calls.count("load_bkp_state_dict") == 3
    without = engine_in(tmp_path / "without", total_epochs=3).train()
    assert same_weights(model.net, without)
    saved = store.read(tmp_path / "run" / "SwapsItsAverage_epoch0_model.pth", sealed=True)
    assert saved["state_dict"]["net.0.weight"].equal(
        store.read(tmp_path / "without" / "Sequential_epoch0_model.pth", sealed=True)["state_dict"]["0.weight"]
    )


def test_weights_are_restored_even_after_an_evaluation_inside_an_epoch(tmp_path: Path) -> None:
    model = SwapsItsAverage()
    evaluate = {**EVALUATE, "eval_iter_period": 1}
    by_iterations: dict[str, Any] = {"by_iter": True, "max_iter": 4}
    engine_in(tmp_path / "run", model=model, custom_hooks=[EMA_HOOKS[0], evaluate], **by_iterations).train()
    assert model.calls == ["load_bkp_state_dict"] * 4
    assert same_weights(model.net, engine_in(tmp_path / "without", **by_iterations).train())


def test_a_model_without_the_flag_restores_its_weights_after_each_epoch(tmp_path: Path) -> None:
    class Tells(SwapsItsAverage):
        def __init__(self) -> None:
            super().__init__()
            del self.is_ema_state

        def load_bkp_state_dict(self) -> None:
            self.calls.append("load_bkp_state_dict")

    model = Tells()
    engine_in(tmp_path / "run", model=model, custom_hooks=EMA_HOOKS).train()
    assert model.calls == ["load_bkp_state_dict", ("run", 0), "load_bkp_state_dict", ("run", 1)]


def test_an_average_in_a_dict_is_saved_and_restored(tmp_path: Path) -> None:
    def model_after(folder: Path, **cfg: Any) -> SwapsItsAverage:
        model = SwapsItsAverage()
        engine_in(folder, model=model, custom_hooks=[EMA_HOOKS[0]], **cfg).train()
        return model

    whole = model_after(tmp_path / "whole", total_epochs=3)
    model_after(tmp_path / "part")
    again = model_after(tmp_path / "part", total_epochs=3, resume_from=True)
    saved = store.read(tmp_path / "part" / "SwapsItsAverage_model_final.pth", sealed=True)["hooks"]["EMAIterHook"]
    for found in (again.ema_state_dict, saved["of_model"]):
        assert list(found) == list(whole.ema_state_dict)
        assert all(found[name].equal(value) for name, value in whole.ema_state_dict.items())


@pytest.mark.parametrize(
    ("save", "given"),
    [
        (lambda folder, number: (folder, number), ("run", 0)),
        (lambda savePath=None, epochId=None: (savePath, epochId), ("run", 0)),  # noqa: N803  # the names in iMIX
        (lambda *arguments: arguments, ("run", 0)),
        (lambda work_dir, epoch: (work_dir, epoch), ("run", 0)),
        (lambda epoch, work_dir: (work_dir, epoch), ("run", 0)),
        (lambda epoch, tag="x": (tag, epoch), ("x", 0)),
        (lambda path, epoch: (path, epoch), ("run", 0)),
        (lambda: ("run", 0), ("run", 0)),
    ],
)
def test_a_model_saves_its_average_with_the_arguments_it_takes(tmp_path: Path, save: Any, given: Any) -> None:
    model, saved = SwapsItsAverage(), list[Any]()

    @functools.wraps(save)
    def recorded(*arguments: Any, **named: Any) -> None:
        where, number = save(*arguments, **named)
        saved.append((Path(where).name, number))

    model.save_checkpoint_ema = recorded  # type: ignore[method-assign]
    engine_in(tmp_path / "run", model=model, custom_hooks=EMA_HOOKS, total_epochs=1).train()
    assert saved == [given]


def test_a_save_that_takes_something_else_is_refused_before_training(tmp_path: Path) -> None:
    model = SwapsItsAverage()
    model.save_checkpoint_ema = lambda path, number, tag: None  # type: ignore[method-assign, misc, assignment]
    with pytest.raises(ConfigError) as refused:
        engine_in(tmp_path, model=model, custom_hooks=EMA_HOOKS).train()
    place = f"{source_of(model.save_checkpoint_ema)}"
    assert str(refused.value) == (
        "EMAEpochHook: save_checkpoint_ema: there is no value for the parameter 'path' of "
        f"<lambda> ({place}); it can take epoch and work_dir and trainer, by name"
    )
    assert model.calls == []
