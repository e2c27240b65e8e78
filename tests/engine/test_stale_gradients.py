"""Gradients that a hook leaves behind are not part of the next update; those of the same iteration are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hookline import EvalLoop, Hook, Optim, Runner
from hookline.engine.metrics import accuracy
from hookline.engine.steps import cross_entropy, predict
from hookline.hooks import EvaluateHook
from hookline.testing import toy_data, toy_model, toy_runner


class Leaves(Hook):
    """Leaves gradients behind at one point."""

    def __init__(self, point: str) -> None:
        self.point = point

    def _backward(self, runner: Runner) -> None:
        with torch.enable_grad():
            torch.autograd.backward([parameter.sum() for parameter in runner.model.parameters()])

    def after_val_epoch(self, runner: Runner) -> None:
        if self.point == "after_val_epoch":
            self._backward(runner)

    def after_train_iter(self, runner: Runner) -> None:
        if self.point == "after_train_iter":
            self._backward(runner)

    def before_train_epoch(self, runner: Runner) -> None:
        if self.point == "before_train_epoch":
            self._backward(runner)


def weights(runner: Runner) -> list[list[float]]:
    return [parameter.flatten().tolist() for parameter in runner.model.parameters()]


@pytest.mark.parametrize(
    ("point", "accumulate"),
    [
        ("after_val_epoch", 1),
        ("after_val_epoch", 3),
        ("before_train_epoch", 1),
        ("before_train_epoch", 3),
        ("after_train_iter", 1),
    ],
)
def test_gradients_that_a_hook_leaves_behind_are_not_part_of_the_next_update(point: str, accumulate: int) -> None:
    trained = []
    for hooks in ([], [Leaves(point)]):
        runner = toy_runner(max_epochs=2, accumulate=accumulate, custom_hooks=hooks)
        runner.train()
        trained.append(weights(runner))
    assert trained[0] == trained[1]


def leave_gradients(model: nn.Module, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.enable_grad():
        torch.autograd.backward([cross_entropy(model, batch)])
    return model(batch[0]), batch[1]


def test_gradients_of_a_validation_step_are_not_used() -> None:
    trained = []
    for step in (predict, leave_gradients):
        val = EvalLoop(toy_data(2, seed=1), step, metrics={"accuracy": accuracy})
        runner = toy_runner(max_iters=6, train={"val_interval": 2}, val=val)
        runner.train()
        trained.append(weights(runner))
    assert trained[0] == trained[1]


def test_gradients_of_an_evaluate_hook_are_not_used() -> None:
    def evaluate(model: nn.Module) -> dict[str, float]:
        leave_gradients(model, toy_data(1, seed=1)[0])
        return {"accuracy": 0.5}

    trained = []
    for hooks in ([], [EvaluateHook(evaluate, interval=2)]):
        runner = toy_runner(max_iters=6, custom_hooks=hooks)
        runner.train()
        trained.append(weights(runner))
    assert trained[0] == trained[1]


def test_gradients_of_parameters_that_join_between_epochs_are_not_part_of_the_next_update() -> None:
    class Joins(Hook):
        def before_train_epoch(self, runner: Runner) -> None:
            if runner.epoch == 1:
                extra.grad = torch.ones_like(extra)
                runner.optims.sole.optimizer.add_param_group({"params": [extra]})

    model, extra = toy_model(), nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.register_parameter("extra", extra)
    toy_runner(model=model, optim=Optim(optimizer), max_epochs=2, custom_hooks=[Joins()]).train()
    assert extra.tolist() == [0.0, 0.0]


def test_gradients_of_the_same_iteration_are_part_of_its_update() -> None:
    """A hook may add to the gradients of an iteration, and a step may call `backward` for a second loss."""
    seen: list[list[float]] = []

    class Adds(Hook):
        def before_train_iter(self, runner: Runner) -> None:
            for parameter in runner.model.parameters():
                parameter.grad = torch.ones_like(parameter)

        def before_optimizer_step(self, runner: Runner) -> None:
            seen.append(next(runner.model.parameters()).grad.flatten().tolist())  # type: ignore[union-attr]

    def step(model: nn.Module, batch: Any) -> torch.Tensor:
        torch.autograd.backward([next(model.parameters()).sum()])
        return torch.stack([parameter.sum() for parameter in model.parameters()]).sum() * 0

    runner = toy_runner(max_epochs=1, batches=2, step=step, custom_hooks=[Adds()])
    size = next(runner.model.parameters()).numel()
    runner.train()
    assert seen == [[2.0] * size] * 2


def test_a_step_with_its_own_way_of_updating_keeps_its_gradients() -> None:
    steps: list[int] = []

    def step(model: nn.Module, batch: Any, optim: Any) -> None:
        torch.autograd.backward([cross_entropy(model, batch)])
        steps.append(len(steps))
        if len(steps) % 2 == 0:
            optim.optimizer.step()
            optim.optimizer.zero_grad()

    runner = toy_runner(max_epochs=1, step=step, custom_hooks=[Leaves("nowhere")])
    by_hand = toy_model()
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1)
    for number, batch in enumerate(toy_data(batches=4), 1):
        torch.autograd.backward([cross_entropy(by_hand, batch)])
        if number % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
    runner.train()
    assert weights(runner) == [parameter.flatten().tolist() for parameter in by_hand.parameters()]
