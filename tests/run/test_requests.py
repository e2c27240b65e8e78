"""Requests: which request wins, who made it, and what survives a kill."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hookline import Hook, Runner
from hookline.errors import HookError
from hookline.run.requests import NO_STOP, Requests, Stop
from hookline.run.save_request import SaveRequest
from hookline.testing import toy_runner


@pytest.mark.parametrize("when", ["iter", "epoch"])
def test_a_stop_is_known_to_a_checkpoint_of_the_same_moment(tmp_path: Path, when: Any) -> None:
    class Stops(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            if runner.epoch == 1:
                runner.stop("enough", when=when)

    for resume in (False, True):
        runner = toy_runner(max_epochs=4, work_dir=tmp_path, custom_hooks=[Stops()], resume=resume)
        runner.train()
        assert runner.epoch == 2
    assert "this run was stopped by Stops: enough" in (tmp_path / "run.log").read_text()
    without = toy_runner(max_epochs=4, work_dir=tmp_path, resume=True)
    without.train()
    assert without.epoch == 4


def test_a_stop_that_waits_for_the_epoch_survives_a_kill(tmp_path: Path) -> None:
    def stop(runner: Runner) -> None:
        if runner.iter == 1:
            runner.stop("enough", when="epoch")
            runner.request_save()

    def die(runner: Runner) -> None:
        if runner.iter == 2:
            raise KeyboardInterrupt

    first = toy_runner(max_epochs=3, work_dir=tmp_path)
    first.on("after_train_iter")(stop)
    first.on("before_train_iter")(die)
    with pytest.raises(KeyboardInterrupt):
        first.train()
    resumed = toy_runner(max_epochs=3, work_dir=tmp_path, resume=True)
    resumed.train()
    assert resumed.epoch == 1


def test_skipping_a_step_that_was_made_is_refused() -> None:
    runner = toy_runner(max_epochs=1)
    runner.on("after_train_iter")(lambda runner: runner.skip_step("late"))
    with pytest.raises(HookError, match="^skip_step was called after the optimizer step"):
        runner.train()


# ------------------------------------------------------------------------------------------ which stop wins

ITER, EPOCH = Stop("now", "A"), Stop("later", "B", "epoch")
FOR_NOW, FOR_NOW_EPOCH = Stop("time", "C", for_now=True), Stop("time", "C", "epoch", for_now=True)


@pytest.mark.parametrize(
    ("asked", "stop", "postponed"),
    [
        ([ITER], ITER, NO_STOP),
        ([ITER, EPOCH], ITER, NO_STOP),
        ([EPOCH, ITER], ITER, NO_STOP),
        ([EPOCH, FOR_NOW], FOR_NOW, EPOCH),
        ([FOR_NOW, ITER], ITER, NO_STOP),
        ([FOR_NOW, EPOCH], FOR_NOW, NO_STOP),
        ([ITER, FOR_NOW], ITER, NO_STOP),
        ([FOR_NOW_EPOCH, EPOCH], EPOCH, NO_STOP),
        ([ITER, Stop("again", "D")], ITER, NO_STOP),
    ],
)
def test_the_first_stop_wins_unless_a_later_one_is_sooner_or_for_good(
    asked: list[Stop], stop: Stop, postponed: Stop
) -> None:
    requests = Requests()
    for each in asked:
        requests.ask_stop(each)
    assert (requests.stop, requests.postponed, requests.stopped, requests.pending) == (stop, postponed, NO_STOP, True)


def test_a_stop_takes_effect_when_it_is_due_with_the_parameters_of_its_hook() -> None:
    requests = Requests()
    requests.ask_stop(EPOCH, flush_window=True, exit_code=4)
    assert requests.apply_stop_if_due(at_epoch_end=False, parameters_of=str.lower) == NO_STOP
    requests.settle()
    assert (requests.pending, requests.flush_window, requests.exit_code) == (True, False, 4)
    stopped = requests.apply_stop_if_due(at_epoch_end=True, parameters_of=str.lower)
    assert stopped == requests.stopped == Stop("later", "B", "epoch", parameters="b")
    requests.settle()
    assert (requests.stop, requests.pending) == (NO_STOP, False)
    requests.resume_training()
    assert (requests.stopped, requests.pending) == (NO_STOP, False)


def test_a_stop_for_now_hands_over_to_the_stop_that_it_postponed() -> None:
    requests = Requests()
    requests.ask_stop(EPOCH)
    requests.ask_stop(FOR_NOW)
    requests.apply_stop_if_due(at_epoch_end=False, parameters_of=lambda by: "")
    requests.settle()
    assert (requests.stopped, requests.pending) == (FOR_NOW, False)
    requests.resume_training()
    assert (requests.stop, requests.stopped, requests.postponed, requests.pending) == (EPOCH, NO_STOP, NO_STOP, True)


def test_an_unknown_time_to_stop_is_refused() -> None:
    with pytest.raises(HookError) as refused:
        Requests().ask_stop(Stop("x", when="step"))  # type: ignore[arg-type]
    assert str(refused.value) == "stop(when=...) must be 'iter' or 'epoch', not 'step'"


# ------------------------------------------------------------------------------------------- other requests


def test_a_signal_and_a_failure_stay_pending_until_the_run_ends() -> None:
    requests = Requests()
    requests.receive_signal(15)
    requests.settle()
    assert requests.pending
    requests = Requests()
    requests.note_failure()
    requests.settle()
    assert requests.pending
    requests.clear()
    assert not requests.pending


def test_clear_forgets_requests_but_not_what_is_in_effect_or_owed() -> None:
    requests = Requests()
    requests.ask_stop(ITER, exit_code=4)
    requests.ask_save(SaveRequest())
    requests.ask_validation()
    requests.ask_skip("bad batch")
    requests.stopped, requests.postponed = FOR_NOW, EPOCH
    requests.clear()
    kept = {"stopped": FOR_NOW, "postponed": EPOCH, "validate": True}
    assert vars(requests) == {**vars(Requests()), **kept}


def test_the_meta_of_a_save_is_copied_when_it_is_asked_for() -> None:
    requests, meta = Requests(), {"best": [1]}
    requests.ask_save(SaveRequest(meta=meta))
    meta["best"].append(2)
    assert [dict(save.meta) for save in requests.take_saves()] == [{"best": [1]}]
    assert requests.saves == []


def test_a_copy_in_memory_is_no_file() -> None:
    requests = Requests()
    requests.ask_save(SaveRequest(in_memory=True))
    assert not requests.files_wanted
    requests.ask_save(SaveRequest())
    assert requests.files_wanted


def test_an_unknown_option_of_a_save_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(HookError) as refused:
        toy_runner().request_save(foldr="x")  # type: ignore[call-arg]
    assert str(refused.value) == "request_save has no option 'foldr'; did you mean 'folder'?"


def test_a_save_takes_a_name_a_folder_and_more(tmp_path: Path) -> None:
    saved: list[Path] = []

    def ask(runner: Runner) -> None:
        if runner.iter == 1:
            runner.request_save(
                "mine_{}.pth",
                folder=tmp_path / "a",
                prefix="x_",
                meta={"why": "test"},
                by_epoch=False,
                done=saved.append,
            )
            runner.request_save(lambda position: f"at_{position.iter}.pth", folder=str(tmp_path / "b"), optimizer=False)

    runner = toy_runner(max_epochs=1, work_dir=tmp_path / "run")
    runner.on("after_train_iter")(ask)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    runner.train()
    assert saved == [tmp_path / "a" / "x_mine_2.pth"]
    assert (tmp_path / "b" / "at_2.pth").is_file()
    assert runner.checkpoint_path("mine_{}.pth", folder="c", by_epoch=False) == Path("c/mine_4.pth")


# --------------------------------------------------------------------------------------- what survives a kill

STATES = [
    {},
    {"val_requested": True},
    {"stop_asked": "later", "stop_when": "epoch", "stopped_by": "B"},
    {"stopped": "time", "stopped_by": "C", "stopped_for_now": True, "stop_later": "later", "stop_later_by": "B"},
    {"stopped": "now", "stopped_by": "A", "stopped_with": "patience=2"},
]


@pytest.mark.parametrize("changes", STATES)
def test_the_state_of_requests_comes_back(changes: dict[str, Any]) -> None:
    state = Requests().state_dict() | changes
    requests = Requests()
    requests.load_state_dict(state)
    assert requests.state_dict() == state
    assert requests.pending is bool(state["stop_asked"])


def test_a_state_without_requests_has_none() -> None:
    requests = Requests()
    requests.load_state_dict({"epoch": 3, "iter": 12})
    assert vars(requests) == vars(Requests())


# ------------------------------------------------------------------------------------------------ who asked


def odd_hook(stop: Callable[[Runner], None]) -> Hook:
    class Odd(Hook):
        @staticmethod
        def after_train_iter(runner: Runner) -> None:
            stop(runner)

    return Odd()


class OtherName(Hook):
    def after_train_iter(this, runner: Runner) -> None:  # noqa: N805  # the point of the test
        runner.stop("enough")


class Helped(Hook):
    def after_train_iter(self, runner: Runner) -> None:
        ask_to_stop(runner)


class Around(Hook):
    def around_train_iter(self, runner: Runner) -> Iterator[None]:
        yield
        runner.stop("enough")


class AroundBefore(Hook):
    def around_train_iter(self, runner: Runner) -> Iterator[None]:
        runner.stop("enough")
        yield


def ask_to_stop(runner: Runner) -> None:
    self = "not a hook"
    assert self
    runner.stop("enough")


@pytest.mark.parametrize(
    ("hook", "name"),
    [
        (OtherName(), "OtherName"),
        (Helped(), "Helped"),
        (Around(), "Around"),
        (AroundBefore(), "AroundBefore"),
        (odd_hook(ask_to_stop), "Odd"),
    ],
)
def test_the_requester_is_the_hook_that_is_being_called(tmp_path: Path, hook: Hook, name: str) -> None:
    runner = toy_runner(max_epochs=2, work_dir=tmp_path, custom_hooks=[Hook(), hook])
    runner.train()
    assert (runner.iter, runner.stopped) == (1, Stop("enough", name))
    resumed = toy_runner(max_epochs=2, work_dir=tmp_path, custom_hooks=[Hook(), hook], resume=True)
    resumed.train()
    assert resumed.iter == 1


def test_the_requester_is_a_function_or_nobody() -> None:
    runner = toy_runner(max_epochs=1)
    runner.on("after_train_iter")(ask_to_stop)
    runner.train()
    assert runner.stopped == Stop("enough", "ask_to_stop")

    def step(model: Any, batch: Any) -> Any:
        stopping.stop("in the step")
        return model(batch[0]).sum()

    stopping = toy_runner(max_epochs=1, step=step)
    stopping.train()
    assert stopping.stopped == Stop("in the step", "")


def test_a_hook_of_another_run_is_not_the_requester() -> None:
    inner = toy_runner(max_epochs=1)
    outer = toy_runner(max_epochs=1)

    @outer.on("before_train")
    def stop_the_other(runner: Runner) -> None:
        inner.stop("from outside")

    outer.train()
    assert inner._host.requests.stop == Stop("from outside", "")


# ------------------------------------------------------------------------------------- what a request leaves alone


@pytest.mark.parametrize(
    "point", ["before_train", "before_train_epoch", "before_val", "after_val", "after_train_epoch"]
)
def test_a_skip_outside_of_an_iteration_skips_no_batch(point: str) -> None:
    runner = toy_runner(max_epochs=2)
    runner.on(point)(lambda runner: runner.skip_step("nothing to skip here"))
    runner.train()
    assert runner.updates == 8


def test_a_flushed_window_is_also_the_end_of_a_log_interval() -> None:
    ends: list[bool] = []
    runner = toy_runner(max_epochs=1, accumulate=3)
    runner.on("before_backward")(lambda runner: runner.stop("enough", flush_window=True))
    runner.on("after_train_iter")(lambda runner: ends.append(runner.ends_window))
    runner.train()
    assert (ends, runner.iter, runner.updates) == ([True], 1, 1)


def test_a_stop_from_a_thread_that_a_hook_waits_for_is_a_stop_of_the_hook(tmp_path: Path) -> None:
    class Delegates(Hook):
        def after_train_iter(self, runner: Runner) -> None:
            if runner.iter == 1:
                thread = threading.Thread(target=lambda: runner.stop("enough"))
                thread.start()
                thread.join()

    runner = toy_runner(work_dir=tmp_path, custom_hooks=[Delegates()])
    runner.train()
    assert (runner.iter, runner.stopped.by) == (2, "Delegates")
    resumed = toy_runner(work_dir=tmp_path, custom_hooks=[Delegates()], resume=True)
    resumed.train()
    assert resumed.iter == 2
