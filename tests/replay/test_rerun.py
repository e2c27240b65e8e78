"""What a training does while it is repeated."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from hookline import Hook, Runner
from hookline.errors import ConfigError, HooklineError
from hookline.lifecycle import rerun
from hookline.replay.rerun import ReplayOver, Rerun, activated, comparable
from hookline.replay.running import in_a_process
from hookline.testing import toy_runner


class Sees(Hook):
    """Counts the steps and the validations that it sees."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.validations = 0

    def after_train_iter(self, runner: Runner) -> None:
        self.steps.append(runner.iter + 1)

    def after_val(self) -> None:
        self.validations += 1


class Observes(Sees):
    """Does the same as an observer."""

    role = "observer"


class Kept(Observes):
    """The observer in which the run failed."""


def repeat(folder: Path, last: int, *hooks: Hook, fails: bool = False) -> Path:
    scratch = folder / "scratch"
    scratch.mkdir()
    plan = Rerun(folder / "run", scratch, None, last, fails=fails, observer="Kept")
    runner = toy_runner(work_dir=folder / "run", custom_hooks=hooks)
    with activated(plan, plan.folder), pytest.raises(ReplayOver):
        runner.train()
    assert rerun.active is None
    return scratch


def test_writers_and_observers_are_off_and_actors_are_on(tmp_path: Path) -> None:
    actor, observer, kept = Sees(), Observes(), Kept()
    scratch = repeat(tmp_path, 2, actor, observer, kept)
    assert (actor.steps, observer.steps, kept.steps) == ([1, 2], [], [1, 2])
    assert not (tmp_path / "run").exists()
    assert not (scratch / "metrics.jsonl").exists()


def test_a_step_after_the_end_of_the_run_is_refused(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path / "run", max_epochs=1)
    total = runner.max_iters
    with (
        activated(Rerun(tmp_path / "run", tmp_path, None, 99), tmp_path / "run"),
        pytest.raises(ConfigError, match=f"^step 99 is after the end of the run, which has {total} steps$"),
    ):
        runner.train()


@pytest.mark.parametrize(("fails", "validations"), [(False, 0), (True, 1)])
def test_the_validation_after_the_last_step_belongs_to_a_failure_only(
    tmp_path: Path, fails: bool, validations: int
) -> None:
    actor = Sees()
    repeat(tmp_path, 4, actor, fails=fails)
    assert (actor.steps, actor.validations) == ([1, 2, 3, 4], validations)


def test_code_that_catches_every_error_does_not_go_on_after_a_replay(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path / "run")
    (tmp_path / "scratch").mkdir()
    plan = Rerun(tmp_path / "run", tmp_path / "scratch", None, 2)
    with activated(plan, plan.folder), pytest.raises(ReplayOver), suppress(Exception):
        runner.train()


def test_a_process_that_only_has_the_variable_refuses_to_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOKLINE_REPLAY", str(tmp_path))
    with pytest.raises(HooklineError, match="a replay cannot follow the code of this run into a new process"):
        toy_runner(work_dir=tmp_path / "run").train()
    assert not (tmp_path / "run").exists()


def test_texts_of_errors_are_compared_without_what_each_process_has_of_its_own() -> None:
    one = comparable("worker (pid 4711) died at 0x7f00aa11bb22 in /scratch/x", Path("/scratch"), Path("/run"))
    assert one == comparable("worker (pid 12) died at 0x7f99aa11bb44 in /run/x")
    assert comparable("sample 3") != comparable("sample 4")


def test_the_lines_of_code_of_a_worker_are_no_part_of_its_error() -> None:
    text = (
        "ValueError: Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
    )
    one = comparable(text + '  File "a.py", line 3, in read\n    return x\n           ^\nValueError: bad sample 7\n')
    assert one == comparable(text + '  File "b.py", line 90, in other\nValueError: bad sample 7\n')
    assert one != comparable(text + '  File "a.py", line 3, in read\nValueError: bad sample 8\n')


def test_both_wordings_of_torch_for_the_death_of_a_worker_are_the_same_error() -> None:
    killed = "a worker died: DataLoader worker (pid 4711) is killed by signal: Killed; memory may have run out"
    gone = "a worker died: DataLoader worker (pid(s) 12) exited unexpectedly; memory may have run out"
    assert comparable(killed) == comparable(gone) == "a worker died: …; memory may have run out"


class OfTwoError(Exception):
    """An error that cannot be unpickled."""

    exit_code = 3

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def fail() -> None:
    raise OfTwoError(1, 2)


def test_an_error_of_another_process_has_its_traceback_as_text() -> None:
    with pytest.raises(HooklineError) as caught:
        in_a_process(fail)
    lines = str(caught.value).splitlines()
    assert lines[0] == "a training in a process of its own has failed:"
    assert lines[-2:] == ["      raise OfTwoError(1, 2)", "  tests.replay.test_rerun.OfTwoError: 1 and 2"]
    assert caught.value.exit_code == 3
