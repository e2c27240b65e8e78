from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline import Hook, Optim, Runner, TrainLoop, runs
from hookline.engine.steps import cross_entropy
from hookline.errors import DataError, HooklineError
from hookline.hooks import LoggerHook
from hookline.testing import MemoryWriter, toy_model, toy_runner


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.pth"))


def test_nothing_of_an_interrupted_run_is_left_for_the_next() -> None:
    runner = toy_runner(max_epochs=1, accumulate=4)

    @runner.on("after_backward")
    def interrupt(runner: Runner) -> None:
        if runner.iter == 1:
            runner.stop("old")
            runner.request_save()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.train()
    runner.remove_hook(interrupt)
    runner.train()
    assert runner.epoch == 1
    assert checkpoints(runner.work_dir) == ["epoch_1.pth"]


def test_a_writer_that_fails_to_close_leaves_the_runner_and_the_others_in_order() -> None:
    class Fails(MemoryWriter):
        def close(self) -> None:
            raise OSError("away")

    class Closes(MemoryWriter):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    other = Closes()
    runner = toy_runner(max_epochs=1, writers=[Fails(), other])
    runner.train()
    assert (runner.running, other.closed) == (None, 1)
    assert "warning: Fails failed: OSError: away; the run continues" in (runner.work_dir / "run.log").read_text()


def test_a_run_inside_a_run_is_refused_without_touching_the_outer_log() -> None:
    runner = toy_runner(max_epochs=1)

    @runner.on("before_train")
    def start_another(runner: Runner) -> None:
        with pytest.raises(HooklineError, match=r"^runner\.train\(\) was called inside runner\.train\(\)"):
            runner.train()
        runner.terminal.say("the outer run continues")

    runner.train()
    log = (runner.work_dir / "run.log").read_text()
    assert "the outer run continues" in log
    assert "ended:" not in log
    assert runner.iter == 4


def test_a_runner_with_several_optims_evaluates_whatever_its_training_step_is() -> None:
    model = toy_model()
    optims = {name: Optim(torch.optim.SGD(model.parameters(), lr=0.1)) for name in ("a", "b")}
    assert list(toy_runner(model=model, optim=optims).val()) == ["accuracy"]


def test_a_hook_that_is_registered_during_a_run_gets_its_copies_of_the_logs(tmp_path: Path) -> None:
    runner = toy_runner(max_epochs=1, work_dir=tmp_path / "run", default_hooks={"logger": None})
    runner.on("before_train")(lambda runner: runner.register_hook(LoggerHook(out_dir=str(tmp_path / "copies"))))
    runner.train()
    assert "run.log" in [path.name for path in (tmp_path / "copies" / "run").iterdir()]


class Exits(Hook):
    """Calls sys.exit in the sixth iteration."""

    def __init__(self, code: Any) -> None:
        self.code = code

    def after_train_iter(self, runner: Runner) -> None:
        if runner.iter == 5:
            sys.exit(self.code)


@pytest.mark.parametrize(("code", "given"), [(0, "0"), (None, ""), (256, "256")])
def test_sys_exit_0_in_a_hook_fails_the_run_and_names_the_hook(tmp_path: Path, code: Any, given: str) -> None:
    with pytest.raises(HooklineError) as failed:
        toy_runner(work_dir=tmp_path, custom_hooks=[Exits(code)], val=None).train()
    text = (
        f"sys.exit({given}) was called after iteration 5 (hook Exits at after_train_iter), so the run is not finished; "
        "to end a training early, call runner.stop(reason)"
    )
    assert str(failed.value) == text
    assert isinstance(failed.value.__cause__, SystemExit)
    state = runs.load(tmp_path).state
    assert (state.name, state.code, state.text) == ("failed", 1, f"HooklineError: {text}")
    assert f"ended: {text}\n" in (tmp_path / "run.log").read_text()


def test_another_exit_code_stays_and_the_log_names_where_it_came_from(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        toy_runner(work_dir=tmp_path, custom_hooks=[Exits(3)], val=None).train()
    assert ended.value.code == 3
    assert (runs.load(tmp_path).state.name, runs.load(tmp_path).state.code) == ("failed", 3)
    line = (
        "ended: sys.exit(3) was called after iteration 5 (hook Exits at after_train_iter), so the run is not finished"
    )
    assert f"{line}\n" in (tmp_path / "run.log").read_text()


@pytest.mark.parametrize("place", ["the step", "reading a batch"])
def test_sys_exit_in_a_step_or_a_dataset_is_named(tmp_path: Path, place: str) -> None:
    class Samples(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 16

        def __getitem__(self, index: int) -> Any:
            if place == "reading a batch" and index == 9:
                sys.exit(0)
            return torch.ones(4), 1

    def step(model: Any, batch: Any) -> Any:
        if place == "the step":
            sys.exit(0)
        return cross_entropy(model, batch)

    loop = TrainLoop(torch.utils.data.DataLoader(Samples(), batch_size=4), step, max_epochs=2)
    with pytest.raises(HooklineError, match=f"^sys.exit\\(0\\) was called after iteration . \\({place}\\), so "):
        Runner(
            model := toy_model(),
            train=loop,
            optim=torch.optim.SGD(model.parameters(), lr=0.1),
            work_dir=tmp_path,
            quiet=True,
            device="cpu",
        ).train()
    assert runs.load(tmp_path).state.name == "failed"


class SpeechlessError(Exception):
    def __str__(self) -> str:
        return str(1 / 0)

    def add_note(self, note: str) -> None:
        raise RuntimeError("no notes")


def test_an_error_without_a_message_is_recorded_as_the_failure(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path, val=None)

    @runner.on("after_train_iter")
    def fail() -> None:
        raise SpeechlessError

    with pytest.raises(SpeechlessError):
        runner.train()
    state = runs.load(tmp_path).state
    shown = "SpeechlessError, whose message cannot be shown: its __str__ raised ZeroDivisionError"
    assert (state.name, state.code, state.text) == ("failed", 1, shown)
    log = (tmp_path / "run.log").read_text()
    assert "SpeechlessError" in log
    assert "after_train_iter" in log


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("DataLoader worker (pid 7) is killed by signal: Killed. ", "(pid 7) is killed by signal: Killed"),
        ("DataLoader worker (pid(s) 7) exited unexpectedly", "(pid(s) 7) exited unexpectedly"),
    ],
)
def test_a_worker_that_died_is_one_message_that_blames_no_hook(text: str, shown: str) -> None:
    runner, seen = toy_runner(max_epochs=1), []

    @runner.on("after_train_iter")
    def innocent(runner: Runner) -> None:
        raise RuntimeError(text)  # torch raises it in a signal handler, wherever the main thread is

    @runner.on("on_exception")
    def see(runner: Runner, error: BaseException) -> None:
        seen.append(error)

    with pytest.raises(DataError) as caught:
        runner.train()
    assert str(caught.value) == (
        f"a worker process of a loader died: DataLoader worker {shown}; if it was killed, memory may have run out"
    )
    assert (getattr(caught.value, "__notes__", []), caught.value.__suppress_context__) == ([], True)
    assert (seen, caught.value.exit_code) == ([caught.value], 3)
