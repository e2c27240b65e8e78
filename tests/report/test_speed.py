from __future__ import annotations

from typing import Any

import pytest

from hookline.common.memory import Held
from hookline.plan.cost_report import CostReport, HookCost
from hookline.plan.costs import Total
from hookline.report.speed import Shape, speed_of


def costs_of(hooks: dict[str, dict[str, Total]], **parts: Total) -> CostReport:
    """Return the costs of 100 steps, each with 5 ms of model."""
    of_model = {"forward": Total(100, 0.2), "backward": Total(100, 0.2), "optimizer": Total(100, 0.1)}
    rest = {name: Total() for name in ("data", "saving", "validation")}
    report: dict[str, Any] = {"first_step": 0, "steps": 100, "sampled_steps": 100, "seconds": 1.0}
    return CostReport(
        **report,
        parts=of_model | rest | parts,
        hooks=tuple(HookCost(name, "observer", 50, points, 0.0, Held()) for name, points in hooks.items()),
        memory=(),
        overhead=0.0,
        plan={},
    )


SHAPE = Shape(steps=1000, validations=2, saves=10, batches=(10, 50), workers=0)


def test_every_part_is_shown_with_its_share_of_the_whole_run() -> None:
    hooks = {
        "Slow": {"after_train_iter": Total(100, 0.04), "before_train": Total(1, 9.0)},
        "Quick": {"around_train_iter": Total(100, 0.01)},
    }
    costs = costs_of(hooks, data=Total(100, 0.1), saving=Total(1, 0.5), validation=Total(1, 0.2))
    speed = speed_of(costs, 10.4, SHAPE)  # 0.5 model, 0.1 data, 0.05 hooks, 9.0 once, 0.7 saves and validations
    assert speed.lines() == [
        "                        each  of the run",
        "the model            5.00 ms       35.7%  forward 2.00 ms, backward 2.00 ms, optimizer 1.00 ms",
        "waiting for data     1.00 ms        7.1%  num_workers: 0",
        "hooks                 500 µs        3.6%  most in Slow: 400 µs",
        "the loop              500 µs        3.6%  with the measuring itself",
        "a validation          1.00 s       14.3%  50 batches of 20.00 ms; a forward pass of training takes 2.00 ms",
        "a save             500.00 ms       35.7%",
        "",
        "The largest part beside the model is a save: 36% of the run. Save less often "
        "(default_hooks.checkpoint.interval), or in the background (async_save: true).",
    ]


@pytest.mark.parametrize(
    ("parts", "hooks", "seconds", "verdict"),
    [
        (
            {"data": Total(100, 0.5)},
            {},
            1.0,
            "The largest part beside the model is waiting for data: 50% of the run. Raise "
            "train.dataloader.num_workers (now 0), or make reading a sample cheaper.",
        ),
        (
            {"data": Total(100, 0.01)},
            {"Slow": {"after_train_iter": Total(100, 0.2)}},
            0.71,
            "The largest part beside the model is hooks: 28% of the run. Let Slow run less often (its interval, or "
            "@every), or make it cheaper.",
        ),
        (
            {"validation": Total(2, 0.2)},
            {},
            0.7,
            "The largest part beside the model is a validation: 17% of the run. Validate less often "
            "(train.val_interval), on fewer batches (val.limit_batches), or in larger batches.",
        ),
        (
            {"data": Total(100, 0.02)},
            {},
            0.54,
            "The model takes 93% of the run. No other part with a remedy takes more than 5%, so only a faster step "
            "makes this run faster: threads, compile, precision.",
        ),
    ],
)
def test_the_verdict_names_the_largest_part_and_one_act(
    parts: dict[str, Total], hooks: dict[str, dict[str, Total]], seconds: float, verdict: str
) -> None:
    assert speed_of(costs_of(hooks, **parts), seconds, SHAPE).verdict == verdict


def test_a_run_of_unknown_length_has_no_shares_of_what_happens_now_and_then() -> None:
    costs = costs_of({}, saving=Total(1, 0.5))
    speed = speed_of(costs, 1.0, Shape(None, None, None, None, 0))
    assert [(part.name, round(speed.share(part), 3)) for part in speed.parts] == [
        *[("the model", 1.0), ("waiting for data", 0.0), ("hooks", 0.0), ("the loop", 0.0), ("a save", 0.0)]
    ]
