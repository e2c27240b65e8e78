from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    LambdaLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    PolynomialLR,
    SequentialLR,
)

from hookline.optim import retiming
from hookline.optim.nesting import walk
from hookline.schedules import Cosine, Linear

Make = Callable[[torch.optim.Optimizer], LRScheduler]

OLD, NEW, AT = 10, 30, 4
KINDS: dict[str, Make] = {
    "cosine": lambda optimizer: CosineAnnealingLR(optimizer, T_max=OLD, eta_min=0.01),
    "linear": lambda optimizer: LinearLR(optimizer, 1.0, 0.1, total_iters=OLD),
    "polynomial": lambda optimizer: PolynomialLR(optimizer, total_iters=OLD, power=2.0),
    "one cycle": lambda optimizer: OneCycleLR(optimizer, max_lr=1.0, total_steps=OLD + 1),
    "lambda": lambda optimizer: LambdaLR(optimizer, lambda step: 1 - 0.5 * min(step / OLD, 1)),
    "own cosine": lambda optimizer: Cosine(optimizer, length=OLD, end_factor=0.1),
    "own linear": lambda optimizer: Linear(optimizer, length=OLD, end_factor=0.1),
}


def make(kind: Make) -> tuple[torch.optim.Optimizer, Any]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5, momentum=0.9)
    return optimizer, kind(optimizer)


def advance(optimizer: torch.optim.Optimizer, scheduler: LRScheduler, steps: int) -> list[float]:
    rates = []
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        rates.append(float(optimizer.param_groups[0]["lr"]))
    return rates


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", [NEW, 7])
def test_a_stretched_curve_begins_at_the_current_rate_and_ends_as_the_old_one(kind: str, end: int) -> None:
    whole = advance(*make(KINDS[kind]), OLD)
    optimizer, scheduler = make(KINDS[kind])
    advance(optimizer, scheduler, AT)
    retiming.stretch(scheduler, OLD, end)
    assert optimizer.param_groups[0]["lr"] == whole[AT - 1]
    rates = advance(optimizer, scheduler, end - AT)
    assert rates[-1] == pytest.approx(whole[-1], abs=1e-12)
    if end == NEW:
        steps = [abs(after - before) for before, after in zip([whole[AT - 1], *rates], rates, strict=False)]
        assert max(steps) < max(abs(a - b) for a, b in pairwise(whole)) / 2  # no jump
    assert advance(optimizer, scheduler, 1)[0] == pytest.approx(whole[-1], abs=1e-12)


def test_the_rest_of_a_cosine_is_followed_at_another_speed() -> None:
    optimizer, scheduler = make(KINDS["cosine"])
    advance(optimizer, scheduler, 5)
    retiming.stretch(scheduler, OLD, 15)
    expected = [0.01 + 0.49 * (1 + math.cos(math.pi * (5 + step / 2) / 10)) / 2 for step in range(1, 11)]
    assert advance(optimizer, scheduler, 10) == pytest.approx(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stretched_schedule_is_saved_and_stretched_again(kind: str) -> None:
    optimizer, scheduler = make(KINDS[kind])
    advance(optimizer, scheduler, AT)
    retiming.stretch(scheduler, OLD, 20)
    advance(optimizer, scheduler, 6)
    states = copy.deepcopy((optimizer.state_dict(), scheduler.state_dict()))
    again = make(KINDS[kind])
    again[0].load_state_dict(states[0])
    again[1].load_state_dict(states[1])
    retiming.restore(again[1])
    assert type(again[1]).__name__ == type(scheduler).__name__
    for each in (scheduler, again[1]):
        retiming.stretch(each, 20, 40)
    rates = advance(optimizer, scheduler, 30)
    assert advance(*again, 30) == rates  # to the bit
    assert rates[-1] == pytest.approx(advance(*make(KINDS[kind]), OLD)[-1], abs=1e-12)
    assert len(set(rates)) > 20


def test_a_curve_at_its_end_stays_there() -> None:
    optimizer, scheduler = make(KINDS["cosine"])
    advance(optimizer, scheduler, OLD)
    retiming.stretch(scheduler, OLD, NEW)
    assert advance(optimizer, scheduler, 5) == pytest.approx([0.01] * 5)


def test_two_schedulers_of_one_optimizer_keep_multiplying() -> None:
    def both(optimizer: torch.optim.Optimizer) -> tuple[LRScheduler, LRScheduler]:
        return LinearLR(optimizer, 0.1, 1.0, total_iters=8), KINDS["polynomial"](optimizer)

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    warmup, decay = both(optimizer)
    for _ in range(4):
        optimizer.step()
        warmup.step()
        decay.step()
    retiming.stretch(decay, OLD, 16)
    for _ in range(6):
        warmup.step()
        decay.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx((1 - 7 / 10) ** 2)  # half of the way, without the warmup


def test_a_schedule_inside_another_one_is_found_and_stretched() -> None:
    def sequential(optimizer: torch.optim.Optimizer) -> LRScheduler:
        parts: list[LRScheduler] = [LinearLR(optimizer, 0.1, 1.0, total_iters=3), KINDS["cosine"](optimizer)]
        return SequentialLR(optimizer, parts, milestones=[3])

    optimizer, scheduler = make(sequential)
    advance(optimizer, scheduler, 5)
    inner, name = retiming.find(scheduler, "schedulers.1.T_max")
    assert (inner, name) == (scheduler._schedulers[1], "T_max")
    retiming.stretch(inner, OLD, 20)
    state = copy.deepcopy(scheduler.state_dict())
    assert not retiming.malformed(state)
    rates = advance(optimizer, scheduler, 18)
    assert rates[-1] == pytest.approx(0.01)
    assert sorted(rates, reverse=True) == rates
    _, loaded = make(sequential)
    loaded.load_state_dict(state)
    retiming.restore(loaded)
    assert [isinstance(each, retiming.Retimed) for _, each in walk(loaded)] == [False, False, True]


def test_only_a_schedule_whose_rate_is_a_function_of_its_step_can_be_stretched() -> None:
    assert all(retiming.can_be_stretched(make(kind)[1]) for kind in KINDS.values())
    assert not retiming.can_be_stretched(make(lambda optimizer: CosineAnnealingWarmRestarts(optimizer, 5))[1])


@pytest.mark.parametrize(
    "numbers",
    [3, {}, {"step": 1.0}, {"step": 1.0, "position": "1", "until": 2.0, "end": 3.0},
     {"step": 1.0, "position": math.nan, "until": 2.0, "end": 3.0}],
)  # fmt: skip
def test_odd_numbers_in_a_saved_state_are_noticed(numbers: Any) -> None:
    assert retiming.malformed({"retiming": numbers})
    assert retiming.malformed({"_schedulers": [{}, {"retiming": numbers}]})
