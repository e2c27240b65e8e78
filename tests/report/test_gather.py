"""What a page knows about a run, and about several."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hookline.errors import NumericsError
from hookline.report.gather import gather, gather_run
from hookline.report.live.changes import Feed
from hookline.report.live.hub import state_data
from hookline.report.names import place_of
from hookline.report.page import make_page
from hookline.testing import toy_runner

if TYPE_CHECKING:
    from hookline import Runner


def marks_of(data: dict[str, Any]) -> list[tuple[str, int, str]]:
    return [(mark["kind"], mark["step"], mark["text"]) for mark in data["marks"]]


def test_a_run_that_finished(tmp_path: Path) -> None:
    hooks = {"checkpoint": {"save_best": "accuracy", "max_keep_ckpts": 1}, "logger": {"interval": 1}}
    toy_runner(work_dir=tmp_path, default_hooks=hooks, config={"experiment_name": "toy", "a": {"b": [1]}}).train()
    data = gather(tmp_path)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    (run,) = data["runs"]
    assert (data["title"], data["comparison"], run["status"], run["steps"], run["epochs"]) == (
        "toy",
        None,
        "finished",
        8,
        2,
    )
    assert run["config"] == [["experiment_name", "toy"], ["a.b[0]", "1"]]
    assert run["loss"] == "train/loss"
    losses = next(each for each in run["metrics"] if each["name"] == "train/loss")
    recorded = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    exact = [(each["step"], pytest.approx(each["train/loss"], rel=1e-5)) for each in recorded if "train/loss" in each]
    assert list(zip(losses["steps"], losses["values"], strict=True)) == exact
    assert losses["best"] == [losses["steps"][losses["values"].index(min(losses["values"]))], min(losses["values"])]
    assert ("save", 8, "saved epoch_2.pth") in marks_of(run)
    assert any(kind == "best" for kind, _, _ in marks_of(run))
    assert {each["name"] for each in run["checkpoints"]} >= {"epoch_2.pth"}
    assert dict(run["environment"])["processes"] == "1"
    assert run["hooks"]["steps"] == 8
    assert [fact["label"] for fact in run["summary"]][:3] == ["steps", "duration", "time per step"]
    hook = run["plan"]["children"][0]["hooks"][0]
    costs = {each["name"]: each["points"] for each in run["hooks"]["hooks"]}
    assert (hook["name"], costs["RuntimeInfoHook"]["before_run"]["calls"]) == ("RuntimeInfoHook", 1)


def test_a_run_that_failed_was_killed_and_was_resumed(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path, max_epochs=3)

    @runner.on("before_train_iter")
    def fail(runner: Runner) -> None:
        if runner.iter == 6:
            raise RuntimeError("<b>bad</b>")

    with pytest.raises(RuntimeError):
        runner.train()
    failed = gather_run(tmp_path)
    assert (failed["status"], failed["verdict"]["text"]) == ("failed", "The run failed at step 6.")
    assert "<b>bad</b>" in failed["verdict"]["evidence"][0]
    toy_runner(work_dir=tmp_path, max_epochs=3, resume=True).train()
    done = gather_run(tmp_path)
    assert done["status"] == "finished"
    assert ("resume", 4, "resumed from epoch_1.pth") in marks_of(done)
    journal = (tmp_path / "events.jsonl").read_text().splitlines()
    (tmp_path / "events.jsonl").write_text("\n".join(line for line in journal if '"kind": "end"' not in line) + "\n")
    killed = gather_run(tmp_path)
    assert killed["status"] == "killed"
    assert ("kill", 12, "killed") in marks_of(killed)
    assert killed["verdict"]["kind"] == "killed"


def test_a_run_that_a_signal_stopped(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path, max_epochs=3)
    runner.on("after_train_iter")(lambda runner: os.kill(os.getpid(), signal.SIGTERM) if runner.iter == 5 else None)
    with pytest.raises(SystemExit):
        runner.train()
    found = gather_run(tmp_path)
    assert found["status"] == "stopped"
    assert any(kind == "stop" and "SIGTERM" in text for kind, _, text in marks_of(found))


def test_a_run_of_an_earlier_version_has_its_log_and_its_checkpoints(tmp_path: Path) -> None:
    toy_runner(work_dir=tmp_path).train()
    toy_runner(work_dir=tmp_path, resume=True, max_epochs=3).train()
    for name in ("events.jsonl", "hooks.json"):
        (tmp_path / name).unlink()
    with open(tmp_path / "run.log", "a") as log:
        log.write("2026-01-02 03:04:05  warning: careful\n")
    found = gather_run(tmp_path)
    assert found["status"] == "unknown"
    assert marks_of(found)[-2:] == [("resume", 8, found["marks"][-2]["text"]), ("save", 12, "saved epoch_3.pth")]
    assert found["warnings"] == [{"kind": "warning", "step": None, "text": "careful"}]
    assert found["plan"]["children"][0] == {
        "point": "before_run",
        "hooks": [
            {
                **{"name": "RuntimeInfoHook", "priority": "10", "every": "each time", "why": "priority from the class"},
                "where": "",
            }
        ],
    }
    assert found["seconds"] is not None


def test_damaged_files_do_not_prevent_a_page(tmp_path: Path) -> None:
    toy_runner(work_dir=tmp_path, config={"a": 1}).train()
    (tmp_path / "config.yaml").write_text("a: [")
    costs = '{"version": 1, "hooks": [3], "seconds": NaN, "plan": {"points": [{"name": 3}]}, "memory": 7}'
    (tmp_path / "hooks.json").write_text(costs)
    (tmp_path / "events.jsonl").write_bytes(b"\xff\n[]\n{}\n")
    (tmp_path / "metrics.jsonl").write_bytes(b'\x00\n{"step": 1, "train/loss": 3}\n')
    found = gather(tmp_path)["runs"][0]
    assert (found["config"], found["plan"]) == ([], None)
    assert [each["text"].partition(":")[0] for each in found["warnings"] if each["kind"] == "report"] == [
        "metrics.jsonl",
        "config.yaml cannot be read",
    ]
    json.dumps(found, allow_nan=False)


def test_several_runs_are_compared(tmp_path: Path) -> None:
    for name, seed, more in (("a", 0, {}), ("b", 0, {"x": 2}), ("c", 1, {})):
        config = {"x": 1, "seed": seed, "work_dir": name, **more}
        hooks = {"logger": {"interval": 1}, **({"timer": None} if name == "c" else {})}
        toy_runner(work_dir=tmp_path / name, seed=seed, config=config, default_hooks=hooks).train()
    records = (tmp_path / "b" / "metrics.jsonl").read_text().splitlines()
    changed = [json.loads(line) for line in records]
    changed[2]["train/loss"] += 1e-9
    (tmp_path / "b" / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in changed))
    data = gather(*(tmp_path / name for name in "abc"))
    found = data["comparison"]
    assert found["config"] == [{"key": "x", "values": ["1", "2", "1"]}, {"key": "seed", "values": ["0", "0", "1"]}]
    assert "after_train_iter" in {row["key"] for row in found["plan"]}
    assert found["environment"] == []
    assert next((each["step"], each["compared"]) for each in found["losses"]) == (3, 8)
    columns = {column["name"]: column for column in found["table"]["columns"]}
    assert columns["run"]["cells"] == ["a", "b", "c"]
    assert columns["x"]["cells"] == ["1", "2", "1"]
    assert (columns["val/accuracy"]["rule"], columns["steps"]["cells"]) == ("greater", [8, 8, 8])
    same = gather(tmp_path / "a", tmp_path / "a")["comparison"]
    assert (same["config"], same["losses"][0]["step"], same["losses"][0]["compared"]) == ([], None, 8)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train/loss", ("loss", "train", "loss")),
        ("val/clean/accuracy", ("clean/accuracy", "val", "metric")),
        ("loss/validation", ("loss", "val", "loss")),
        ("eval_loss", ("loss", "val", "loss")),
        ("train/lr", ("lr", "train", "rate")),
        ("lr-Adam/pg1", ("lr-Adam/pg1", "", "rate")),
        ("train/data_time", ("data_time", "train", "time")),
        ("weights", ("weights", "", "metric")),
        ("trainable", ("trainable", "", "metric")),
    ],
)
def test_a_metric_has_a_chart_and_a_stage(name: str, expected: tuple[str, str, str]) -> None:
    assert place_of(name) == expected


HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hooks.json", '{"version": 1, "plan": {"points": [], "x": NaN}}'),
        ("hooks.json", '{"version": 1, "plan": {"points": 1e999}, "hooks": [{"name": [], "seconds": Infinity}]}'),
        (
            "hooks.json",
            f'{{"version": 1, "seconds": 1, "hooks": [{{"name": "a", "seconds": {HUGE}}}], "parts": {HUGE}}}',
        ),
        ("hooks.json", '{"version": 1, "seconds": 1, "hooks": [{"name": "a", "seconds": 9223372036854775808}]}'),
        ("hooks.json", '{"version": 1, "memory": [{"step": "x"}, [], {"resident": -1}], "hooks": [null, {}]}'),
        ("hooks.json", '{"version": 1, "seconds": 1e-300, "hooks": [{"name": "a", "seconds": 1e308}]}'),
        ("hooks.json", "[" * 100_000),
        ("metrics.jsonl", '{"step": -5, "train/loss": NaN}\n{"step": -4, "train/loss": 1}\n'),
        ("metrics.jsonl", f'{{"step": {HUGE}, "train/loss": 1}}\n{{"step": 1, "train/loss": {HUGE}}}\n'),
        ("events.jsonl", '{"time": 1, "step": 1, "epoch": 0, "kind": "save", "file": [], "best": {"a": 1}}\n'),
        (
            "events.jsonl",
            '{"time": 1, "step": 1, "epoch": 0, "kind": "start", "environment": [], "resumed_from": {}}\n',
        ),
        ("events.jsonl", '{"time": 1, "step": 1, "epoch": 0, "kind": "failure", "text": "\\u001b[2J\\ud800"}\n'),
        ("events.jsonl", '{"kind": "start", "time": null, "step": [], "epoch": {}}\n' + "{" * 100_000 + "\n"),
        ("config.yaml", "a: &a [*a]\n"),
        ("plan.txt", "before_run(runner)\n" + " 50 x\0\x1b[2J y\n" * 1000),
        ("last_checkpoint", '{"name": "../../../etc/passwd", "step": NaN}'),
    ],
)
def test_hostile_files_of_a_run_do_not_prevent_a_page(tmp_path: Path, name: str, text: str) -> None:
    toy_runner(max_epochs=1, work_dir=tmp_path / "a").train()
    toy_runner(max_epochs=1, work_dir=tmp_path / "b").train()
    (tmp_path / "a" / name).write_text(text)
    for folders in ([tmp_path / "a"], [tmp_path / "a", tmp_path / "b"]):
        page = make_page(gather(*folders))
        assert page.startswith("<!doctype html>")
    feed = Feed(tmp_path / "a")
    assert json.loads(json.dumps(state_data(feed), allow_nan=False))["name"] == feed.state.name


@pytest.mark.parametrize("name", ["hooks.json", "events.jsonl", "metrics.jsonl", "images.jsonl", "run.log", "plan.txt"])
def test_a_link_or_a_pipe_in_place_of_a_file_is_not_read(tmp_path: Path, name: str) -> None:
    """A pipe would block for ever, and a link may lead to any file."""
    toy_runner(max_epochs=1, work_dir=tmp_path / "a").train()
    path = tmp_path / "a" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert gather(tmp_path / "a")["runs"][0]["name"] == "a"
    Feed(tmp_path / "a")


def test_the_step_of_a_failure_is_the_same_everywhere(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path, max_epochs=3, default_hooks={"logger": {"interval": 3}})

    @runner.on("after_train_iter")
    def explode(runner: Runner) -> None:
        if runner.iter == 6:
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        runner.train()
    found = gather_run(tmp_path)
    assert max(step for each in found["metrics"] for step in each["steps"]) == 4
    assert (found["steps"], found["summary"][0]["value"]) == (6, "6")
    assert found["verdict"]["text"] == "The run failed at step 6."
    assert [(kind, step) for kind, step, _ in marks_of(found)] == [("save", 4), ("failure", 6)]
    first, where = found["verdict"]["evidence"]
    assert first == "RuntimeError: boom"
    assert where.startswith("in hook explode, at after_train_iter, epoch=1 iter=6 rank=0 (")
    assert where.endswith(f"{Path(__file__).name}:{explode.__code__.co_firstlineno})")


@pytest.mark.parametrize("hooks", [[], [{"type": "CheckInvalidLossHook", "interval": 3}]])
def test_a_bad_loss_is_at_its_own_step_everywhere(tmp_path: Path, hooks: list[Any]) -> None:
    runner = toy_runner(
        work_dir=tmp_path, max_iters=9, custom_hooks=hooks, default_hooks={"logger": {"interval": 3}}, val=None
    )

    @runner.on("before_train_iter")
    def spoil(runner: Runner) -> None:
        if runner.iter == 4:
            for parameter in runner.model.parameters():
                parameter.data.fill_(float("nan"))

    with pytest.raises(NumericsError, match="iteration 5"):
        runner.train()
    found = gather_run(tmp_path)
    assert (found["steps"], found["verdict"]["text"]) == (5, "The run failed at step 5.")
    assert [(kind, step) for kind, step, _ in marks_of(found)] == [("failure", 5)]
    assert state_data(Feed(tmp_path))["step"] == 5


def test_a_killed_run_ends_at_its_last_record(tmp_path: Path) -> None:
    start = {"time": 1.0, "step": 0, "epoch": 0, "kind": "start", "environment": {}}
    (tmp_path / "events.jsonl").write_text(json.dumps(start) + "\n")
    (tmp_path / "metrics.jsonl").write_text('{"step": 7, "train/loss": 1.0}\n')
    found = gather_run(tmp_path)
    assert (found["status"], found["steps"], marks_of(found)) == ("killed", 7, [("kill", 7, "killed")])
