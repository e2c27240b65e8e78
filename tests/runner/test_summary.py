"""`runner.summary()`: before, during and after training, after a resume, and how it is shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hookline import EvalLoop
from hookline.steps import predict
from hookline.testing import toy_data, toy_runner

if TYPE_CHECKING:
    from hookline import Runner

BEST = {"checkpoint": {"save_best": "accuracy"}}


def rows(runner: Runner) -> dict[str, str]:
    """Return the rows of the table, with the numbers of times replaced."""
    return {label: re.sub(r"\d+:\d\d:\d\d|[\d.]+(?= ms|s\b)", "#", text) for label, text in runner.summary().rows()}


def test_before_training_it_says_so(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path / "run")
    assert rows(runner) == {"trained": "not yet", "run": str(tmp_path / "run")}
    assert runner.summary().to_dict() == {
        "name": "run",
        "work_dir": str(tmp_path / "run"),
        "by_epoch": True,
        "epochs": 0,
        "iterations": 0,
        "session_epochs": 0,
        "session_iterations": 0,
        "seconds": 0.0,
        "training": False,
        "stopped": "",
        "train_loss": None,
        "train_loss_steps": 0,
        "val": {},
        "test": {},
        "step_seconds": None,
        "data_seconds": None,
        "seconds_of": {},
        "seconds_of_hooks": {},
        "best": [],
        "last_checkpoint": None,
        "report": None,
        "trace": None,
    }


def test_after_training_it_has_results_times_and_files(tmp_path: Path) -> None:
    runner = toy_runner(max_epochs=3, work_dir=tmp_path / "run", default_hooks=BEST)
    runner.train()
    runner.test()
    summary = runner.summary()
    losses = runner.hub.get_scalar("train/loss").last()
    accuracy = runner.hub.get_scalar("val/accuracy").last()
    best = max(range(3), key=accuracy.__getitem__)
    assert (summary.epochs, summary.iterations, summary.session_epochs, summary.session_iterations) == (3, 12, 3, 12)
    assert summary.train_loss == pytest.approx(sum(losses) / 12)
    assert summary.val == {"accuracy": accuracy[-1]}
    assert summary.test == {"accuracy": runner.hub.get_scalar("test/accuracy").current()}
    assert [(each.monitor.name, each.value, each.path) for each in summary.best] == [
        ("accuracy", accuracy[best], tmp_path / "run" / f"best_accuracy_epoch_{best + 1}.pth")
    ]
    assert 0 < summary.seconds < 60
    assert sum(summary.seconds_of.values()) <= summary.seconds
    assert {"LoggerHook", "CheckpointHook"} <= set(summary.seconds_of_hooks)
    shown = rows(runner)
    shown.pop("time"), shown.pop("hooks")
    assert shown == {
        "trained": "3 epochs, 12 iterations in #",
        "train loss": f"{summary.train_loss:.4f}, the mean of the last 12 steps",
        "val accuracy": f"{accuracy[-1]:.4f}",
        "test accuracy": f"{summary.test['accuracy']:.4f}",
        "per step": "# ms, # ms of it waiting for data",
        "best checkpoint": f"{tmp_path}/run/best_accuracy_epoch_{best + 1}.pth, accuracy {accuracy[best]:.4f}",
        "last checkpoint": str(tmp_path / "run" / "epoch_3.pth"),
        "run": str(tmp_path / "run"),
        "report": str(tmp_path / "run" / "report.html"),
    }
    assert json.loads(json.dumps(summary.to_dict()))["best"][0] == {
        "metric": "accuracy",
        "rule": "greater",
        "value": accuracy[best],
        "path": f"{tmp_path}/run/best_accuracy_epoch_{best + 1}.pth",
    }


def test_the_files_to_look_at_are_named(tmp_path: Path) -> None:
    runner = toy_runner(max_epochs=1, work_dir=tmp_path / "run")
    runner.trace(tmp_path / "trace.json")
    runner.on("after_train")(lambda runner: files.append((runner.summary().report, runner.summary().trace)))
    files: list[tuple[Path | None, Path | None]] = []
    runner.train()
    assert files == [(None, None)], "they are not complete yet"
    assert rows(runner)["report"] == str(tmp_path / "run" / "report.html")
    assert rows(runner)["trace"] == f"{tmp_path}/trace.json, for ui.perfetto.dev"
    assert runner.summary().to_dict()["trace"] == str(tmp_path / "trace.json")
    runner.train_loop.max_epochs = 2
    (tmp_path / "run" / "report.html").unlink()
    runner.train()
    assert "trace" not in rows(runner), "that training was not traced"
    other = toy_runner(max_epochs=1, work_dir=tmp_path / "other", default_hooks={"report": None})
    other.train()
    assert "report" not in rows(other)


class Better:
    """A metric that is better at every validation, so that every epoch ends with the save of a best checkpoint."""

    def __init__(self) -> None:
        self.value = 0.0

    def __call__(self, preds: Any, target: Any) -> float:
        self.value += 1.0
        return self.value


@pytest.mark.parametrize(
    ("checkpoint", "last"),
    [({}, "epoch_2.pth"), ({"out_dir": "{}/out"}, "out/run/epoch_2.pth"), ({"interval": -1, "save_last": False}, None)],
    ids=["usual", "another folder", "only the best"],
)
def test_the_best_checkpoint_is_not_called_the_last_one(
    tmp_path: Path, checkpoint: dict[str, Any], last: str | None
) -> None:
    given = {key: value.format(tmp_path) if key == "out_dir" else value for key, value in checkpoint.items()}
    hooks = {"checkpoint": {**given, "save_best": "better", "rule": "greater", "published_keys": ["state_dict"]}}

    def build(**parts: Any) -> Runner:
        val = EvalLoop(toy_data(), predict, metrics={"better": Better()})
        return toy_runner(max_epochs=2, work_dir=tmp_path / "run", val=val, default_hooks=hooks, **parts)

    folder = tmp_path / ("out/run" if "out_dir" in checkpoint else "run")
    expected = None if last is None else str(folder / "epoch_2.pth")
    runner = build()
    runner.train()
    assert runner.saving.last_path == folder / "best_better_epoch_2.pth"
    assert rows(runner)["best checkpoint"].startswith(f"{folder}/best_better_epoch_2.pth, ")
    assert rows(runner).get("last checkpoint") == expected
    again = build(resume=True)
    again.train()
    assert rows(again)["trained"] == "nothing in this session (2 epochs, 8 iterations in all)"
    assert rows(again).get("last checkpoint") == expected


def test_a_resumed_run_does_not_mix_sessions(tmp_path: Path) -> None:
    toy_runner(max_epochs=2, work_dir=tmp_path).train()
    runner = toy_runner(max_epochs=5, work_dir=tmp_path, resume=True)
    runner.train()
    summary = runner.summary()
    assert (summary.epochs, summary.iterations, summary.session_epochs, summary.session_iterations) == (5, 20, 3, 12)
    assert rows(runner)["trained"] == "3 epochs, 12 iterations in # in this session (5 epochs, 20 iterations in all)"
    times = runner.hub.get_scalar("train/time").last()
    assert len(times) == 20  # the hub has the times of both sessions
    assert summary.step_seconds == pytest.approx(sum(times[-12:]) / 12)
    again = toy_runner(max_epochs=5, work_dir=tmp_path, resume=True)
    again.train()
    assert rows(again)["trained"] == "nothing in this session (5 epochs, 20 iterations in all)"
    assert again.summary().step_seconds is None


def test_by_iterations_it_does_not_count_epochs(tmp_path: Path) -> None:
    runner = toy_runner(max_iters=3, work_dir=tmp_path)
    runner.train()
    assert rows(runner)["trained"] == "3 iterations in #"
    longer = toy_runner(max_iters=4, work_dir=tmp_path, resume=True)
    longer.train()
    assert rows(longer)["trained"] == "1 iteration in # in this session (4 iterations in all)"
    assert rows(longer)["train loss"].endswith(", the mean of the last 4 steps")


def test_a_second_call_of_train_is_another_session(tmp_path: Path) -> None:
    runner = toy_runner(max_epochs=1, work_dir=tmp_path)
    runner.train()
    runner.train_loop.max_epochs = 2
    runner.train()
    assert rows(runner)["trained"] == "1 epoch, 4 iterations in # in this session (2 epochs, 8 iterations in all)"


def test_it_works_during_training_and_after_a_stop(tmp_path: Path) -> None:
    runner = toy_runner(max_epochs=2, work_dir=tmp_path)
    seen: list[dict[str, Any]] = []

    @runner.on("after_train_iter")
    def look(runner: Runner) -> None:
        if runner.iter == 5:
            seen.append(rows(runner))
            runner.stop("enough")

    runner.train()
    assert seen[0].pop("per step") == "# ms, # ms of it waiting for data"
    assert seen == [
        {
            "trained": "1 epoch, 5 iterations in # so far",
            "train loss": seen[0]["train loss"],
            "val accuracy": f"{runner.hub.get_scalar('val/accuracy').current():.4f}",
            "last checkpoint": str(tmp_path / "epoch_1.pth"),
            "run": str(tmp_path),
        }
    ]
    assert seen[0]["train loss"].endswith(", the mean of the last 6 steps")
    assert rows(runner)["stopped"] == "by look: enough"


def test_printing_it_shows_the_table_and_a_notebook_gets_html(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path / "a<b", val=None)
    text = str(runner.summary())
    assert repr(runner.summary()) == text
    assert text.splitlines()[0].strip() == "a<b"
    assert [line.split("│")[1].strip() for line in text.splitlines() if "│" in line] == ["trained", "run"]
    assert runner.summary()._repr_html_() == (
        "<table><caption>a&lt;b</caption>"
        "<tr><th style='text-align: left'>trained</th><td style='text-align: left'>not yet</td></tr>"
        f"<tr><th style='text-align: left'>run</th><td style='text-align: left'>{tmp_path}/a&lt;b</td></tr></table>"
    )
