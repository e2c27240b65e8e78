"""Hooks of one class that have changed places: each state follows the parameters of its hook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hookline import Hook, Runner
from hookline.resume.facts import _match
from hookline.testing import toy_runner


class Tally(Hook):
    """Counts in steps of its parameter."""

    def __init__(self, step: int) -> None:
        self.step, self.total = step, 0

    def after_train_iter(self, runner: Runner) -> None:
        self.total += self.step

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


def run(folder: Path, *steps: int, **parts: Any) -> tuple[Runner, dict[int, int]]:
    hooks = [Tally(step) for step in steps]
    runner = toy_runner(custom_hooks=hooks, work_dir=folder, **parts)
    runner.train()
    return runner, {hook.step: hook.total for hook in hooks}


@pytest.mark.parametrize(
    ("then", "now", "totals"),
    [
        ((1, 100), (1, 100), {1: 8, 100: 800}),
        ((1, 100), (100, 1), {1: 8, 100: 800}),
        ((1, 100), (100,), {100: 800}),
        ((1,), (100, 1), {1: 8, 100: 400}),
        ((1, 100, 1000), (1000, 1, 100), {1: 8, 100: 800, 1000: 8000}),
        ((1, 100), (1, 7), {1: 8, 7: 428}),
        ((1, 100), (7, 1), {1: 8, 7: 428}),
        ((1, 100), (7, 8), {7: 32, 8: 432}),
    ],
)
def test_each_state_follows_the_parameters_of_its_hook(
    tmp_path: Path, then: tuple[int, ...], now: tuple[int, ...], totals: dict[int, int]
) -> None:
    run(tmp_path, *then, max_epochs=1)
    _, found = run(tmp_path, *now, max_epochs=2, resume=True)
    assert found == totals


def test_a_changed_order_is_reported(tmp_path: Path) -> None:
    run(tmp_path, 1, 100, max_epochs=1)
    run(tmp_path, 100, 1, max_epochs=2, resume=True)
    why = "(the order of the hooks has changed, and each state follows the parameters of its hook)"
    lines = (tmp_path / "run.log").read_text().splitlines()
    assert [line.split("  ")[-1].strip() for line in lines if "Tally" in line] == [
        f"hook Tally#2: checkpoint name=Tally, config name=Tally#2: the config wins {why}",
        f"hook Tally: checkpoint name=Tally#2, config name=Tally: the config wins {why}",
    ]


def test_a_stop_belongs_to_the_hook_that_asked_for_it(tmp_path: Path) -> None:
    class Stops(Tally):
        def after_train_iter(self, runner: Runner) -> None:
            if self.step == 100 and runner.iter == 1:
                runner.stop("enough")

    def train(*steps: int, **parts: Any) -> Runner:
        runner = toy_runner(custom_hooks=[Stops(step) for step in steps], work_dir=tmp_path, max_epochs=1, **parts)
        runner.train()
        return runner

    train(1, 100)
    resumed = train(100, 1, resume=True)
    assert (resumed.iter, resumed.stopped.by) == (2, "Stops")


def test_hooks_with_equal_parameters_and_single_hooks_keep_their_names() -> None:
    same: dict[str, Any] = {"A": {"n": 1}, "A#2": {"n": 1}, "B": {"n": 1}}
    assert _match(same, same) == {"A": "A", "A#2": "A#2"}
    assert _match({"B": {"n": 1}}, {"B": {"n": 2}}) == {}
    assert _match({"A": {"n": 1}, "A#2": {"n": 2}}, {"A": {"n": 2}}) == {"A": "A#2", "A#2": "A"}
    assert _match({"A": {"n": 1}, "A#2": {"n": 2}}, {"A": {"n": 1}}) == {"A": "A", "A#2": "A#2"}
    assert _match({"A": {}, "A#2": {}}, {}) == {"A": "A", "A#2": "A#2"}
