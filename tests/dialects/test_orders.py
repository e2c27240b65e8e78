"""Runs of iMIX and Pointrix take orders from outside, and leave the same files as native runs.

Those of RoboOrchard are in `robo_orchard_lab/test_run_folder.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hookline.dialects.imix.engine.hooks import EvaluateHook, HookBase
from hookline.dialects.pointrix.hook import Hook
from hookline.lifecycle import control_file
from hookline.report.gather import gather
from hookline.rundir import control
from tests.dialects.imix.engines import engine_in, same_weights
from tests.dialects.pointrix.scene import SceneTrainer, config


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run look at its control file all the time."""
    monkeypatch.setattr(control_file, "INTERVAL", 0.001)


def ask(folder: Path, action: str, requests: Any) -> None:
    """Ask for an action, as `hookline watch` does, and wait until the run has noticed."""
    control.ask(folder, action, "a test")
    while not requests.orders:
        pass


def events(folder: Path, *kinds: str) -> list[tuple[Any, ...]]:
    """Return the events of these kinds, each with its step and its details."""
    found = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    shown = ("name", "state", "reason", "file", "code")
    return [
        (each["kind"], each["step"], *(each[key] for key in shown if each.get(key) not in (None, "")))
        for each in found
        if each["kind"] in kinds
    ]


def in_imix(folder: Path, action: str = "", with_validation: bool = True) -> Any:
    class Asks(HookBase):
        def before_train_iter(self) -> None:
            if action and self.trainer.iter == 2:
                ask(folder, action, self.trainer.runner._host.requests)

    engine = engine_in(folder, batches=4)
    engine.register_hooks([Asks()])
    if with_validation:
        engine.register_hooks([EvaluateHook(lambda: {"accuracy": 0.5}, eval_iter_period=100)])
    engine.train()
    assert engine.runner is not None
    return engine.model, engine.runner.position.iter


def in_pointrix(folder: Path, action: str = "", with_validation: bool = True) -> Any:
    class Asks(Hook):
        def before_train_iter(self, trainner: Any) -> None:
            if action and trainner.global_step == 3:
                ask(folder, action, trainner.requests)

    records = {"writer": {"writer_type": "JsonlWriter"}, "hooks": {"log": {"name": "LogHook"}}}
    trainer = SceneTrainer(config(max_steps=8, val_interval=0, **records), folder)
    trainer.hooks.append(Asks())
    if not with_validation:
        trainer.datapipeline.validation_dataset = None
    trainer.train_loop()
    return trainer.model, trainer.position.iter


DIALECTS: dict[str, Callable[..., Any]] = {"imix": in_imix, "pointrix": in_pointrix}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_run_leaves_what_a_native_run_leaves(dialect: str, tmp_path: Path) -> None:
    DIALECTS[dialect](tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {"events.jsonl", "hooks.json", "plan.txt", "report.html", "run.log"}
    (run,) = gather(tmp_path)["runs"]
    assert (run["status"], run["steps"]) == ("finished", 8)
    parts = json.loads((tmp_path / "hooks.json").read_text())["parts"]
    assert {name for name in ("data", "forward", "backward", "optimizer") if parts[name]["calls"] != 8} == set()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_save_now_is_carried_out(dialect: str, tmp_path: Path) -> None:
    DIALECTS[dialect](tmp_path, "save")
    (done,) = events(tmp_path, "action")
    assert done[:4] == ("action", 3, "save", "done")
    assert (tmp_path / done[4]).is_file()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_validate_now_is_carried_out_or_refused(dialect: str, tmp_path: Path) -> None:
    DIALECTS[dialect](tmp_path / "with", "validate")
    assert events(tmp_path / "with", "validation", "action") == [("validation", 3), ("action", 3, "validate", "done")]
    DIALECTS[dialect](tmp_path / "without", "validate", with_validation=False)
    refused = ("action", 3, "validate", "refused", "the run has no validation")
    assert events(tmp_path / "without", "validation", "action") == [refused]


#: A run of Pointrix has no epochs, so it stops after the step.
STOPS = [("imix", "step", 3), ("imix", "epoch", 4), ("pointrix", "step", 3), ("pointrix", "epoch", 3)]


@pytest.mark.parametrize(("dialect", "unit", "steps"), STOPS)
def test_a_stop_ends_the_run_in_order(dialect: str, unit: str, steps: int, tmp_path: Path) -> None:
    action = f"stop_after_{unit}"
    _, done = DIALECTS[dialect](tmp_path, action)
    assert done == steps
    assert events(tmp_path, "action", "end") == [("action", steps, action, "done"), ("end", steps, 0)]


def test_a_run_of_pointrix_that_was_stopped_continues_exactly(tmp_path: Path) -> None:
    straight, _ = in_pointrix(tmp_path / "straight")

    class Asks(Hook):
        def before_train_iter(self, trainner: Any) -> None:
            if trainner.global_step == 3:
                ask(tmp_path / "stopped", "stop_after_step", trainner.requests)

    saves = {"save": {"name": "CheckPointHook"}}
    stopped = SceneTrainer(config(max_steps=8, val_interval=0, hooks=saves), tmp_path / "stopped")
    stopped.hooks.append(Asks())
    stopped.train_loop()
    resumed = SceneTrainer(config(max_steps=8, val_interval=0, hooks=saves, resume=True), tmp_path / "stopped")
    resumed.train_loop()
    assert resumed.position.iter == 8
    assert same_weights(resumed.model, straight)
