"""Optims that cannot train the model, or cannot train to the end, are refused before the first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ChainedScheduler, ConstantLR, LRScheduler, OneCycleLR, SequentialLR
from torch.utils.data import DataLoader, IterableDataset

from hookline import Hook, Optim, Runner, TrainLoop
from hookline.engine.steps import cross_entropy
from hookline.errors import ConfigError, HookError, StorageError, exit_code_of
from hookline.testing import toy_data, toy_model, toy_runner


def refusal(runner: Runner) -> str:
    """Return the message that training is refused with, before the first step."""
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert runner.iter == 0
    assert exit_code_of(refused.value) == 2
    return str(refused.value)


# -- parameters


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


# -- schedules


def with_one_cycle(steps: int, when: str, accumulate: int = 1, **options: Any) -> Runner:
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedulers = [(OneCycleLR(optimizer, 0.1, total_steps=steps), when)]
    return toy_runner(model=model, optim=Optim(optimizer, schedulers, accumulate=accumulate), **options)


@pytest.mark.parametrize(
    ("when", "needed", "unit", "options"),
    [
        ("epoch", 3, "epoch", {"max_epochs": 3}),
        ("iter", 12, "iteration", {"max_epochs": 3}),
        ("iter", 10, "iteration", {"max_iters": 10}),
        ("step", 6, "optimizer step", {"max_epochs": 3, "accumulate": 3}),
        ("step", 4, "optimizer step", {"max_iters": 10, "accumulate": 3}),
    ],
)
def test_a_cycle_with_too_few_steps_is_refused(when: str, needed: int, unit: str, options: dict[str, Any]) -> None:
    assert refusal(with_one_cycle(needed - 1, when, **options)) == (
        f"OneCycleLR has {needed - 1} steps, but this run needs {needed}: it steps after every {unit}. "
        f"Set total_steps to {needed}"
    )
    runner = with_one_cycle(needed, when, **options)
    runner.train()
    assert runner.optims.sole.schedulers[0].scheduler.last_epoch == needed


def test_a_schedule_that_stays_at_its_end_may_be_short() -> None:
    class Falling(LRScheduler):
        def __init__(self, optimizer: Any, total_steps: int) -> None:
            self.total_steps = total_steps
            super().__init__(optimizer)

        def get_lr(self) -> list[float | Tensor]:
            return [rate * max(0.5, 1 - self.last_epoch / self.total_steps) for rate in self.base_lrs]

    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    toy_runner(model=model, optim=Optim(optimizer, [(Falling(optimizer, 3), "iter")])).train()
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_a_cycle_that_was_long_enough_is_refused_when_the_run_is_resumed_with_more_epochs(tmp_path: Path) -> None:
    with_one_cycle(2, "epoch", max_epochs=2, work_dir=tmp_path).train()
    with pytest.raises(ConfigError) as refused:  # the checkpoint restores the length of the cycle
        with_one_cycle(4, "epoch", max_epochs=4, work_dir=tmp_path, resume=True).train()
    assert str(refused.value) == (
        "OneCycleLR has 2 steps, but this run needs 4: it steps after every epoch. The length is that of the "
        "checkpoint and cannot grow; train only to its end, or start a new run from its weights (load_from)"
    )


def test_a_short_cycle_inside_of_other_schedulers_is_refused() -> None:
    def runner_with(steps: int, kind: str) -> Runner:
        model = toy_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        cycle = OneCycleLR(optimizer, 0.1, total_steps=steps)
        scheduler: LRScheduler = ChainedScheduler([ConstantLR(optimizer), cycle])
        if kind == "last":
            scheduler = SequentialLR(optimizer, [ConstantLR(optimizer), cycle], [2])
        elif kind == "middle":
            scheduler = SequentialLR(optimizer, [ConstantLR(optimizer), cycle, ConstantLR(optimizer)], [2, 5])
        elif kind == "first":
            scheduler = SequentialLR(optimizer, [cycle, ConstantLR(optimizer)], [5])
        return toy_runner(model=model, optim=Optim(optimizer, [(scheduler, "iter")]))

    for kind, needed in {"chained": 8, "last": 6, "middle": 2, "first": 4}.items():
        assert refusal(runner_with(needed - 1, kind)) == (
            f"OneCycleLR has {needed - 1} steps, but this run needs {needed}: it steps after every iteration. "
            f"Set total_steps to {needed}"
        )
        runner_with(needed, kind).train()


def test_a_cycle_that_ends_early_in_data_without_a_length_ends_with_a_clear_error(tmp_path: Path) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(toy_data())

    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optim = Optim(optimizer, [(OneCycleLR(optimizer, 0.1, total_steps=5), "iter")])
    loop = TrainLoop(DataLoader(Stream(), batch_size=None), cross_entropy, max_epochs=2)
    runner = Runner(model, train=loop, optim=optim, work_dir=tmp_path, quiet=True)
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert str(refused.value) == (
        "OneCycleLR has 5 steps, but this run needs more: it steps after every iteration. Set total_steps to the "
        "number of iterations of the whole training"
    )
