"""hooks.json: what it holds, when it is written, and what happens when it cannot be."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline import Hook, Runner
from hookline.common.files import write_text
from hookline.errors import StorageError
from hookline.lifecycle import ledger_file
from hookline.plan import ledger
from hookline.plan.explanation import as_data
from hookline.strategies import Single
from hookline.testing import toy_runner
from tests.clock import Clock

COST = {"calls", "measured", "seconds", "mean", "longest"}


def read(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "hooks.json").read_text())
    return found


def test_it_has_the_documented_layout(tmp_path: Path) -> None:
    runner = toy_runner(max_epochs=10, work_dir=tmp_path)
    runner.train()
    found = read(tmp_path)
    assert list(found) == [
        *("version", "first_step", "steps", "seconds", "sampled_steps", "period", "parts", "hooks", "memory"),
        *("overhead", "plan"),
    ]
    assert {key: found[key] for key in ("version", "first_step", "steps", "sampled_steps", "period")} == {
        "version": 1,
        "first_step": 0,
        "steps": 40,
        "sampled_steps": 2,
        "period": 31,
    }
    parts = ["data", "forward", "backward", "optimizer", "saving", "validation", "hooks", "other"]
    assert list(found["parts"]) == parts
    assert [set(part) for part in found["parts"].values()] == [COST] * 8
    assert [found["parts"][name]["calls"] for name in parts[:6]] == [40, 40, 40, 40, 10, 10]
    assert [hook["name"] for hook in found["hooks"]] == [entry.name for entry in runner.plan]
    for hook in found["hooks"]:
        assert list(hook) == ["name", "role", "priority", "seconds", "share", "points", "memory", "budget"]
        assert [set(point) for point in hook["points"].values()] == [COST] * len(hook["points"])
        assert list(hook["memory"]) == ["tensors", "device"]
        assert hook["seconds"] == pytest.approx(sum(point["seconds"] for point in hook["points"].values()))
        assert hook["share"] == pytest.approx(hook["seconds"] / found["seconds"])
    assert {tuple(sample) for sample in found["memory"]} == {("step", "resident", "tensors", "device")}
    assert found["memory"][-1]["step"] == 40
    assert list(found["overhead"]) == ["seconds", "share"]
    assert 0 < found["overhead"]["share"] < 1
    assert found["plan"] == json.loads(json.dumps(as_data(runner.plan)))
    now = json.loads(json.dumps(runner.costs().to_dict()))
    assert found.pop("overhead")["seconds"] < now.pop("overhead")["seconds"], "this is with the last write of the file"
    assert found == now


def test_it_is_written_at_the_start_after_saves_and_validations_for_records_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, written = Clock(), []
    monkeypatch.setattr(time, "perf_counter", clock)
    write = ledger_file.LedgerFile.write

    def note(file: ledger_file.LedgerFile) -> None:
        write(file)
        written.append(read(tmp_path)["steps"])

    monkeypatch.setattr(ledger_file.LedgerFile, "write", note)
    runner = toy_runner(max_epochs=3, work_dir=tmp_path, default_hooks={"logger": {"interval": 1}})
    runner.on("after_train_iter")(lambda runner: setattr(clock, "now", clock.now + 2))
    runner.train()
    assert written == [0, 2, 4, 4, 6, 8, 8, 10, 12, 12, 12]


def test_it_is_written_when_the_run_fails(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path)

    @runner.on("after_train_iter")
    def fail(runner: Runner) -> None:
        if runner.iter == 5:
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        runner.train()
    found = read(tmp_path)
    assert (found["steps"], found["parts"]["data"]["calls"], found["parts"]["saving"]["calls"]) == (5, 6, 1)
    assert not (tmp_path / ".hooks.json.partial").exists()


def test_after_a_resume_it_covers_this_session(tmp_path: Path) -> None:
    toy_runner(max_epochs=1, work_dir=tmp_path).train()
    toy_runner(max_epochs=3, work_dir=tmp_path, resume=True).train()
    found = read(tmp_path)
    assert (found["first_step"], found["steps"], found["parts"]["data"]["calls"]) == (4, 8, 8)


def test_evaluations_do_not_change_it_and_a_fresh_run_archives_it(tmp_path: Path) -> None:
    runner = toy_runner(max_epochs=1, work_dir=tmp_path)
    runner.train()
    before = (tmp_path / "hooks.json").read_bytes()
    runner.test()
    runner.val()
    assert (tmp_path / "hooks.json").read_bytes() == before
    toy_runner(max_epochs=1, work_dir=tmp_path).train()
    assert (tmp_path / "old-1" / "hooks.json").read_bytes() == before


def test_only_the_main_process_writes_it(tmp_path: Path) -> None:
    class Second(Single):
        is_main = False

    runner = toy_runner(work_dir=tmp_path, strategy=Second(), default_hooks={"checkpoint": None}, writers=[])
    runner.train()
    assert not (tmp_path / "hooks.json").exists()
    assert runner.costs().parts["data"].calls == 8, "it measures all the same"


def test_a_full_disk_is_an_error_at_the_start_and_one_warning_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(path: Path, text: str) -> None:
        raise StorageError(f"{path} cannot be written: No space left on device")

    runner = toy_runner(work_dir=tmp_path)
    runner.on("before_train")(lambda runner: monkeypatch.setattr(ledger_file, "write_text", no_space))
    runner.train()
    text = (tmp_path / "run.log").read_text()
    assert text.count("hooks.json cannot be written: No space left on device. The run continues.") == 1
    with pytest.raises(StorageError, match=r"hooks\.json cannot be written"):
        toy_runner(work_dir=tmp_path / "new").train()


def test_names_of_hooks_are_data(tmp_path: Path) -> None:
    named = type("<script>alert(1)</script>\x1b[2J", (Hook,), {"before_train": lambda self, runner: None})
    toy_runner(work_dir=tmp_path, custom_hooks=[named()]).train()
    assert "\x1b" not in (tmp_path / "hooks.json").read_text()
    assert any("<script>" in hook["name"] for hook in read(tmp_path)["hooks"])


def test_the_time_of_writing_is_not_a_cost_of_the_hook_that_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)

    def slowly(path: Path, text: str) -> None:
        write_text(path, text)
        clock.now += 0.001

    monkeypatch.setattr(ledger_file, "write_text", slowly)
    runner = toy_runner(max_iters=62, work_dir=tmp_path, default_hooks={"logger": {"interval": 1}})
    runner.on("before_train_iter")(lambda runner: setattr(clock, "now", clock.now + 6))
    runner.train()
    logger = next(hook for hook in runner.costs().hooks if hook.name == "LoggerHook")
    assert logger.total.seconds == 0.0
    assert runner.costs().overhead == pytest.approx(0.063, abs=0.004)


@pytest.mark.parametrize("watched", [False, True], ids=["plain", "watched"])
@pytest.mark.parametrize("seen", [False, True], ids=["continued plain", "continued watched"])
def test_a_resumed_run_is_bit_exact_with_and_without_everything_that_watches_it(
    tmp_path: Path, watched: bool, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Budgets, a trace, images and the report change nothing, also if they come or go at a resume."""

    class Looks(Hook):
        """An observer that takes nearly all of the time, so that it is over its budget."""

        role = "observer"
        draws_random_numbers = False

        def after_train_iter(self, runner: Runner) -> None:
            end = time.perf_counter() + 0.002
            while time.perf_counter() < end:
                pass

    def build(folder: str, on: bool, **parts: Any) -> Runner:
        hooks = {"report": {} if on else None, "checkpoint": {"by_epoch": False, "interval": 5}}
        runner = toy_runner(max_epochs=60, work_dir=tmp_path / folder, default_hooks=hooks, **parts)
        if on:
            runner.register_hook(Looks(), budget="0.1%")
            runner.trace(tmp_path / f"{folder}.json")
        return runner

    monkeypatch.setattr(ledger, "LOOK", 0.0)
    whole = build("whole", on=False)
    whole.train()
    first = build("parts", on=watched)

    @first.on("after_train_iter", priority="LOWEST")
    def fail(runner: Runner) -> None:
        if runner.iter == 137:
            raise RuntimeError("a failure")

    with pytest.raises(RuntimeError, match="a failure"):
        first.train()
    second = build("parts", on=seen, resume=True)
    second.train()
    assert second._host.loading.resumed_at == 135
    warned = [bool(runner.plan.ledger.budgets._warned) for runner in (first, second)]
    assert warned == [watched, seen]
    one, other = (torch.load(tmp_path / name / "iter_240.pth", weights_only=True) for name in ("whole", "parts"))
    for part in ("state_dict", "optimizer", "rng", "position"):
        assert_same(one[part], other[part], part)
    records = [
        [{key: value for key, value in row.items() if "time" not in key} for row in read_rows(tmp_path / name)]
        for name in ("whole", "parts")
    ]
    assert records[0] == records[1]


def read_rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def assert_same(one: Any, other: Any, where: str) -> None:
    """Compare nested states bit by bit."""
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    elif isinstance(one, dict):
        assert list(one) == list(other), where
        for key in one:
            assert_same(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), where
        for number, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            assert_same(mine, theirs, f"{where}[{number}]")
    else:
        assert one == other, where
