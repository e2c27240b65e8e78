from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from hookline import EvalLoop
from hookline.checkpoint import seal, store
from hookline.common import launched
from hookline.engine.metrics import accuracy
from hookline.engine.steps import predict
from hookline.errors import ConfigError
from hookline.testing import toy_data, toy_runner
from tests.faults.children import running
from tests.faults.kills import reference, wait_until
from tests.faults.runs import as_command, digests, everything, train

if TYPE_CHECKING:
    from hookline import Runner

CODES = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGHUP: 129}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", ["workers", "async"])
def test_fault_5_a_signal_finishes_the_step_saves_and_resumes_exactly(
    tmp_path: Path, number: signal.Signals, kind: str
) -> None:
    expected = reference(tmp_path / "whole", kind)
    folder = tmp_path / "ended"
    for iterations in (4, 10):
        before = len(digests(folder))
        with running(as_command, train, str(folder), kind) as child:
            assert wait_until(lambda n=before + iterations: len(digests(folder)) >= n)  # type: ignore[misc]
            os.killpg(child.pid, number)  # as Ctrl-C in a terminal does: the workers get it, too
            assert child.wait() == CODES[number], child.output()
        newest = store.newest_intact([folder], pytest.fail)
        assert newest is not None
        note = seal.read_note(newest)
        assert note is not None
        last = int(digests(folder)[-1][0])
        assert note.step in (last + 1, last + 2)  # the accumulation window of two iterations is finished first
    with running(train, str(folder), kind) as child:
        assert child.wait() == 0, child.output()
    assert [where for where, state in digests(folder) if expected[where] != state] == []
    assert digests(folder)[-1][0] == "end"


def signalled(number: int, point: str, at: int, **parts: Any) -> Runner:
    """Return a run that sends itself a signal at a point."""
    runner = toy_runner(max_epochs=3, **parts)

    sent: list[int] = []

    @runner.on(point)
    def send(runner: Runner) -> None:
        if runner.iter == at and not sent:
            sent.append(number)
            os.kill(os.getpid(), number)

    return runner


def on_a_terminal(name: str, folder: str) -> None:
    """Run on its own terminal, and exit with the exit code of the run."""
    pid = os.fork()
    if pid:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os.setsid()
    screen = os.open(name, os.O_RDWR)  # the first terminal that a session leader opens becomes its controlling terminal
    for stream in range(3):
        os.dup2(screen, stream)
    os.close(screen)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115  # open until the process ends
    as_command(train, folder, "workers")


def test_losing_the_terminal_saves_and_ends_the_run(tmp_path: Path) -> None:
    expected = reference(tmp_path / "whole", "workers")
    folder = tmp_path / "ended"
    ours, theirs = os.openpty()
    with running(on_a_terminal, os.ttyname(theirs), str(folder)) as child:
        assert wait_until(lambda: len(digests(folder)) >= 4)
        os.close(theirs)
        os.close(ours)
        assert child.wait() == 129, child.output()
    assert "ended by SIGHUP after iteration" in (folder / "run.log").read_text()
    with running(train, str(folder), "workers") as child:
        assert child.wait() == 0, child.output()
    assert [where for where, state in digests(folder) if expected[where] != state] == []


@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt), (signal.SIGHUP, SystemExit)],
)
def test_fault_5_training_raises_the_usual_exception_and_restores_the_handlers(
    tmp_path: Path, number: signal.Signals, error: type[BaseException]
) -> None:
    before = [signal.getsignal(each) for each in CODES]
    runner = signalled(number, "before_train_iter", 5, work_dir=tmp_path)
    with pytest.raises(error) as ended:
        runner.train()
    assert ended.value.args == (() if number == signal.SIGINT else (CODES[number],))
    assert runner.iter == 6
    assert sorted(path.name for path in tmp_path.glob("*.pth")) == ["epoch_1.pth", "iter_6.pth"]
    assert [signal.getsignal(each) for each in CODES] == before
    assert [line[21:] for line in (tmp_path / "run.log").read_text().splitlines()[-2:]] == [
        f"ended by {number.name} after iteration 6: saved {tmp_path / 'iter_6.pth'}",
        "Continue with: Runner(..., resume=True).train()",
    ]
    resumed = toy_runner(max_epochs=3, work_dir=tmp_path, resume=True)
    resumed.train()
    whole = toy_runner(max_epochs=3)
    whole.train()
    assert str(resumed.model.state_dict()) == str(whole.model.state_dict())


@pytest.mark.parametrize(
    ("point", "at", "files"),
    [
        ("before_run", 0, []),
        ("before_train_epoch", 0, ["iter_1.pth"]),
        ("after_train_iter", 7, ["epoch_1.pth", "iter_8.pth"]),
        ("after_train_epoch", 8, ["epoch_1.pth", "epoch_2.pth"]),
        ("before_val", 8, ["epoch_1.pth", "epoch_2.pth"]),
        ("after_val_epoch", 8, ["epoch_1.pth", "epoch_2.pth"]),
        ("before_save_checkpoint", 8, ["epoch_1.pth", "epoch_2.pth"]),
    ],
)
def test_fault_5_at_any_point_a_signal_saves_the_state_and_the_run_resumes_exactly(
    tmp_path: Path, point: str, at: int, files: list[str]
) -> None:
    with pytest.raises(SystemExit):
        signalled(signal.SIGTERM, point, at, work_dir=tmp_path).train()
    assert sorted(path.name for path in tmp_path.glob("*.pth")) == files
    resumed = toy_runner(max_epochs=3, work_dir=tmp_path, resume=True)
    resumed.train()
    whole = toy_runner(max_epochs=3)
    whole.train()
    assert str(resumed.model.state_dict()) == str(whole.model.state_dict())
    assert resumed.position == whole.position


def test_fault_5_a_validation_with_a_hook_that_affects_training_is_finished_first(tmp_path: Path) -> None:
    """Such a hook may have put other weights into the model, so the state in a validation cannot be saved."""
    runner = signalled(
        signal.SIGTERM, "before_val_iter", 8, work_dir=tmp_path, default_hooks={"checkpoint": {"interval": 0}}
    )
    with pytest.raises(SystemExit):
        runner.train()
    assert [path.name for path in tmp_path.glob("*.pth")] == ["epoch_2.pth"]
    assert runner.validations == 2
    assert (
        "the validation is finished first, because send takes part in it and may change training; a hook that only "
        "looks is left at once if it declares role = 'observer'; a kill before that loses the steps since the last "
        "checkpoint, so set the environment variable HOOKLINE_GRACE to the seconds between a signal and the kill"
    ) in [line[21:] for line in (tmp_path / "run.log").read_text().splitlines()]


@pytest.mark.parametrize("text", ["2 min", "-1", "inf"])
def test_a_time_until_the_kill_that_is_no_number_is_refused_before_training(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("HOOKLINE_GRACE", text)
    with pytest.raises(ConfigError) as refused:
        (runner := toy_runner(max_epochs=1)).train()
    assert str(refused.value) == f"the environment variable HOOKLINE_GRACE must be a number of seconds, not {text!r}"
    assert runner.iter == 0


@pytest.mark.parametrize(("interval", "files", "where"), [
    (5, ["iter_5.pth"], "iteration 5 is saved in {}/iter_5.pth"),
    (0, [], "no checkpoint was written yet"),
])  # fmt: skip
def test_fault_5_a_validation_that_cannot_be_left_ends_before_the_process_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval: int, files: list[str], where: str
) -> None:
    monkeypatch.setenv(launched.GRACE, "0")
    batches = list[int]()

    def step(model: nn.Module, batch: Any) -> Any:
        batches.append(runner.iter)
        return predict(model, batch)

    runner = signalled(
        *(signal.SIGTERM, "before_val_iter", 8),
        work_dir=tmp_path,
        trial_batch=False,
        val=EvalLoop(toy_data(5, seed=1), step, metrics={"accuracy": accuracy}),
        default_hooks={"checkpoint": {"by_epoch": False, "interval": interval}},
    )
    with pytest.raises(SystemExit) as ended:
        runner.train()
    assert ended.value.code == 143
    assert batches == [4] * 5 + [8] * 2
    assert sorted(path.name for path in tmp_path.glob("*.pth")) == files
    why = (
        "because send takes part in it and may change training; a hook that only looks is left at once if it declares "
        "role = 'observer'"
    )
    said = [line[21:] for line in (tmp_path / "run.log").read_text().splitlines()]
    began = said.index(f"the validation is finished first, {why}; after 0 seconds, the run ends without saving")
    assert said[began + 1 :] == [
        "ended by SIGTERM after iteration 8: the validation took too long, and the state before it is not saved, "
        f"{why}; {where.format(tmp_path)}",
        *["Continue with: Runner(..., resume=True).train()"] * bool(files),
    ]


# -------------------------------------------------------------------------------------------- a second signal


def hang(folder: str, where: str) -> None:
    """Train a run that hangs in its sixth step or in its second save; the file `hanging` then shows it."""
    torch.set_num_threads(1)
    runner = toy_runner(max_epochs=3, work_dir=folder)

    def wait() -> None:
        Path(folder, "hanging").touch()
        for _ in range(6000):
            time.sleep(0.01)

    if where == "step":
        runner.on("before_backward")(lambda runner: wait() if runner.iter == 5 else None)
    else:
        put = seal.SealingFile._put

        def slow(self: seal.SealingFile, data: Any) -> None:
            put(self, data)
            if runner.iter == 8 and len(data) > 500:
                wait()

        seal.SealingFile._put = slow  # type: ignore[method-assign]
    runner.train()


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("where", ["step", "save"])
def test_fault_6_a_second_signal_ends_at_once_with_a_valid_checkpoint(
    tmp_path: Path, where: str, number: signal.Signals
) -> None:
    with running(as_command, hang, str(tmp_path), where) as child:
        assert wait_until((tmp_path / "hanging").exists)
        child.kill(number)
        time.sleep(0.5)
        assert not child.has_ended()
        child.kill(number)
        assert child.wait() == CODES[number], child.output()
    assert [path.name for path in tmp_path.glob("*.pth")] == ["epoch_1.pth"]
    assert seal.damage(tmp_path / "epoch_1.pth") == ""
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".partial")] == []
    resumed = toy_runner(max_epochs=3, work_dir=tmp_path, resume=True)
    resumed.train()
    assert resumed.iter == 12


def test_fault_6_a_signal_during_a_save_lets_it_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put = seal.SealingFile._put
    sent: list[bool] = []

    def sending(self: seal.SealingFile, data: Any) -> None:
        put(self, data)
        if not sent and len(data) > 500:
            sent.append(True)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(seal.SealingFile, "_put", sending)
    with pytest.raises(SystemExit):
        toy_runner(max_epochs=3, work_dir=tmp_path).train()
    assert [path.name for path in tmp_path.glob("*.pth")] == ["epoch_1.pth"]
    assert seal.damage(tmp_path / "epoch_1.pth") == ""


def test_in_another_thread_no_handlers_are_set() -> None:
    before = [signal.getsignal(each) for each in CODES]
    seen: list[Any] = []
    runner = toy_runner(max_epochs=1)
    runner.on("before_train")(lambda: seen.extend(signal.getsignal(each) for each in CODES))
    thread = threading.Thread(target=runner.train)
    thread.start()
    thread.join(60)
    assert seen == before
    assert runner.iter == 4


def test_a_signal_that_is_ignored_stays_ignored_and_the_log_says_how_to_end_the_run() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    runner = signalled(signal.SIGINT, "before_train_iter", 5)
    try:
        runner.train()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert (runner.iter, runner._host.requests.signal) == (12, 0)
    log = (runner.work_dir / "run.log").read_text(encoding="utf-8")
    assert (
        f"Ctrl-C has no effect here, because SIGINT was ignored at the start; to end, use: kill {os.getpid()}\n" in log
    )


def test_a_window_of_gradients_is_finished_before_a_signal_saves(tmp_path: Path) -> None:
    runner = signalled(signal.SIGTERM, "before_train_iter", 5, work_dir=tmp_path, accumulate=4, batches=9)
    with pytest.raises(SystemExit):
        runner.train()
    assert [path.name for path in tmp_path.glob("*.pth")] == ["iter_8.pth"]


def test_the_run_of_the_digests_has_the_expected_length(tmp_path: Path) -> None:
    assert everything(tmp_path).train_loop.length == 11
