"""If the same step fails three times in a row, the exit code is 7, and nothing starts the run again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hookline.rundir import failures
from hookline.rundir.failures import NAME, Failures
from hookline.testing import toy_runner
from tests.distributed.processes import running
from tests.distributed.ranks import run, torchrun

MODULE = "repeating"
LAUNCH = (
    "import json, sys; from hookline.launching.elastic import Options, run; "
    "sys.exit(run(sys.argv[2:], Options(**json.loads(sys.argv[1])), print))"
)


def last_note(folder: Path, step: int, count: int = 3) -> list[str]:
    """Return the lines that say that a run should not be started again."""
    return [
        f"step {step} has failed {count} times in a row, so starting the run again would not help: the exit code is 7 "
        "(do not requeue)",
        f"  to start counting from zero, delete {folder / NAME}",
    ]


def fails_at(folder: Path, iteration: int, what: type[Exception] | None = ValueError, **options: Any) -> Exception:
    """Train in this process until a hook raises, and return the error."""
    runner = toy_runner(work_dir=folder, resume=True, **options)

    @runner.on("after_train_iter")
    def fail(runner: Any) -> None:
        if runner.iter == iteration and what is not None:
            raise what("planted")

    try:
        runner.train()
    except Exception as error:
        return error
    return Exception("none")


def test_the_third_failure_at_one_step_has_exit_code_7_and_keeps_its_type(tmp_path: Path) -> None:
    codes = [getattr(fails_at(tmp_path, 3), "exit_code", 1) for _ in range(2)]
    assert codes == [1, 1]
    found = failures.read(tmp_path)
    assert found is not None
    assert (found.step, found.count, found.kind, found.near) == (4, 2, "ValueError", False)
    third = fails_at(tmp_path, 3)
    assert isinstance(third, ValueError)
    assert third.exit_code == 7  # type: ignore[attr-defined]  # set by hookline
    assert "\n".join(third.__notes__).splitlines()[-2:] == last_note(tmp_path, 4)
    assert last_note(tmp_path, 4)[0] in (tmp_path / "run.log").read_text()


def test_a_failure_elsewhere_counts_from_one_again_and_a_passed_step_is_forgotten(tmp_path: Path) -> None:
    for iteration in (3, 3, 2):
        fails_at(tmp_path, iteration)
    found = failures.read(tmp_path)
    assert found is not None
    assert (found.step, found.count) == (3, 1)
    fails_at(tmp_path, 0, None)
    assert not (tmp_path / NAME).exists()


def test_a_run_that_does_not_resume_counts_from_one(tmp_path: Path) -> None:
    for _ in range(3):
        found = fails_at(tmp_path, 3)
    assert getattr(found, "exit_code", 1) == 7
    runner = toy_runner(work_dir=tmp_path)
    runner.on("after_train_iter")(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        runner.train()
    assert not (tmp_path / NAME).exists()  # before the first iteration is finished, nothing is counted


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "[" * 4000, '{"step": 4}', "\0" * 100, "x" * 10**6, '{"a": 1}'],
)
def test_a_file_that_is_not_ours_is_ignored_and_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    assert failures.read(tmp_path) is None
    assert failures.note(tmp_path, 4, "a", "ValueError") == 1
    assert failures.read(tmp_path) == Failures(4, 1, "a", "ValueError")
    for wrong in ({"step": "4"}, {"count": -1}, {"count": True}, {"near": 1}, {"kind": None}, {"more": 1}):
        fine = {"step": 4, "count": 2, "attempt": "a", "kind": "b", "near": False}
        (tmp_path / NAME).write_text(json.dumps(fine | wrong))
        assert failures.read(tmp_path) is None
    failures.forget(tmp_path, passed=1)
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / NAME).symlink_to(other)
    assert failures.note(tmp_path, 4, "a", "ValueError") == 1
    assert other.read_text() == "mine"
    assert failures.read(tmp_path) == Failures(4, 1, "a", "ValueError")


def test_processes_of_one_attempt_count_once_and_may_differ_by_one_step(tmp_path: Path) -> None:
    assert failures.note(tmp_path, 5, "one", "DistributedError", near=True) == 1
    assert failures.note(tmp_path, 4, "one", "ValueError") == 1
    assert failures.read(tmp_path) == Failures(4, 1, "one", "ValueError")
    assert failures.note(tmp_path, 4, "two", "ValueError") == 2
    assert failures.note(tmp_path, 5, "two", "DistributedError", near=True) == 2
    assert failures.note(tmp_path, 5, "three", "DistributedError", near=True) == 3
    assert failures.note(tmp_path, 9, "four", "DistributedError", near=True) == 1


@pytest.mark.parametrize(("what", "first"), [("raise", 1), ("kill", 137)])
def test_the_launcher_restarts_twice_and_ends_with_7(tmp_path: Path, what: str, first: int) -> None:
    worker = (sys.executable, "-m", f"tests.distributed.{MODULE}", "fail", str(tmp_path), json.dumps([what, 5, 1]))
    options = json.dumps({"nproc": 2, "max_restarts": 5})
    with running(sys.executable, "-c", LAUNCH, options, *worker, cwd=tmp_path) as command:
        assert command.wait() == 7, command.output()
        said = command.output().splitlines()
        assert [line for line in said if line.startswith(("restarting", "not restarted"))] == [
            "restarting all processes (restart 1 of 5)",
            "restarting all processes (restart 2 of 5)",
            "not restarted: exit code 7 is final",
        ]
        assert (f"rank 1 failed with exit code {first}" in command.output()) is (what == "raise")
        assert "(do not requeue)" in command.output()


def test_the_third_start_of_two_processes_ends_with_7_in_both(tmp_path: Path) -> None:
    starts = [run("fail", tmp_path, "raise", 5, 1, module=MODULE, launcher=torchrun()) for _ in range(3)]
    assert [[found["code"] for found in done.ranks] for done in starts] == [[1, 1], [1, 1], [7, 7]]
    assert [found["error"] for found in starts[2].ranks] == ["DistributedError", "ValueError"]
    table = starts[2].output.partition("ChildFailedError")[2]  # torchrun's own
    assert "in hook At, at after_train_iter, epoch=1 iter=5 rank=1" in table
    assert "step 6 has failed 3 times in a row" in table
    done = run("fail", tmp_path, "pass", module=MODULE)
    assert done.code == 0, done.output
    assert not (tmp_path / "run" / NAME).exists()
