from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

from hookline import Hook, every
from hookline.common import rng
from hookline.testing import toy_runner


def draw() -> tuple[float, float, float]:
    return torch.rand(1).item(), float(np.random.rand()), random.random()


def test_a_restored_state_yields_the_same_numbers() -> None:
    rng.seed_everything(3)
    np.random.normal()  # leaves a second number over for the next call
    before = rng.state()
    expected = draw(), float(np.random.normal()), random.gauss(0, 1)
    rng.restore(before)
    assert (draw(), float(np.random.normal()), random.gauss(0, 1)) == expected


def test_drawing_inside_untouched_has_no_effect_outside() -> None:
    rng.seed_everything(3)
    expected = draw()
    rng.seed_everything(3)
    with suppress(ZeroDivisionError), rng.preserved():
        raise ZeroDivisionError(draw())
    assert draw() == expected


class Draws(Hook):
    role = "observer"

    def before_train_iter(self, runner: Any) -> None:
        draw()

    @every(2)
    def after_train_iter(self, runner: Any) -> None:
        draw()

    def around_train_iter(self, runner: Any) -> Iterator[None]:
        draw()
        yield
        draw()


class DrawsAsActor(Draws):
    role = "actor"  # type: ignore[assignment]  # mypy infers a narrower type from the base class


class SaysItDoesNot(Draws):
    draws_random_numbers = False


@pytest.mark.parametrize(("hook", "same"), [(Draws, True), (DrawsAsActor, False), (SaysItDoesNot, False)])
def test_an_observer_that_draws_random_numbers_does_not_change_the_run(hook: type[Hook], same: bool) -> None:
    seen: list[list[tuple[float, float, float]]] = []
    for hooks in ([], [hook()]):
        runner = toy_runner(max_epochs=2, custom_hooks=hooks)
        seen.append([])
        runner.on("before_backward")(lambda: seen[-1].append(draw()))
        runner.train()
    assert (seen[0] == seen[1]) is same
    assert len(seen[0]) == 8
