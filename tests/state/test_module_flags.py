"""A hook that freezes a layer once, or switches the mode of a module once: the checkpoint has both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hookline import Hook, Optim, Runner
from hookline.checkpoint import store
from hookline.errors import StorageError
from hookline.hooks import FreezeHook
from hookline.testing import toy_runner
from tests.engine.spoiled import spoil
from tests.state.stopping import StopsAt


def net() -> nn.Sequential:
    """Return a net with a batch norm and dropout, and the same weights every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))


class Once(Hook):
    """Does something to the model once, before an iteration."""

    def __init__(self, at: int, act: Callable[[Any], Any]) -> None:
        self.at, self.act = at, act

    def before_train_iter(self, runner: Runner) -> None:
        if runner.iter == self.at:
            self.act(runner.model)


def run(folder: Path | None, *hooks: Any, build: Callable[[], Any] = net, **parts: Any) -> Runner:
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    length = {} if "max_iters" in parts else {"max_epochs": 3}
    return toy_runner(
        model=model, optim=Optim(optimizer), custom_hooks=list(hooks), work_dir=folder, **{**length, **parts}
    )


def copied(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def freeze_first(model: Any) -> None:
    model[0].requires_grad_(False)


def evaluate_norm(model: Any) -> None:
    model[1].eval()


ACTS: dict[str, Callable[[Any], None]] = {
    "requires_grad": freeze_first,
    "mode": evaluate_norm,
}


@pytest.mark.parametrize("length", [{"max_epochs": 3}, {"max_iters": 12}])
@pytest.mark.parametrize("stop", [4, 5, 6, 8, 11])
@pytest.mark.parametrize("act", ACTS)
def test_a_layer_that_a_hook_froze_once_is_frozen_in_a_resumed_run(
    tmp_path: Path, act: str, stop: int, length: dict[str, Any]
) -> None:
    whole = run(None, Once(4, ACTS[act]), **length)
    whole.train()
    run(tmp_path, Once(4, ACTS[act]), StopsAt(stop), **length).train()
    resumed = run(tmp_path, Once(4, ACTS[act]), resume=True, **length)
    resumed.train()
    expected = copied(whole.model)
    assert all(torch.equal(value, expected[name]) for name, value in resumed.model.state_dict().items())


class Thaws(Hook):
    """Freezes a layer before training, also when a run resumes, and unfreezes it once."""

    def before_train(self, runner: Any) -> None:
        freeze_first(runner.model)
        evaluate_norm(runner.model)

    def before_train_iter(self, runner: Any) -> None:
        if runner.iter == 4:
            runner.model[0].requires_grad_(True)
            runner.model[1].train()


@pytest.mark.parametrize("stop", [3, 6, 8])
def test_changes_of_hooks_before_training_are_undone_if_the_checkpoint_says_so(tmp_path: Path, stop: int) -> None:
    whole = run(None, Thaws())
    whole.train()
    run(tmp_path, Thaws(), StopsAt(stop)).train()
    resumed = run(tmp_path, Thaws(), resume=True)
    resumed.train()
    expected = copied(whole.model)
    assert all(torch.equal(value, expected[name]) for name, value in resumed.model.state_dict().items())


def saved_flags(path: Path) -> Any:
    return store.read(path, sealed=True)["modules"]


def test_a_checkpoint_has_the_flags_of_the_model_and_those_that_it_was_built_with(tmp_path: Path) -> None:
    def build() -> nn.Sequential:
        model = net()
        model[3].bias.requires_grad_(False)
        model[2].eval()
        return model

    run(tmp_path, Once(4, freeze_first), Once(4, evaluate_norm), build=build).train()
    built = {"frozen": ["3.bias"], "eval": ["2"]}
    assert saved_flags(tmp_path / "epoch_1.pth") == {**built, "built": built}
    assert saved_flags(tmp_path / "epoch_3.pth") == {
        "frozen": ["0.weight", "0.bias", "3.bias"],
        "eval": ["1", "2"],
        "built": built,
    }


def test_a_model_that_is_built_in_evaluation_mode_trains_in_training_mode(tmp_path: Path) -> None:
    def build() -> nn.Sequential:
        return net().eval()

    whole = run(None, Once(4, evaluate_norm), build=build)
    whole.train()
    run(tmp_path, Once(4, evaluate_norm), StopsAt(6), build=build).train()
    assert saved_flags(tmp_path / "iter_6.pth")["eval"] == ["1"]
    resumed = run(tmp_path, Once(4, evaluate_norm), build=build, resume=True)
    resumed.train()
    expected = copied(whole.model)
    assert all(torch.equal(value, expected[name]) for name, value in resumed.model.state_dict().items())
    assert not any(module.training for module in resumed.model.modules())


def test_a_class_that_overrides_train_decides_as_before(tmp_path: Path) -> None:
    class Stubborn(nn.Sequential):
        def train(self, mode: bool = True) -> Any:
            super().train(mode)
            self[1].eval()
            return self

    def build() -> Any:
        return Stubborn(*net())

    whole = run(None, Once(5, lambda model: model[2].eval()), build=build)
    whole.train()
    run(tmp_path, Once(5, lambda model: model[2].eval()), StopsAt(7), build=build).train()
    assert saved_flags(tmp_path / "iter_7.pth")["eval"] == ["1", "2"]
    resumed = run(tmp_path, Once(5, lambda model: model[2].eval()), build=build, resume=True)
    resumed.train()
    expected = copied(whole.model)
    assert all(torch.equal(value, expected[name]) for name, value in resumed.model.state_dict().items())


# ------------------------------------------------------------------------------------------------- who wins


def frozen_in(model: nn.Module) -> list[str]:
    return [name for name, parameter in model.named_parameters() if not parameter.requires_grad]


def with_frozen(*names: str) -> Callable[[], nn.Sequential]:
    def build() -> nn.Sequential:
        model = net()
        for name in names:
            model.get_parameter(name).requires_grad_(False)
        return model

    return build


def log_of(folder: Path) -> list[str]:
    return [line.split("  ", 1)[1].strip() for line in (folder / "run.log").read_text().splitlines() if "  " in line]


def test_a_script_that_freezes_other_parameters_wins_and_what_hooks_froze_stays_frozen(tmp_path: Path) -> None:
    run(tmp_path, Once(4, freeze_first), build=with_frozen("3.bias"), max_epochs=2).train()
    resumed = run(tmp_path, Once(4, freeze_first), build=with_frozen("1.weight"), max_epochs=3, resume=True)
    report = str(resumed.preview_resume())
    resumed.train()
    assert frozen_in(resumed.model) == ["0.weight", "0.bias", "1.weight"]
    assert report.splitlines()[-1].strip() == (
        "frozen parameters: checkpoint [3.bias], config [1.weight]: the config wins (no choice: the model is built by "
        "your code; the others are as in the checkpoint)"
    )


def test_modes_that_the_script_has_changed_win_too(tmp_path: Path) -> None:
    def build() -> nn.Sequential:
        model = net()
        model[2].eval()
        return model

    run(tmp_path, Once(4, evaluate_norm), max_epochs=2).train()
    resumed = run(tmp_path, Once(4, evaluate_norm), build=build, max_epochs=3, resume=True)
    seen: list[list[str]] = []

    @resumed.on("before_backward")
    def look(runner: Runner) -> None:
        seen.append([name for name, module in runner.model.named_modules() if not module.training])

    resumed.train()
    assert seen == [["1", "2"]] * 4
    assert (
        "modules in evaluation mode: checkpoint none, config [2]: the config wins" in (tmp_path / "run.log").read_text()
    )


def test_the_flags_of_a_hook_that_is_gone_are_reported(tmp_path: Path) -> None:
    run(tmp_path, Once(4, freeze_first), max_epochs=2).train()
    resumed = run(tmp_path, max_epochs=3, resume=True)
    resumed.train()
    assert frozen_in(resumed.model) == ["0.weight", "0.bias"]
    assert (
        "frozen parameters: checkpoint [0.bias, 0.weight], config none: the checkpoint wins (no choice: a hook has "
        "changed them during the run)"
    ) in (tmp_path / "run.log").read_text()


# ------------------------------------------------------------------------------------------------- FreezeHook


@pytest.mark.parametrize(
    ("then", "now", "frozen"),
    [
        ({"until_epoch": 2}, {"until_epoch": 2}, "11110000"),
        ({"until_epoch": 1}, {"until_epoch": 3}, "11111111"),
        ({"until_epoch": 3}, {"until_epoch": 1}, "00000000"),
        ({"from_epoch": 1}, None, "00000000"),
        ({}, {}, "11111111"),
    ],
)
def test_freeze_hook_follows_its_own_parameters_and_not_the_flags(
    tmp_path: Path, then: dict[str, Any], now: dict[str, Any] | None, frozen: str
) -> None:
    names = ["0.*", "1.*"]
    run(tmp_path, FreezeHook(names, **then), max_epochs=1).train()
    assert saved_flags(tmp_path / "epoch_1.pth") == {"frozen": [], "eval": [], "built": {"frozen": [], "eval": []}}
    resumed = run(tmp_path, *([] if now is None else [FreezeHook(names, **now)]), max_epochs=3, resume=True)
    seen: list[str] = []

    @resumed.on("before_backward")
    def look(runner: Any) -> None:
        assert runner.model[0].weight.requires_grad is runner.model[1].training
        seen.append("01"[not runner.model[1].training])

    resumed.train()
    assert "".join(seen) == frozen


# ------------------------------------------------------------------------------------------------- files


def test_a_checkpoint_of_an_earlier_version_has_no_flags_and_the_model_stays_as_it_is_built(tmp_path: Path) -> None:
    run(tmp_path, max_epochs=1, build=with_frozen("3.bias")).train()
    spoil(tmp_path, lambda checkpoint: checkpoint.pop("modules"))
    resumed = run(tmp_path, build=with_frozen("0.bias"), resume=True)
    resumed.train()
    assert frozen_in(resumed.model) == ["0.bias"]
    assert "frozen" not in (tmp_path / "resume.json").read_text()


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        (None, "modules"),
        ({"frozen": [], "eval": []}, "modules"),
        ({"frozen": [1], "eval": [], "built": {"frozen": [], "eval": []}}, "modules['frozen']"),
        ({"frozen": [], "eval": [], "built": {"frozen": "0", "eval": []}}, "modules['built']['frozen']"),
    ],
)
def test_flags_of_another_type_are_refused(tmp_path: Path, wrong: Any, where: str) -> None:
    run(tmp_path, max_epochs=1).train()
    spoil(tmp_path, lambda checkpoint: checkpoint.update(modules=wrong))
    with pytest.raises(StorageError) as refused:
        run(tmp_path, resume=True).train()
    assert str(refused.value) == (
        f"{tmp_path / 'epoch_1.pth'} cannot be used: {where} is not of the type that a run saves"
    )
