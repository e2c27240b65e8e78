"""A loop that does not belong to hookline, driven by `Training`: hooks record exactly what they record in our loop.

The loops below make their own backward passes and optimizer steps. Every built-in hook runs in them as in
`Runner.train()`, and everything is compared, bit by bit: records, states of hooks, weights, checkpoints.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hookline import Hook, Optim, Runner
from hookline.checkpoint import store
from hookline.engine.training import Training
from hookline.errors import NumericsError
from hookline.hooks import CheckInvalidLossHook, GradNormHook
from hookline.lifecycle.session import session
from hookline.testing import Recorder, toy_data, toy_model, toy_runner
from tests.contract.test_hooks import (
    BATCHES,
    EPOCHS,
    NAMES,
    _in_a_folder_with_a_module,
    build_runner,
    records,
    state_digest,
)
from tests.faults.runs import digest

__all__ = ["_in_a_folder_with_a_module"]  # a fixture that every test here uses

Loop = Callable[[Training, nn.Module, torch.optim.Optimizer], None]


def loss_of(model: nn.Module, batch: Any) -> Tensor:
    inputs, classes = batch
    return nn.functional.cross_entropy(model(inputs), classes)


def foreign_loop(training: Training, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Train as a project does that has its own loop."""
    with training.driving():
        while training.continues:
            with training.one_pass() as batches:
                for batch, last in batches:
                    with training.iteration(batch, last) as batch:
                        if training.skipped:
                            continue
                        with training.forward(batch):
                            loss = loss_of(model, batch)
                        if (taken := training.take_loss(loss)) is None:
                            continue
                        taken.backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
                        optimizer.step()
                        optimizer.zero_grad()


def accumulating_loop(training: Training, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Step after every second batch, and after the last one of an epoch, with the mean of their gradients."""
    with training.driving():
        while training.continues:
            with training.one_pass() as batches:
                for number, (batch, last) in enumerate(batches):
                    with training.iteration(batch, last) as batch:
                        loss = training.take_loss(loss_of(model, batch))
                        assert loss is not None
                        (loss if number == BATCHES - 1 else loss / 2).backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
                        if last or number % 2:
                            optimizer.step()
                            optimizer.zero_grad()


def loop_with_callbacks(training: Training, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Train in a loop that only has callbacks: what begins in one of them ends in another."""
    step = ExitStack()

    def on_step_begin(batch: Any, last: bool) -> Any:
        return step.enter_context(training.iteration(batch, last))

    def on_step_end() -> None:
        step.close()

    with training.driving():
        while training.continues:
            with training.one_pass() as batches:
                for batch, last in batches:
                    batch = on_step_begin(batch, last)
                    loss = training.take_loss(loss_of(model, batch))
                    assert loss is not None
                    loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
                    optimizer.step()
                    optimizer.zero_grad()
                    on_step_end()


def train_in(loop: Loop, runner: Runner) -> Runner:
    """Train with a loop that is not hookline's, in a session of the runner."""
    with session(runner._host, "train", runner._host.start, runner._host.stages):
        loop(runner._host.training, runner.model, runner.optims.sole.optimizer)
    return runner


def train(runner: Runner) -> Runner:
    runner.train()
    return runner


def checkpoints(folder: str) -> dict[str, str]:
    """Return the digest of every checkpoint in a folder, without the states of hooks that hold durations."""
    found = {path.name: store.read(path, sealed=True) for path in sorted(Path(folder).glob("*.pth"))}
    for checkpoint in found.values():
        checkpoint["hooks"].pop("TimeLimitHook", None)
        checkpoint.pop("message_hub", None)  # it holds durations; `state_digest` compares it without them
    return {name: digest(checkpoint) for name, checkpoint in found.items()}


def assert_same(theirs: Runner, ours: Runner) -> None:
    folders = str(theirs.work_dir), str(ours.work_dir)
    assert theirs.position == ours.position
    assert theirs.updates == ours.updates
    assert records(folders[0]) == records(folders[1])
    assert state_digest(theirs) == state_digest(ours)
    assert checkpoints(folders[0]) == checkpoints(folders[1])


# ------------------------------------------------------------------------------------------------- all built-in hooks


@pytest.mark.parametrize("way", ["by epochs", "by iterations"])
@pytest.mark.parametrize("name", NAMES)
def test_a_hook_records_the_same_in_a_foreign_loop(name: str, way: str) -> None:
    one: dict[str, Any] = {"optim": {"accumulate": 1}}
    theirs = train_in(foreign_loop, build_runner(name, "theirs/run", way=way, **one))
    ours = train(build_runner(name, "ours/run", way=way, **one))
    assert ours.iter == EPOCHS * BATCHES
    assert {"train/loss", "train/lr", "val/accuracy"} <= {key for record in records("theirs/run") for key in record}
    assert_same(theirs, ours)


@pytest.mark.parametrize("name", ["GradNormHook", "GradClipHook", "EMAHook", "LoggerHook", "CheckInvalidLossHook"])
def test_a_hook_records_the_same_in_a_loop_that_accumulates_gradients(name: str) -> None:
    theirs = train_in(accumulating_loop, build_runner(name, "theirs/run"))
    ours = train(build_runner(name, "ours/run"))
    assert ours.updates == EPOCHS * (BATCHES // 2 + 1)
    assert_same(theirs, ours)


@pytest.mark.parametrize("name", ["GradNormHook", "LoggerHook"])
def test_a_hook_records_the_same_in_a_loop_that_only_has_callbacks(name: str) -> None:
    one: dict[str, Any] = {"optim": {"accumulate": 1}}
    theirs = train_in(loop_with_callbacks, build_runner(name, "theirs/run", **one))
    assert_same(theirs, train(build_runner(name, "ours/run", **one)))


def test_norms_of_gradients_are_recorded_and_logged() -> None:
    """These two hooks once ran in a foreign loop and recorded nothing."""
    theirs = train_in(
        foreign_loop,
        toy_runner(
            custom_hooks=[GradNormHook(interval=1)], default_hooks={"logger": {"interval": 1}}, work_dir="theirs/run"
        ),
    )
    norms = [record["train/grad_norm/total"] for record in records("theirs/run") if "train/loss" in record]
    assert len(norms) == theirs.iter == 8
    assert all(norm > 0 for norm in norms)


# ------------------------------------------------------------------------------------------------------- the points


@pytest.mark.parametrize("length", [{"max_epochs": 2}, {"max_iters": 6}])
def test_a_foreign_loop_goes_through_the_same_points_and_scopes(length: dict[str, Any]) -> None:
    theirs, ours = Recorder(), Recorder()
    train_in(foreign_loop, toy_runner(custom_hooks=[theirs], **length))
    train(toy_runner(custom_hooks=[ours], **length))
    assert theirs.events == ours.events
    assert {"enter forward", "enter backward", "enter optimizer_step", "after_train_iter"} <= set(theirs.names)


class SkipsAt(Hook):
    """Skips a batch at a point."""

    def __init__(self, point: str) -> None:
        self._point = point

    def _skip_at(self, runner: Runner, point: str) -> None:
        if point == self._point and runner.iter in (1, 4):
            runner.skip_step("as the test wants")

    def before_train_iter(self, runner: Runner) -> None:
        self._skip_at(runner, "before_train_iter")

    def before_backward(self, runner: Runner) -> None:
        self._skip_at(runner, "before_backward")

    def after_backward(self, runner: Runner) -> None:
        self._skip_at(runner, "after_backward")

    def before_optimizer_step(self, runner: Runner) -> None:
        self._skip_at(runner, "before_optimizer_step")


@pytest.mark.parametrize("point", ["before_train_iter", "before_backward", "after_backward", "before_optimizer_step"])
def test_a_skipped_batch_has_the_same_points_and_does_not_change_the_weights(point: str) -> None:
    found = []
    for how in (train, lambda runner: train_in(foreign_loop, runner)):
        recorder, model = Recorder(), toy_model()
        optim = Optim(torch.optim.AdamW(model.parameters(), lr=0.1), clip_norm=0.5)
        runner = how(toy_runner(model=model, optim=optim, custom_hooks=[recorder, SkipsAt(point)]))
        found.append((runner.iter, runner.updates, recorder.events, state_digest(runner)))
    assert found[0] == found[1]
    assert found[0][:2] == (8, 6)


def test_a_hook_may_replace_the_loss() -> None:
    def halve(runner: Runner, outputs: dict[str, Any]) -> None:
        outputs["loss"] = outputs["loss"] / 2

    runners = [toy_runner(), toy_runner()]
    for runner in runners:
        runner.on("before_backward")(halve)
    train_in(foreign_loop, runners[0])
    assert state_digest(runners[0]) == state_digest(train(runners[1]))


# ------------------------------------------------------------------------------------------ stops, failures, resumes


def test_a_stop_ends_the_loop_after_the_same_iteration() -> None:
    runners = [toy_runner(max_epochs=3), toy_runner(max_epochs=3)]
    for runner in runners:

        @runner.on("after_train_iter", every=6)
        def stop(runner: Runner) -> None:
            runner.stop("enough")

    train_in(foreign_loop, runners[0])
    train(runners[1])
    assert runners[0].position == runners[1].position
    assert (runners[0].iter, runners[0].stopped.reason) == (6, "enough")


def test_a_signal_ends_the_loop_with_a_checkpoint_and_a_resumed_run_of_ours_equals_an_uninterrupted_one() -> None:
    broken = build_runner("EMAHook", "run", optim={"accumulate": 1})

    @broken.on("after_train_iter", every=7)
    def send(runner: Runner) -> None:
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit):
        train_in(foreign_loop, broken)
    assert (Path("run") / "iter_7.pth").is_file()
    resumed = build_runner("EMAHook", "run", optim={"accumulate": 1}, resume=True)
    train_in(foreign_loop, resumed)
    assert resumed._host.start.contract.resumption is not None
    whole = train(build_runner("EMAHook", "whole/run", optim={"accumulate": 1}))
    assert state_digest(resumed) == state_digest(whole)
    assert records("run") == records("whole/run")


def test_a_failure_names_the_iteration_and_closes_all_scopes() -> None:
    recorder = Recorder()

    def fails(training: Training, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        with training.driving(), training.one_pass() as batches:
            for batch, last in batches:
                with training.iteration(batch, last) as batch:
                    assert training.take_loss(loss_of(model, batch)) is not None
                    raise RuntimeError("out of luck")

    runner = toy_runner(custom_hooks=[recorder])
    with pytest.raises(RuntimeError, match="out of luck") as failed:
        train_in(fails, runner)
    assert failed.value.__notes__ == ["in the step, epoch=0 iter=0 rank=0"]
    left = [name.split()[1] for name in recorder.names if name.startswith("fail")]
    assert left == ["backward", "train_iter", "train_epoch", "train", "run"]
    train_in(foreign_loop, runner)
    assert runner.iter == 8


def test_a_loss_that_is_not_finite_is_skipped() -> None:
    data: Any = toy_data()
    data[1] = (data[1][0] * float("nan"), data[1][1])
    found = []
    for how in (train, lambda runner: train_in(foreign_loop, runner)):
        runner = toy_runner(custom_hooks=[CheckInvalidLossHook(policy="skip")])
        runner.train_loop.dataloader = data
        how(runner)
        found.append((runner.iter, runner.updates, state_digest(runner)))
    assert found[0] == found[1]
    assert found[0][:2] == (8, 6)


def test_a_loss_that_is_not_finite_ends_a_run_without_that_hook() -> None:
    data: Any = toy_data()
    data[1] = (data[1][0] * float("nan"), data[1][1])
    runner = toy_runner(default_hooks={"logger": None})
    runner.train_loop.dataloader = data
    with pytest.raises(NumericsError, match="the loss has become nan at iteration 2"):
        train_in(foreign_loop, runner)
