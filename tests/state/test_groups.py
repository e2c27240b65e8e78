"""Parameter groups that a hook changes during a run: a resumed run has them, by the names of their parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from hookline import Hook, Optim, Runner
from hookline.checkpoint import store
from hookline.engine.steps import cross_entropy
from hookline.errors import HookError, StorageError
from hookline.testing import toy_data, toy_model, toy_runner
from tests.engine.spoiled import spoil
from tests.state.stopping import StopsAt


class Adds(Hook):
    """Adds the last layer to the optimizer, once during the run, or before every training."""

    def __init__(self, at: int = 4, **options: Any) -> None:
        self.at, self.options = at, options

    def before_train(self, runner: Any) -> None:
        if self.at < 0:
            self.add(runner)

    def before_train_iter(self, runner: Any) -> None:
        if runner.iter == self.at:
            self.add(runner)

    def add(self, runner: Any) -> None:
        runner.model[2].requires_grad_(True)
        runner.optim.optimizer.add_param_group({"params": list(runner.model[2].parameters()), **self.options})


class Moves(Hook):
    """Moves a parameter from one group to another, and removes one for good."""

    def before_train_iter(self, runner: Any) -> None:
        if runner.iter == 4:
            groups = runner.optim.optimizer.param_groups
            groups[1]["params"].append(groups[0]["params"].pop())
        if runner.iter == 5:
            runner.optim.optimizer.param_groups.pop(0)


def run(folder: Path | None, *hooks: Any, layers: int = 1, schedule: bool = False, **parts: Any) -> Runner:
    model = toy_model()
    model[2].requires_grad_(layers > 1)
    groups = [{"params": list(model[number].parameters())} for number in (0, 2)[:layers]]
    optimizer = torch.optim.Adam(groups, lr=0.1)
    schedulers = [(CosineAnnealingLR(optimizer, 20), "iter")] if schedule else []
    return toy_runner(
        model=model,
        optim=Optim(optimizer, schedulers),
        custom_hooks=list(hooks),
        work_dir=folder,
        **{"max_epochs": 3, **parts},
    )


def assert_same_end(whole: Runner, resumed: Runner) -> None:
    ours, theirs = resumed.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    groups = [runner.optims.sole.optimizer.state_dict()["param_groups"] for runner in (resumed, whole)]
    assert groups[0] == groups[1]


@pytest.mark.parametrize("schedule", [False, True])
@pytest.mark.parametrize("stop", [3, 5, 8, 10])
@pytest.mark.parametrize(
    "make", [lambda: Adds(4, lr=0.03, betas=(0.5, 0.9)), lambda: Adds(-1, lr=0.03)], ids=["during", "before"]
)
def test_a_run_with_a_group_that_a_hook_added_resumes_exactly(
    tmp_path: Path, make: Callable[[], Hook], stop: int, schedule: bool
) -> None:
    whole = run(None, make(), schedule=schedule)
    whole.train()
    run(tmp_path, make(), StopsAt(stop), schedule=schedule).train()
    resumed = run(tmp_path, make(), schedule=schedule, resume=True)
    resumed.train()
    assert_same_end(whole, resumed)


class Joins(Hook):
    """Adds the last layer, which has had gradients since the run began, at one point of iteration 4."""

    def __init__(self, point: str, directly: bool = False) -> None:
        self.point, self.directly = point, directly

    def _add(self, runner: Any, point: str) -> None:
        if point == self.point and runner.iter == 4:
            groups, parameters = runner.optim.optimizer.param_groups, list(runner.model[2].parameters())
            if self.directly:
                groups[0]["params"] += parameters
            else:
                runner.optim.optimizer.add_param_group({"params": parameters, "lr": 0.03})

    def before_train_iter(self, runner: Any) -> None:
        self._add(runner, "before_train_iter")

    def around_forward(self, runner: Any) -> Iterator[None]:
        self._add(runner, "around_forward")
        yield

    def before_backward(self, runner: Any) -> None:
        self._add(runner, "before_backward")

    def after_backward(self, runner: Any) -> None:
        self._add(runner, "after_backward")

    def before_optimizer_step(self, runner: Any) -> None:
        self._add(runner, "before_optimizer_step")

    def after_optimizer_step(self, runner: Any) -> None:
        self._add(runner, "after_optimizer_step")


def only(point: str, directly: bool = False) -> Hook:
    """Return a Joins with one point, so that the others stay silent."""
    others = [name for name in vars(Joins) if name not in (point, "_add") and not name.startswith("__")]
    hook: Hook = type("Joins", (Joins,), dict.fromkeys(others))(point, directly)
    return hook


JOINS = ["before_train_iter", "around_forward", "before_backward", "after_backward", "before_optimizer_step"]


def joining(folder: Path | None, *hooks: Any, **parts: Any) -> Runner:
    model = toy_model()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9)
    optim = Optim(optimizer, accumulate=parts.pop("accumulate", 1))
    return toy_runner(model=model, optim=optim, custom_hooks=list(hooks), work_dir=folder, **{"max_iters": 9, **parts})


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("point", [*JOINS, "after_optimizer_step"])
@pytest.mark.parametrize("directly", [False, True], ids=["added", "appended"])
def test_a_parameter_that_joins_brings_no_gradients_so_a_resume_before_that_is_exact(
    tmp_path: Path, point: str, directly: bool, accumulate: int
) -> None:
    whole = joining(None, only(point, directly), accumulate=accumulate)
    whole.train()
    joining(tmp_path, only(point, directly), StopsAt(3), accumulate=accumulate).train()
    resumed = joining(tmp_path, only(point, directly), accumulate=accumulate, resume=True)
    resumed.train()
    assert_same_end(whole, resumed)


def test_a_parameter_that_joins_before_an_iteration_is_trained_by_its_own_batch_alone(tmp_path: Path) -> None:
    class Sees(Hook):
        def before_optimizer_step(self, runner: Any) -> None:
            gradient = runner.model[2].bias.grad
            seen.append((runner.iter, gradient.tolist()))

    seen: list[tuple[int, list[float]]] = []
    runner = joining(None, Joins("before_train_iter"), Sees())
    runner.train()
    by_hand: Any = toy_model()
    optimizer = torch.optim.SGD(by_hand[0].parameters(), lr=0.1, momentum=0.9)
    expected = []
    batches = [batch for _ in range(3) for batch in toy_data()][:5]
    for number, batch in enumerate(batches):
        if number == 4:
            by_hand[2].zero_grad()
        torch.autograd.backward([cross_entropy(by_hand, batch)])
        expected.append((number, by_hand[2].bias.grad.tolist()))
        optimizer.step()
        optimizer.zero_grad()
    assert seen[:5] == expected


@pytest.mark.parametrize("stop", [5, 7])
def test_a_run_whose_hook_moved_parameters_and_removed_a_group_resumes_exactly(tmp_path: Path, stop: int) -> None:
    whole = run(None, Moves(), layers=2)
    whole.train()
    run(tmp_path, Moves(), StopsAt(stop), layers=2).train()
    resumed = run(tmp_path, Moves(), layers=2, resume=True)
    resumed.train()
    assert_same_end(whole, resumed)


@pytest.mark.parametrize("stop", [5, 6, 8])
@pytest.mark.parametrize("point", ["before_train_iter", "after_train_iter"])
def test_a_parameter_that_leaves_and_joins_again_begins_without_state(tmp_path: Path, point: str, stop: int) -> None:
    def leaves(runner: Any) -> None:
        parameters = runner.optim.optimizer.param_groups[0]["params"]
        if runner.iter == 4:
            parameters.pop()
        if runner.iter == 7:
            parameters.append(runner.model[0].bias)

    def make(folder: Path | None, *hooks: Hook, **parts: Any) -> Runner:
        runner = run(folder, *hooks, **parts)
        runner.on(point)(leaves)
        return runner

    whole = make(None)
    whole.train()
    make(tmp_path, StopsAt(stop)).train()
    resumed = make(tmp_path, resume=True)
    resumed.train()
    assert_same_end(whole, resumed)


def test_only_a_checkpoint_of_changed_groups_has_their_names(tmp_path: Path) -> None:
    run(tmp_path, Adds(4)).train()
    assert "groups" not in store.read(tmp_path / "epoch_1.pth", sealed=True)
    assert store.read(tmp_path / "epoch_2.pth", sealed=True)["groups"] == {
        "": {"built": [2], "names": [["0.weight", "0.bias"], ["2.weight", "2.bias"]]}
    }


def test_the_rate_of_the_config_is_for_the_groups_of_the_config(tmp_path: Path) -> None:
    run(tmp_path, Adds(4, lr=0.03), schedule=True, max_epochs=2).train()
    resumed = run(tmp_path, Adds(4, lr=0.03), schedule=True, max_epochs=3, resume=True, keep="lr=config")
    resumed.optims.sole.optimizer.param_groups[0].update(lr=0.2, initial_lr=0.2)
    resumed.train()
    own, added = resumed.optims.sole.optimizer.param_groups
    assert (own["initial_lr"], added["params"][0] is resumed.model.get_parameter("2.weight")) == (0.2, True)


def test_windows_of_several_optims_stay_open_over_a_resume(tmp_path: Path) -> None:
    def step(model: Any, batch: Any, optim: Any) -> None:
        optim["a"].update(cross_entropy(model, batch))
        optim["b"].update(cross_entropy(model, batch))

    class AddsToOne(Adds):
        def add(self, runner: Any) -> None:
            runner.model[0].bias.requires_grad_(True)
            runner.optim["a"].optimizer.add_param_group({"params": [runner.model[0].bias], "lr": 0.5})

    def make(folder: Path | None, *hooks: Any, **parts: Any) -> Runner:
        model = toy_model()
        model[0].bias.requires_grad_(False)
        adams = {
            "a": torch.optim.Adam([model.get_parameter("0.weight")], lr=0.1),
            "b": torch.optim.Adam(model[2].parameters(), lr=0.1),
        }
        optims = {name: Optim(adams[name], accumulate=window) for name, window in (("a", 3), ("b", 2))}
        hooks = (AddsToOne(2), *hooks)
        return toy_runner(
            model=model, step=step, optim=optims, custom_hooks=list(hooks), work_dir=folder, max_iters=13, **parts
        )

    whole = make(None)
    whole.train()
    make(tmp_path, StopsAt(5)).train()
    resumed = make(tmp_path, resume=True)
    resumed.train()
    ours, theirs = resumed.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_parameter_that_the_model_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    def rename(checkpoint: dict[str, Any]) -> None:
        checkpoint["groups"][""]["names"][1][0] = "3.weight"

    run(tmp_path, Adds(2), max_epochs=1).train()
    spoil(tmp_path, rename)
    with pytest.raises(StorageError) as refused:
        run(tmp_path, Adds(2), resume=True).train()
    assert str(refused.value) == (
        f"{tmp_path / 'epoch_1.pth'} does not fit this run; nothing was loaded:\n"
        "  the optimizer: a hook has put '3.weight' into a parameter group of the checkpoint, but the model has no "
        "such parameter"
    )


def test_other_groups_in_the_script_are_refused(tmp_path: Path) -> None:
    run(tmp_path, Adds(2), max_epochs=1).train()
    with pytest.raises(StorageError) as refused:
        run(tmp_path, layers=2, resume=True).train()
    assert str(refused.value).endswith(
        "the optimizer: this run has groups of [2, 2] parameters, the run of the checkpoint began with [2]"
    )


def test_a_group_with_a_parameter_that_no_checkpoint_contains_is_refused_at_the_save(tmp_path: Path) -> None:
    class AddsForeign(Adds):
        def add(self, runner: Any) -> None:
            runner.optim.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})

    with pytest.raises(HookError) as refused:
        run(tmp_path, AddsForeign(2)).train()
    assert str(refused.value) == (
        "the optimizer (Adam): parameter group 1 has changed during the run, and has a parameter of shape (3,) that is "
        "not in the model, so no run could resume from this checkpoint; nothing was saved. Put the parameter into the "
        "model, or add its module with runner.add_part, before add_param_group"
    )
    assert list(tmp_path.glob("*.pth")) == []


def test_groups_of_another_type_are_refused(tmp_path: Path) -> None:
    run(tmp_path, Adds(2), max_epochs=1).train()
    spoil(tmp_path, lambda checkpoint: checkpoint["groups"][""].update(names=[[1]]))
    with pytest.raises(StorageError, match=r"cannot be used: groups\[''\] is not of the type that a run saves$"):
        run(tmp_path, Adds(2), resume=True).train()


@pytest.mark.parametrize(("length", "found_at"), [({"max_epochs": 3}, 4), ({"max_iters": 9}, 9)])
@pytest.mark.parametrize("way", ["clear", "each", "replace"])
def test_an_optimizer_that_a_hook_has_emptied_ends_the_run(
    tmp_path: Path, way: str, length: dict[str, Any], found_at: int
) -> None:
    class Empties(Hook):
        def after_train_iter(self, runner: Any) -> None:
            optimizer = runner.optim.optimizer
            if runner.iter == 1 and way == "clear":
                optimizer.param_groups.clear()
            elif runner.iter == 1 and way == "each":
                for group in optimizer.param_groups:
                    group["params"] = []
            elif runner.iter == 1:
                optimizer.param_groups = []

    runner = toy_runner(work_dir=tmp_path, custom_hooks=[Empties()], default_hooks={"checkpoint": None}, **length)
    with pytest.raises(HookError) as refused:
        runner.train()
    assert str(refused.value) == (
        f"the optimizer (SGD) has no parameters left by iteration {found_at} (Empties uses param_groups), so nothing "
        "is trained; to stop training a parameter, freeze it: parameter.requires_grad_(False)"
    )


def test_an_emptied_optimizer_is_never_saved(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path, max_epochs=1)
    runner.on("after_train_epoch")(lambda runner: runner.optim.optimizer.param_groups.clear())
    with pytest.raises(HookError, match="has no parameters left by iteration 4"):
        runner.train()
    assert list(tmp_path.glob("*.pth")) == []
