"""Optims that cannot train the model are refused before the first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingLR,
    LambdaLR,
    LRScheduler,
    OneCycleLR,
    StepLR,
)

from hookline import Hook, Optim, Runner
from hookline.engine.steps import cross_entropy
from hookline.errors import ConfigError, DistributedError, HookError, StorageError, exit_code_of
from hookline.rundir import journal
from hookline.schedules import Cosine, Warmup
from hookline.strategies.gradients import CopiedGradients
from hookline.testing import toy_data, toy_model, toy_runner


def refusal(runner: Runner) -> str:
    """Return the message that training is refused with, before the first step."""
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert runner.iter == 0
    assert exit_code_of(refused.value) == 2
    return str(refused.value)


# -- parameters


def test_a_parameter_that_a_hook_unfreezes_after_ddp_has_wrapped_the_model_is_refused_by_name(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path, max_epochs=2)
    runner.model[0].requires_grad_(False)  # type: ignore[index]  # a Sequential
    gradients = CopiedGradients(cast("Any", None))
    gradients.note_wrapped(runner.model)
    runner.strategy.gradients = gradients

    @runner.on("after_train_epoch")
    def unfreeze(runner: Runner) -> None:
        runner.model[0].requires_grad_(True)  # type: ignore[index]  # a Sequential

    with pytest.raises(DistributedError) as refused:
        runner.train()
    assert str(refused.value) == (
        "0.weight and 1 more: trained by iteration 4, but frozen or missing when the strategy 'single' wrapped the "
        "model, which averages no other gradients, so each process trains its own; let it require gradients from the "
        "start, and freeze it with FreezeHook(patterns, until_epoch=...)"
    )


def test_an_optimizer_of_another_model_is_refused() -> None:
    optimizer = torch.optim.SGD(toy_model().parameters(), lr=0.1)
    assert refusal(toy_runner(optim=optimizer)) == (
        "the optimizer (SGD) updates none of the model's parameters, so the model would not be trained. Create the "
        "optimizer with the parameters of the model that the Runner gets; to train a second model, put both into one "
        "module, or add it with runner.add_part"
    )


def test_one_of_several_optimizers_without_parameters_of_the_model_is_named() -> None:
    model = toy_model()
    optims = {
        "net": torch.optim.SGD(model.parameters(), lr=0.1),
        "other": torch.optim.Adam(toy_model().parameters(), lr=0.1),
    }

    def step(model: nn.Module, batch: Any, optim: Any) -> None:
        optim["net"].update(cross_entropy(model, batch))

    assert refusal(toy_runner(model=model, optim=optims, step=step)).startswith(
        "the optimizer of optim 'other' (Adam) updates none of the model's parameters, so"
    )


OTHER_OPTIMIZER = (
    "{0} was created with another optimizer (Adam), so it would never change the rate of the optimizer{1} (SGD). "
    "Create it with the optimizer of its Optim: Optim(optimizer, schedulers=[{0}(optimizer, ...)])"
)


@pytest.mark.parametrize(
    ("make", "who"),
    [
        (Cosine, "Cosine"),
        (lambda other: StepLR(other, 1), "StepLR"),
        (lambda other: (StepLR(other, 1), "iter"), "StepLR"),
        (lambda other: Warmup(other, 2), "Warmup"),
        (lambda other: ChainedScheduler([StepLR(other, 1)], optimizer=other), "StepLR"),
    ],
)
def test_a_scheduler_of_another_optimizer_is_refused(make: Any, who: str) -> None:
    model = toy_model()
    optimizer, other = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError) as refused:
        Optim(optimizer, schedulers=[make(other)])
    assert str(refused.value) == OTHER_OPTIMIZER.format(who, "")


def test_a_scheduler_whose_optimizer_was_replaced_before_the_run_is_refused() -> None:
    model = toy_model()
    optimizer, other = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam(model.parameters(), lr=0.1)
    optim = Optim(other, schedulers=[StepLR(other, 1)])
    optim.optimizer = optimizer

    def step(model: nn.Module, batch: Any, optim: Any) -> None:
        optim["net"].update(cross_entropy(model, batch))

    runner = toy_runner(model=model, optim={"net": optim}, step=step)
    assert refusal(runner) == OTHER_OPTIMIZER.format("StepLR", " of optim 'net'")


def test_a_scheduler_of_a_wrapper_with_the_same_groups_is_accepted() -> None:
    optimizer = torch.optim.SGD(toy_model().parameters(), lr=0.1)
    wrapper = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    wrapper.param_groups = optimizer.param_groups
    scheduler = StepLR(wrapper, 1)
    assert Optim(optimizer, schedulers=[scheduler]).schedulers[0].scheduler is scheduler


def test_parameters_outside_of_the_model_are_reported(tmp_path: Path) -> None:
    model, margin = toy_model(), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([*model.parameters(), margin], lr=0.1)
    toy_runner(model=model, optim=optimizer, work_dir=tmp_path).train()
    assert (
        "the optimizer (SGD) updates 1 parameters that are not in the model, so checkpoints do not contain them. Put "
        "them into the model, or add their module with runner.add_part."
    ) in (tmp_path / "run.log").read_text()


def test_a_module_that_was_added_as_a_part_counts_as_the_model(tmp_path: Path) -> None:
    model, head = nn.Linear(1, 1), toy_model()

    def step(model: nn.Module, batch: Any) -> Tensor:
        return cross_entropy(head, batch)

    runner = toy_runner(
        model=model, optim=torch.optim.SGD(head.parameters(), lr=0.1), step=step, val=None, work_dir=tmp_path
    )
    runner.add_part("head", head)
    runner.train()
    assert "not in the model" not in (tmp_path / "run.log").read_text()


def test_a_model_cannot_be_replaced_while_it_is_trained() -> None:
    class Replaces(Hook):
        def before_train_epoch(self, runner: Runner) -> None:
            runner.model = toy_model(seed=1)

    with pytest.raises(HookError) as refused:
        toy_runner(custom_hooks=[Replaces()]).train()
    assert str(refused.value) == (
        "runner.model cannot be replaced during runner.train(), because the loop and the checkpoints would use "
        "different ones; change it in place, for example with runner.model.load_state_dict(...), or set it before the "
        "run"
    )


def test_an_optim_cannot_be_replaced_while_it_trains() -> None:
    class Replaces(Hook):
        def before_train_epoch(self, runner: Runner) -> None:
            runner.optim = torch.optim.SGD(runner.model.parameters(), lr=0.1)

    with pytest.raises(HookError, match=r"^runner\.optim cannot be replaced during runner\.train\(\), because"):
        toy_runner(custom_hooks=[Replaces()]).train()


@pytest.mark.parametrize("point", ["before_train", "before_train_epoch"])
def test_parameters_that_a_hook_replaces_are_noticed_before_the_first_step(point: str) -> None:
    def replace(runner: Runner) -> None:
        for module in runner.model.modules():
            for name, value in list(module._parameters.items()):
                setattr(module, name, nn.Parameter(value.detach().clone()) if value is not None else None)

    runner = toy_runner()
    runner.plan.on(point, replace)
    assert refusal(runner).startswith("the optimizer (SGD) updates none of the model's parameters, so the model would")


def test_an_optimizer_cannot_be_replaced_while_it_trains() -> None:
    class Replaces(Hook):
        def before_train(self, runner: Runner) -> None:
            runner.optims.sole.optimizer = torch.optim.SGD(toy_model().parameters(), lr=0.1)

    runner = toy_runner(custom_hooks=[Replaces()])
    with pytest.raises(HookError) as refused:
        runner.train()
    assert str(refused.value) == (
        "optim.optimizer cannot be replaced during runner.train(), because its schedulers and earlier checkpoints "
        "belong to the old one; change it in place, for example with optim.optimizer.param_groups, or set it before "
        "the run"
    )
    runner = toy_runner()
    runner.optims.sole.optimizer = torch.optim.SGD(runner.model.parameters(), lr=0.2)
    runner.train()
    assert runner.optims.sole.learning_rates() == [0.2]


def test_frozen_parameters_are_refused_before_the_first_step() -> None:
    model = toy_model().requires_grad_(False)
    assert refusal(toy_runner(model=model)) == (
        "the optimizer (SGD) updates only parameters that are frozen (requires_grad is False), so nothing would be "
        "trained; unfreeze some of them: parameter.requires_grad_(True)"
    )


def test_a_hook_can_unfreeze_the_parameters_in_time() -> None:
    class Unfreezes(Hook):
        def before_train_epoch(self, runner: Runner) -> None:
            runner.model.requires_grad_(True)

    runner = toy_runner(model=toy_model().requires_grad_(False), custom_hooks=[Unfreezes()])
    runner.train()
    assert runner.iter == 8


def untrained(runner: Runner) -> list[str]:
    """Train, and return the warnings about parameters that no optimizer has."""
    runner.train()
    lines = (runner.work_dir / "run.log").read_text().splitlines()
    return [line.partition("warning: ")[2] for line in lines if "no optimizer has" in line]


def test_parameters_that_no_optimizer_has_are_named() -> None:
    advice = (
        "Pass them to an optimizer, or, if they are to stay as they are, freeze them: FreezeHook, or "
        "parameter.requires_grad_(False)"
    )
    start = "no optimizer has these parameters of the model, so they are never trained: "
    model = toy_model()
    assert untrained(toy_runner(model=model, optim=torch.optim.SGD(model[2].parameters(), lr=0.1))) == [
        f"{start}0.weight, 0.bias. {advice}"
    ]
    model = nn.Sequential(toy_model(), nn.Linear(2, 2), nn.Linear(2, 2))
    assert untrained(toy_runner(model=model, optim=torch.optim.SGD(model[2].parameters(), lr=0.1))) == [
        f"{start}0.0.weight, 0.0.bias, 0.2.weight and 3 more. {advice}"
    ]


def test_parameters_that_are_frozen_or_in_one_of_several_optims_are_not_reported() -> None:
    model = toy_model()
    model[0].requires_grad_(False)
    assert untrained(toy_runner(model=model, optim=torch.optim.SGD(model[2].parameters(), lr=0.1))) == []
    model = toy_model()
    freezing = {"type": "FreezeHook", "patterns": "0.*"}
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    assert untrained(toy_runner(model=model, optim=optimizer, custom_hooks=[freezing])) == []
    model = toy_model()
    optims = {name: torch.optim.SGD(model[int(name)].parameters(), lr=0.1) for name in ("0", "2")}

    def step(model: nn.Module, batch: Any, optim: Any) -> None:
        optim["0"].update(cross_entropy(model, batch))

    assert untrained(toy_runner(model=model, optim=optims, step=step)) == []


def test_parameters_that_a_hook_may_pass_to_the_optimizer_later_are_not_reported() -> None:
    class Adds(Hook):
        def after_train_epoch(self, runner: Runner) -> None:
            """Train the whole model from the second epoch on."""
            if runner.epoch == 0:
                self._add(runner)

        def _add(self, runner: Runner) -> None:
            runner.optims.sole.optimizer.add_param_group({"params": list(runner.model.get_submodule("0").parameters())})

    model = toy_model()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    assert untrained(toy_runner(model=model, optim=optimizer, custom_hooks=[Adds()])) == []


def test_model_and_optim_that_are_set_before_the_run_are_the_ones_that_are_trained_and_saved(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path, max_epochs=1)
    expected = toy_runner(model=toy_model(seed=1), max_epochs=1)
    expected.train()
    runner.model = toy_model(seed=1)
    runner.optim = torch.optim.SGD(runner.model.parameters(), lr=0.1)
    runner.train()
    saved = torch.load(tmp_path / "epoch_1.pth", weights_only=True)["state_dict"]
    for name, value in expected.model.state_dict().items():
        assert runner.model.state_dict()[name].equal(value)
        assert saved[name].equal(value)


def test_a_hook_can_evaluate_another_model_in_the_mode_of_this_one() -> None:
    modes: list[bool] = []

    class Swaps(Hook):
        def before_test(self, runner: Runner) -> None:
            runner.model = toy_model(seed=1)

        def after_test_iter(self, runner: Runner) -> None:
            modes.append(runner.model.training)

    runner, other = toy_runner(custom_hooks=[Swaps()]), toy_runner(model=toy_model(seed=1))
    assert runner.test() == other.test()
    assert modes == [False, False]


def test_an_optimizer_that_cannot_continue_from_a_checkpoint_names_the_checkpoint(tmp_path: Path) -> None:
    class Spoils(Hook):
        def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
            del checkpoint["optimizer"]["param_groups"][0]["momentum"]

    toy_runner(work_dir=tmp_path, max_epochs=1, custom_hooks=[Spoils()]).train()
    runner = toy_runner(work_dir=tmp_path, max_epochs=2, resume=True)
    with pytest.raises(StorageError) as refused:
        runner.train()
    assert str(refused.value) == (
        f"{tmp_path}/epoch_1.pth cannot be used: SGD cannot continue from the state in it: KeyError: 'momentum'"
    )
    assert exit_code_of(refused.value) == 5


# -- closures


def test_lbfgs_is_refused_before_the_first_backward() -> None:
    model = toy_model()
    assert refusal(toy_runner(model=model, optim=torch.optim.LBFGS(model.parameters()))) == (
        "the optimizer (LBFGS) needs a closure that evaluates the model again, which the loop does not provide. Use "
        "another optimizer, or write a step with a parameter named optim that calls optim.optimizer.step(closure)"
    )


def test_a_step_can_call_lbfgs_with_its_own_closure() -> None:
    def step(model: nn.Module, batch: Any, optim: Any) -> dict[str, Any]:
        def closure() -> Tensor:
            optim.optimizer.zero_grad()
            loss = cross_entropy(model, batch)
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
            return loss

        return {"loss": optim.optimizer.step(closure)}

    model, by_hand = toy_model(), toy_model()
    toy_runner(model=model, optim=torch.optim.LBFGS(model.parameters()), step=step, max_epochs=1).train()
    optimizer = torch.optim.LBFGS(by_hand.parameters())
    for batch in toy_data():
        step(by_hand, batch, Optim(optimizer))
    for ours, theirs in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert ours.equal(theirs)


@pytest.mark.parametrize("accumulate", [1, 3, 9])
def test_update_refuses_lbfgs_by_name(accumulate: int) -> None:
    def step(model: nn.Module, batch: Any, optim: Any) -> None:
        optim["net"].update(cross_entropy(model, batch))

    model = toy_model()
    optims = {"net": Optim(torch.optim.LBFGS(model.parameters()), accumulate=accumulate)}
    with pytest.raises(ConfigError) as refused:
        toy_runner(model=model, optim=optims, step=step, max_epochs=1).train()
    assert str(refused.value) == (
        "the optimizer (LBFGS) needs a closure that evaluates the model again, which the loop does not provide. Use "
        "another optimizer, or write a step with a parameter named optim that calls optim.optimizer.step(closure)"
    )


def test_a_module_that_is_replaced_during_training_is_reported_once(tmp_path: Path) -> None:
    class Replaces(Hook):
        def before_train_epoch(self, runner: Runner) -> None:
            if runner.epoch == 1:
                cast("nn.Sequential", runner.model)[0] = nn.Linear(4, 8)

    toy_runner(work_dir=tmp_path, max_epochs=4, custom_hooks=[Replaces()]).train()
    warnings = [event["text"] for event in journal.read(tmp_path) if event["kind"] == "warning"]
    assert warnings == [
        "no optimizer has these parameters of the model, so they are never trained: 0.weight, 0.bias. Pass them to an "
        "optimizer, or, if they are to stay as they are, freeze them: FreezeHook, or "
        "parameter.requires_grad_(False)"
    ]


@pytest.mark.parametrize(
    ("state", "found"),
    [
        (None, ", not NoneType"),
        ({"net": {"weight": torch.ones(2)}}, ", but 'net' is a dict; return other values from get_extra_state()"),
    ],
)
def test_a_model_whose_state_cannot_be_saved_is_refused_before_the_first_step(state: Any, found: str) -> None:
    class Net(nn.Linear):
        def state_dict(self, *args: Any, **options: Any) -> Any:
            return state

    seen: list[int] = []
    runner = toy_runner(model=Net(4, 2))
    runner.on("before_train_iter")(lambda runner: seen.append(runner.iter))
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert str(refused.value) == f"state_dict() of Net must return a dict with a tensor for every name{found}"
    assert seen == []


# -- windows and rates


def reported(runner: Runner) -> list[str]:
    """Train, and return the warnings in the log."""
    runner.train()
    lines = (runner.work_dir / "run.log").read_text().splitlines()
    return [line.partition("warning: ")[2] for line in lines if "warning: " in line]


def test_a_window_that_is_longer_than_an_epoch_is_reported(tmp_path: Path) -> None:
    def run(accumulate: int, **parts: Any) -> list[str]:
        folder = tmp_path / f"{accumulate}-{len(list(tmp_path.iterdir()))}"
        return reported(toy_runner(batches=3, accumulate=accumulate, work_dir=folder, **parts))

    message = (
        "the optimizer (SGD): accumulate is {}, but {} has only {}, so it makes just one update, with fewer batches "
        "than that. Set accumulate to at most {}"
    )
    assert run(1000, max_epochs=2) == [message.format("1,000", "every epoch", "3 batches", 3)]
    assert run(6, max_iters=5) == [message.format(6, "this run", "5 batches", 5)]
    assert run(3, max_epochs=2) == []
    assert run(4, max_iters=5) == []


def with_rates(folder: Path, *rates: float, schedulers: Any = lambda one: [], **parts: Any) -> list[str]:
    model = toy_model()
    layers = [model[0], model[2]] if len(rates) > 1 else [model]
    groups = [{"params": layer.parameters(), "lr": lr} for layer, lr in zip(layers, rates, strict=True)]
    optimizer = torch.optim.SGD(groups)
    work_dir = folder / str(len(list(folder.iterdir())))
    optim = Optim(optimizer, schedulers(optimizer))
    return reported(toy_runner(model=model, optim=optim, work_dir=work_dir, max_epochs=2, **parts))


ALL_0 = "the optimizer (SGD): the learning rate is 0, so nothing is trained. Set lr to a number above 0"


def test_a_rate_of_0_that_nothing_changes_is_reported(tmp_path: Path) -> None:
    assert with_rates(tmp_path, 0.0) == [ALL_0]
    assert with_rates(tmp_path, 0.0, 0.0) == [ALL_0]
    assert with_rates(tmp_path, 0.0, schedulers=lambda one: [Cosine(one, warmup=2)]) == [ALL_0]
    assert with_rates(tmp_path, 0.0, schedulers=lambda one: [StepLR(one, 1), Warmup(one, 2)]) == [ALL_0]
    assert with_rates(tmp_path, 0.1, 0.0) == [
        "the optimizer (SGD): the learning rate of parameter group 1 is 0, so these parameters are not trained. "
        "Freezing them with requires_grad=False saves time and memory"
    ]


def test_a_rate_of_0_that_something_changes_is_not_reported(tmp_path: Path) -> None:
    class Sets(Hook):
        def before_train_epoch(self, runner: Runner) -> None:
            runner.optims.sole.optimizer.param_groups[0]["lr"] = 0.1

    class Mine(LRScheduler):
        def get_lr(self) -> list[Any]:
            return [0.1 * self.last_epoch]

    assert with_rates(tmp_path, 0.0, custom_hooks=[Sets()]) == []
    assert with_rates(tmp_path, 0.0, schedulers=lambda one: [Mine(one)]) == []
    rises = lambda step: step / 8  # noqa: E731  # a warmup from 0
    assert with_rates(tmp_path, 0.1, schedulers=lambda one: [(LambdaLR(one, rises), "iter")]) == []
    assert with_rates(tmp_path, 0.0, schedulers=lambda one: [CosineAnnealingLR(one, 2, eta_min=0.1)]) == []
    assert with_rates(tmp_path, 0.0, schedulers=lambda one: [(OneCycleLR(one, 0.1, total_steps=8), "iter")]) == []


def test_a_resumed_run_whose_schedule_has_ended_at_0_is_reported(tmp_path: Path) -> None:
    def run(epochs: int, **parts: Any) -> list[str]:
        model = toy_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optim = Optim(optimizer, [Cosine(optimizer, length=8)])
        return reported(toy_runner(model=model, optim=optim, work_dir=tmp_path, max_epochs=epochs, **parts))

    assert run(2) == []
    assert run(2, resume=True) == []  # it is finished
    assert run(3, resume=True) == [
        "the optimizer (SGD): the learning rate is 0 and stays there, because the schedule has ended, so nothing is "
        "trained. Start a new run from these weights (load_from)"
    ]
