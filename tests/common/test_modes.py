"""Modes: an overridden `train` decides, and modes that a user set are kept otherwise."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hookline import Optim, TrainLoop
from hookline.common.modes import in_mode
from hookline.engine.loop_specs import EvalLoop
from hookline.hooks import FreezeHook
from hookline.runner.runner import Runner
from hookline.testing import toy_runner


class FrozenNorms(nn.Module):
    """A detector in small: its batch norms are frozen whenever it is put in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.body = nn.Sequential(nn.Linear(2, 2), self.norm, nn.Linear(2, 1))
        self.modes: list[bool] = []

    def train(self, mode: bool = True) -> FrozenNorms:
        """Freeze the batch norms."""
        super().train(mode)
        self.modes.append(mode)
        self.norm.eval()
        return self

    def forward(self, inputs: torch.Tensor) -> Any:
        """Return the mean output."""
        return self.body(inputs).mean()


def run(model: nn.Module, folder: Any, epochs: int = 2) -> Runner:
    """Train on two batches per epoch, with a validation after each."""
    data = [torch.randn(4, 2) + 3 for _ in range(2)]
    return Runner(
        model,
        train=TrainLoop(data, step=lambda model, batch: model(batch), max_epochs=epochs),
        val=EvalLoop(data, step=lambda model, batch: {"value": model(batch)}, metrics={"value": lambda value: value}),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=0.01)),
        work_dir=folder,
        quiet=True,
    )


def test_an_overridden_train_is_called_at_the_start_and_after_every_evaluation(tmp_path: Any) -> None:
    model = FrozenNorms()
    run(model, tmp_path).train()
    # the trial before training; training; then the validation of each of the two epochs, and training again
    assert model.modes == [False, True, True, False, True, False, True]
    assert model.norm.state_dict()["running_mean"].tolist() == [0.0, 0.0]
    assert model.norm.state_dict()["num_batches_tracked"].item() == 0


def test_an_overridden_train_of_an_inner_module_is_called(tmp_path: Any) -> None:
    inner = FrozenNorms()
    run(nn.Sequential(inner), tmp_path, epochs=1).train()
    assert inner.modes == [False, True, True, False, True]
    assert inner.norm.state_dict()["num_batches_tracked"].item() == 0


def test_a_train_that_was_replaced_on_the_object_is_called(tmp_path: Any) -> None:
    model, calls = nn.Linear(2, 1), []

    def train(mode: bool = True) -> nn.Module:
        calls.append(mode)
        return nn.Module.train(model, mode)

    vars(model)["train"] = train
    with in_mode(model, training=True):
        pass
    with in_mode(model, training=False):
        assert not model.training
    assert calls == [True, False, True]


def test_an_overridden_eval_is_called_and_undone_by_train() -> None:
    class Merging(nn.Linear):
        """Merges its weights for evaluation, as LoRA layers do."""

        merged = False

        def eval(self) -> Merging:
            self.merged = True
            return super().eval()

        def train(self, mode: bool = True) -> Merging:
            self.merged = self.merged and not mode
            return super().train(mode)

    model = Merging(2, 1)
    with in_mode(model, training=False):
        assert model.merged
    assert not model.merged
    assert model.training


def test_modes_that_a_user_set_are_kept_without_an_override() -> None:
    norm = nn.BatchNorm1d(8).eval()
    model = nn.Sequential(nn.Linear(4, 8), norm, nn.Linear(8, 3))
    toy_runner(model=model, max_epochs=1).train()
    assert norm.num_batches_tracked is not None
    assert norm.num_batches_tracked.item() == 0
    assert [module.training for module in model] == [True, False, True]


def test_a_model_in_evaluation_mode_is_back_in_it_after_training() -> None:
    model = FrozenNorms().eval()
    model.modes.clear()
    with in_mode(model, training=True):
        assert model.training
    assert model.modes == [True, False]
    assert not model.training


def test_norms_that_a_freeze_hook_holds_stay_frozen_when_train_is_called_after_an_evaluation(tmp_path: Any) -> None:
    class Overrides(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(2)
            self.last = nn.Linear(2, 1)

        def train(self, mode: bool = True) -> Overrides:
            super().train(mode)
            return self

        def forward(self, inputs: torch.Tensor) -> Any:
            return self.last(self.norm(inputs)).mean()

    model = Overrides()
    runner = run(model, tmp_path)
    runner.register_hook(FreezeHook("norm.*"))
    runner.train()
    assert model.norm.state_dict()["num_batches_tracked"].item() == 0
    assert model.norm.training
