from __future__ import annotations

from typing import Any

import pytest

from hookline.resume.compare import compare, show
from hookline.run.keep import parse_keep

COSINE = {"type": "CosineAnnealingLR", "when": "epoch", "auto": {}, "values": {"T_max": 10, "eta_min": 0.0}}


def facts(asked: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return the `meta` of a run, with changes."""
    usual: dict[str, Any] = {
        "max_epochs": 10,
        "max_iters": None,
        "samples": 64,
        "lr": {"": [0.1]},
        "options": {"": [{"momentum": 0.9, "weight_decay": 0.0}]},
        "clip": {"": None},
        "schedules": {"": [COSINE]},
        "hooks": {"LoggerHook": {"interval": 10}},
        "parts": [],
    }
    return {
        **{"hookline": "1", "torch": "2", "numpy": "2", "python": "3", "threads": 2, "device": "cpu"},
        **{"world_size": 1, "seed": 0, "precision": "fp32", "accumulate": [1], "batches": 8, "batch_size": 8},
        **{"hooks": ["LoggerHook"], "asked": {**usual, **(asked or {})}, "states": {"LoggerHook": {}}},
        **more,
    }


def lines(then: dict[str, Any], now: dict[str, Any], keep: Any = None, **where: Any) -> list[str]:
    found = compare(then, now, parse_keep(keep), **where)
    return [each.line(lambda choice: f"--keep {choice}") for each in found]


def auto(length: int, **more: Any) -> dict[str, Any]:
    """Return the facts of a run whose schedule is as long as the run."""
    schedule = {**COSINE, "auto": {"T_max": length}, "values": {"T_max": length, "eta_min": 0.0}, **more}
    return facts({"max_epochs": length, "schedules": {"": [schedule]}})


def test_nothing_differs_between_equal_runs() -> None:
    assert lines(facts(), facts()) == []


@pytest.mark.parametrize(
    ("then", "now", "line"),
    [
        (
            facts(),
            facts({"lr": {"": [0.05]}}),
            "lr: checkpoint 0.1, config 0.05: the checkpoint wins; to use the config's: --keep lr=config",
        ),
        (
            facts({"lr": {"a": [0.1, 0.2]}}),
            facts({"lr": {"a": [0.1, 0.3]}}),
            "lr of optim 'a': checkpoint [0.1, 0.2], config [0.1, 0.3]: the checkpoint wins; to use the config's: "
            "--keep lr=config",
        ),
        (
            facts(),
            facts({"options": {"": [{"momentum": 0.8, "weight_decay": 0.0, "new": 1}]}}),
            "optimizer: checkpoint momentum=0.9, config momentum=0.8: the checkpoint wins; to use the config's: --keep "
            "optimizer=config",
        ),
        (
            facts(),
            facts({"schedules": {"": [{**COSINE, "values": {"T_max": 12, "eta_min": 0.1}}]}}),
            "schedule (CosineAnnealingLR): checkpoint T_max=10, eta_min=0.0, config T_max=12, eta_min=0.1: the "
            "checkpoint wins; to use the config's: --keep schedule=config",
        ),
        (
            facts(),
            facts({"max_epochs": 12}),
            "max_epochs: checkpoint 10, config 12: the config wins; to use the checkpoint's: --keep "
            "max_epochs=checkpoint",
        ),
        (
            facts({"max_epochs": None, "max_iters": 5}),
            facts({"max_epochs": None, "max_iters": 6}),
            "max_iters: checkpoint 5, config 6: the config wins; to use the checkpoint's: --keep max_iters=checkpoint",
        ),
        (
            facts(),
            facts({"max_epochs": None, "max_iters": 6}),
            "length: checkpoint 10 epochs, config 6 iterations: the config wins (set the unit in the config)",
        ),
        (
            facts(batch_size=8, batches=8),
            facts(batch_size=16, batches=4),
            "batch_size: checkpoint 8, config 16: the config wins (no choice: the loader is built with it; to use the "
            "checkpoint's, change the config)",
        ),
        (
            facts(),
            facts(accumulate=[2]),
            "accumulate: checkpoint 1, config 2: the config wins; to use the checkpoint's: --keep "
            "accumulate=checkpoint",
        ),
        (
            facts(batches=8),
            facts({"samples": 80}, batches=10),
            "samples: checkpoint 64, config 80: the config wins (no choice: the data decides)",
        ),
        (
            facts(batches=8),
            facts(batches=4),
            "batches per epoch: checkpoint 8, config 4: the config wins (no choice: the loader decides)",
        ),
        (
            facts(),
            facts(seed=3),
            "seed: checkpoint 0, config 3: the config wins (no choice: the data is built with it; to use the "
            "checkpoint's, change the config. From now on, the order of the data is different)",
        ),
        (
            facts(),
            facts(precision="bf16"),
            "precision: checkpoint fp32, config bf16: the config wins (no choice: the run is built with it; to use the "
            "checkpoint's, change the config)",
        ),
        (
            facts(),
            facts({"clip": {"": "1.0"}}),
            "clip: checkpoint none, config 1.0: the config wins (no choice: it has no state; to use the checkpoint's, "
            "change the config)",
        ),
        (
            facts(),
            facts({"hooks": {"LoggerHook": {"interval": 5}}}),
            "hook LoggerHook: checkpoint interval=10, config interval=5: the config wins (its state continues from the "
            "checkpoint)",
        ),
        (facts(), facts(hooks=[]), "hook LoggerHook: only in the checkpoint, so it is dropped, with its state"),
        (
            facts(),
            facts(hooks=["LoggerHook", "EMAHook"]),
            "hook EMAHook: not in the checkpoint, so it starts fresh",
        ),
        (facts({"parts": ["a"]}), facts(), "part a: only in the checkpoint, so it is dropped"),
        (facts(), facts({"parts": ["a"]}), "part a: not in the checkpoint, so it starts fresh"),
        (
            facts(),
            facts(world_size=2),
            "processes: checkpoint 1, this run 2: every step has the same 8 samples; sums may differ in their last "
            "bits, and random numbers that the model draws are others",
        ),
        (
            facts(),
            facts(hookline="2"),
            "hookline: checkpoint 1, this run 2: a resume is exact only with the same version",
        ),
        (facts(), facts(torch="3"), "torch: checkpoint 2, this run 3: results may differ in their last bits"),
        (facts(), facts(python="4"), "python: checkpoint 3, this run 4: results may differ in their last bits"),
        (facts(), facts(threads=4), "threads: checkpoint 2, this run 4: results may differ in their last bits"),
        (facts(), facts(device="cuda"), "device: checkpoint cpu, this run cuda: results may differ in their last bits"),
    ],
)
def test_each_difference_is_one_line_with_the_winner_and_the_other_choice(
    then: dict[str, Any], now: dict[str, Any], line: str
) -> None:
    assert lines(then, now) == [line]


def test_a_batch_size_that_changes_inside_an_epoch_says_what_that_means() -> None:
    assert lines(facts(), facts(batch_size=16), mid_epoch=True) == [
        "batch_size: checkpoint 8, config 16: the config wins (no choice: the loader is built with it; to use the "
        "checkpoint's, change the config. The checkpoint is inside an epoch, so this epoch leaves out or repeats "
        "samples)"
    ]


@pytest.mark.parametrize(
    ("keep", "winners"),
    [
        (None, {"lr": "checkpoint", "max_epochs": "config", "seed": "config"}),
        ("config", {"lr": "config", "max_epochs": "config", "seed": "config"}),
        ("checkpoint", {"lr": "checkpoint", "max_epochs": "checkpoint", "seed": "config"}),
        ("lr=config", {"lr": "config", "max_epochs": "config", "seed": "config"}),
    ],
)
def test_a_choice_changes_the_winner_where_there_is_one(keep: str | None, winners: dict[str, str]) -> None:
    found = compare(facts(), facts({"lr": {"": [1.0]}, "max_epochs": 12}, seed=1), parse_keep(keep))
    assert {each.key: each.winner for each in found} == winners


def test_an_auto_length_that_changes_with_the_run_is_undecided() -> None:
    (schedule, length) = compare(auto(10), auto(20), parse_keep(None))
    assert (schedule.winner, schedule.choices, length.winner) == (
        "undecided",
        ["schedule=checkpoint", "schedule=config"],
        "config",
    )
    assert schedule.line(lambda choice: f"--keep {choice}") == (
        "schedule (CosineAnnealingLR): checkpoint T_max=10, config T_max=20: undecided; --keep schedule=checkpoint "
        "continues the old curve, --keep schedule=config stretches the rest of it"
    )
    for side in ("checkpoint", "config"):
        assert compare(auto(10), auto(20), parse_keep(f"schedule={side}"))[0].winner == side


def test_an_auto_length_is_decided_if_the_run_ends_anyway_or_keeps_its_length_or_was_decided_before() -> None:
    assert compare(auto(10), auto(5), parse_keep(None), ends=True)[0].winner == "checkpoint"
    kept = compare(auto(10), auto(20), parse_keep("max_epochs=checkpoint"))
    assert [each.key for each in kept] == ["max_epochs"]
    decided = auto(10, decided_for={"T_max": 20})
    assert compare(decided, auto(20), parse_keep(None))[0].winner == "checkpoint"
    assert compare(decided, auto(30), parse_keep(None))[0].winner == "undecided"


def test_a_fixed_length_does_not_ask() -> None:
    fixed = facts({"max_epochs": 20, "schedules": {"": [{**COSINE, "values": {"T_max": 20, "eta_min": 0.0}}]}})
    assert [each.winner for each in compare(auto(10), fixed, parse_keep(None))] == ["checkpoint", "config"]


def test_facts_missing_in_an_older_checkpoint_are_not_compared() -> None:
    now = facts()
    older = {key: now[key] for key in ("torch", "threads", "seed", "hooks", "world_size")}
    assert lines(older, {**now, "precision": "bf16"}) == []


def test_a_difference_is_data_too() -> None:
    (found,) = compare(facts(), facts({"lr": {"": [0.05]}}), parse_keep(None))
    assert found.as_data() == {
        "key": "lr",
        "what": "lr",
        "checkpoint": 0.1,
        "config": 0.05,
        "winner": "checkpoint",
        "keep": ["lr=config"],
        "why": "",
    }


def test_a_value_is_shown_in_one_short_line_without_control_codes() -> None:
    assert show({"a": [1, None], "b": "x\x1b"}) == "a=[1, none], b=x\\x1b"
    assert len(show("x" * 1000)) == 200


def test_names_of_another_type_in_a_changed_checkpoint_are_shown_as_text() -> None:
    then = facts({"parts": [[1], "mine"]}, hooks=[[2], "A"], states={})
    found = compare(then, facts({"parts": ["mine"]}, hooks=["A"], states={}), parse_keep(None))
    assert [(each.what, each.winner) for each in found] == [("hook [2]", "dropped"), ("part [1]", "dropped")]
