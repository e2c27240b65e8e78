"""The folder of a run has what a native run has: records, journal, ledger, report, and the control file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch.utils.data import DataLoader

from hookline.dialects.robo_orchard_lab.pipeline import ResumeCheckpointConfig
from hookline.dialects.robo_orchard_lab.pipeline.hook_based_trainer import ValidationHookConfig
from hookline.dialects.robo_orchard_lab.pipeline.hooks import SaveCheckpointConfig
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import HookContext, PipelineHookArgs, PipelineHooks
from hookline.lifecycle import control_file
from hookline.report.gather import gather
from hookline.rundir import control
from hookline.writers.router import Writers
from tests.dialects.robo_orchard_lab import parts
from tests.dialects.robo_orchard_lab.parts import folders


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run look at its control file all the time."""
    monkeypatch.setattr(control_file, "INTERVAL", 0.001)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def events(folder: Path, *kinds: str) -> list[tuple[Any, ...]]:
    """Return the events of these kinds, each with its step and its details."""
    shown = ("file", "name", "state", "reason", "code")
    return [
        (each["kind"], each["step"], *(each[key] for key in shown if each.get(key) not in (None, "")))
        for each in lines(folder / "events.jsonl")
        if each["kind"] in kinds
    ]


class Asks(PipelineHooks):
    """Asks for an action at a step, as `hookline watch` does, and waits until the run has noticed."""

    def __init__(self, folder: Path, action: str, at: int) -> None:
        super().__init__()
        self.folder, self.action, self.at, self.trainer = folder, action, at, None
        self.register_hook("on_step", HookContext.from_callable(before=self._ask))

    def _ask(self, args: PipelineHookArgs) -> None:
        if args.global_step_id == self.at:
            control.ask(self.folder, self.action, "a test")
            assert args._trainer is not None
            while not args._trainer.requests.orders:
                pass


def test_a_run_leaves_what_a_native_run_leaves(tmp_path: Path) -> None:
    validation = ValidationHookConfig(eval_callback=lambda: {"accuracy": 0.5, "label": "x"}, epoch_eval_freq=1)
    hooks = [SaveCheckpointConfig(save_epoch_freq=1, save_when_loop_end=False)]
    parts.trainer(tmp_path, hooks=hooks, validation=validation)()
    assert {path.name for path in tmp_path.iterdir()} == {*parts.RUN_FILES, "checkpoints"}
    assert events(tmp_path, "start", "save", "validation", "end") == [
        ("start", 0),
        ("validation", 5),
        ("save", 5, "checkpoints/checkpoint_0"),
        ("validation", 10),
        ("save", 10, "checkpoints/checkpoint_1"),
        ("end", 10, 0),
    ]
    found = lines(tmp_path / "metrics.jsonl")
    assert [(each["step"], each["epoch"], *sorted(set(each) - {"step", "epoch"})) for each in found] == [
        (5, 1, "train/data_time", "train/loss", "train/lr", "train/time"),
        (5, 1, "val/accuracy"),
        (10, 2, "train/data_time", "train/loss", "train/lr", "train/time"),
        (10, 2, "val/accuracy"),
    ]
    assert "<html" in (tmp_path / "report.html").read_text()
    (run,) = gather(tmp_path)["runs"]
    assert (run["status"], run["steps"], run["epochs"], run["loss"]) == ("finished", 10, 2, "train/loss")
    assert {metric["name"] for metric in run["metrics"]} >= {"train/loss", "train/lr", "val/accuracy"}


def test_the_ledger_measures_hooks_and_the_parts_of_a_step(tmp_path: Path) -> None:
    class Slow(PipelineHooks):
        def __init__(self) -> None:
            super().__init__()
            self.register_hook("on_step", HookContext.from_callable(after=self.work))
            self.register_hook("on_optimizer_step", HookContext.from_callable(before=self.step))

        def work(self, args: PipelineHookArgs) -> None:
            torch.randn(300, 300) @ torch.randn(300, 300)

        def step(self, args: PipelineHookArgs) -> None: ...

    parts.trainer(tmp_path, hooks=Slow(), max_step=70)()
    ledger = json.loads((tmp_path / "hooks.json").read_text())
    assert (ledger["steps"], ledger["sampled_steps"]) == (70, 3)
    measured = {name for name, cost in ledger["parts"].items() if cost["seconds"] > 0}
    assert measured >= {"data", "forward", "backward", "optimizer", "hooks"}
    assert {name: cost["calls"] for name, cost in ledger["parts"].items() if name in ("data", "forward")} == {
        "data": 70,
        "forward": 70,
    }
    costs = {hook["name"]: hook for hook in ledger["hooks"]}
    assert list(costs) == ["OptimizerHook._optimizer_step", "Slow.work", "Slow.step"]
    assert costs["Slow.work"]["points"]["around_train_iter"]["calls"] == 70
    assert costs["Slow.step"]["points"]["around_optimizer_step"]["calls"] == 70
    assert (tmp_path / "plan.txt").read_text().splitlines()[:4] == [
        "on_step(runner, args)   entered in this order, left in the same order",
        "   1  OptimizerHook._optimizer_step  NORMAL (50)  every iteration  priority from the class",
        "   2  Slow.work                      NORMAL (50)  every iteration  priority from the class",
        "",
    ]


def test_save_now_writes_a_checkpoint_even_without_a_hook_that_saves(tmp_path: Path) -> None:
    trainer = parts.trainer(tmp_path, hooks=Asks(tmp_path, "save", at=2))
    trainer()
    assert folders(tmp_path / "checkpoints") == ["checkpoint_0"]
    assert events(tmp_path, "action", "end") == [("action", 3, "checkpoint_0", "save", "done"), ("end", 10, 0)]
    again = parts.trainer(max_epoch=2, resume_from=ResumeCheckpointConfig(resume_from=str(tmp_path)))
    assert again.position.iter == 3
    again()
    assert parts.equal(parts.weights(again), parts.weights(trainer))


def test_validate_now_calls_the_validation_and_is_refused_without_one(tmp_path: Path) -> None:
    seen: list[int] = []
    validation = ValidationHookConfig(eval_callback=lambda: seen.append(1), epoch_eval_freq=100)
    parts.trainer(tmp_path / "with", hooks=Asks(tmp_path / "with", "validate", at=2), validation=validation)()
    assert seen == [1]
    assert events(tmp_path / "with", "action", "validation") == [("validation", 3), ("action", 3, "validate", "done")]
    parts.trainer(tmp_path / "without", hooks=Asks(tmp_path / "without", "validate", at=2))()
    assert events(tmp_path / "without", "action") == [("action", 3, "validate", "refused", "the run has no validation")]


@pytest.mark.parametrize(("action", "steps"), [("stop_after_step", 3), ("stop_after_epoch", 5)])
def test_a_stop_from_outside_ends_the_loop_and_a_resumed_run_continues_exactly(
    tmp_path: Path, action: str, steps: int
) -> None:
    straight = parts.trainer()
    straight()
    recorder = parts.Recorder("on_loop", "on_epoch")
    stopped = parts.trainer(tmp_path, hooks=[Asks(tmp_path, action, at=2), recorder, SaveCheckpointConfig()])
    stopped()
    assert stopped.position.iter == steps
    assert recorder.seen[-1] == f"<loop e1 s0 g{steps}"
    assert events(tmp_path, "action", "end") == [("action", steps, action, "done"), ("end", steps, 0)]
    assert "asked to stop after this" in (tmp_path / "run.log").read_text()
    resumed = parts.trainer(tmp_path, resume_from=ResumeCheckpointConfig(resume_from=str(tmp_path)))
    assert resumed.position.iter == steps
    resumed()
    assert parts.equal(parts.weights(resumed), parts.weights(straight))
    stopped()  # the same trainer also continues
    assert stopped.position.iter == 10


def test_a_resumed_run_continues_its_records_and_its_journal(tmp_path: Path) -> None:
    long = DataLoader(parts.dataset(), batch_size=1, shuffle=True)
    hooks = SaveCheckpointConfig(save_step_freq=12, save_epoch_freq=None, save_when_loop_end=False)
    parts.trainer(tmp_path, dataloader=long, hooks=hooks, max_step=33)()
    assert [each["step"] for each in lines(tmp_path / "metrics.jsonl")] == [10, 18, 20, 30, 33]
    resume = ResumeCheckpointConfig(resume_from=str(tmp_path / "checkpoints" / "checkpoint_1"))
    parts.trainer(tmp_path, dataloader=long, hooks=hooks, max_step=41, resume_from=resume)()
    assert [each["step"] for each in lines(tmp_path / "metrics.jsonl")] == [10, 18, 20, 30, 36, 40, 41]
    assert events(tmp_path, "start", "end") == [("start", 0), ("end", 33, 0), ("start", 24), ("end", 41, 0)]


def test_the_page_can_be_left_out(tmp_path: Path) -> None:
    trainer = parts.trainer(tmp_path, max_step=1)
    trainer.writes_report = False
    trainer()
    assert {path.name for path in tmp_path.iterdir()} == parts.RUN_FILES - {"report.html"}


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trainer = parts.trainer()
    trainer()
    assert trainer.position.iter == 10
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_no_records_are_kept_in_memory() -> None:
    validation = ValidationHookConfig(eval_callback=lambda: {"accuracy": 1.0}, step_eval_freq=5)
    trainer = parts.trainer(max_step=25, validation=validation)
    with mock.patch.object(Writers, "write_scalars") as written:
        trainer()
    assert trainer.position.iter == 25
    assert not written.called


def test_a_hook_that_saves_may_join_a_run_without_a_folder(tmp_path: Path) -> None:
    trainer, root = parts.trainer(max_epoch=1), tmp_path / "late"
    saves = SaveCheckpointConfig(save_root=str(root))

    def join(args: PipelineHookArgs) -> None:
        trainer.hooks.register_pipeline_hooks(saves())

    trainer.hooks.register_hook("on_loop", HookContext.from_callable(before=join))
    trainer()
    assert "checkpoint_0" in folders(root)


def test_the_log_of_a_run_has_the_lines_of_its_hooks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "robo_orchard_lab")
    parts.trainer(tmp_path, hooks=SaveCheckpointConfig(save_when_loop_end=False), max_epoch=1)()
    text = (tmp_path / "run.log").read_text()
    assert text.count(f"saved after step 5, requested at the end of epoch 0: {tmp_path}") == 1
