"""A loop that the user writes: the same points, bits and files as a Runner with the same step."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, TensorDataset

import hookline
from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop
from hookline.checkpoint import store
from hookline.engine.steps import cross_entropy
from hookline.errors import ConfigError, HookError, HooklineError, NumericsError
from hookline.hooks import CheckInvalidLossHook, EarlyStoppingHook, EMAHook, GradClipHook
from hookline.integrations.own_loop import Session
from hookline.testing import MemoryWriter, Recorder, toy_data, toy_model, toy_runner
from tests.contract.test_hooks import (
    BATCHES,
    EPOCHS,
    NAMES,
    _in_a_folder_with_a_module,
    build_runner,
    records,
    state_digest,
)
from tests.engine.test_foreign_loop import SkipsAt, assert_same, train
from tests.faults.runs import digest

__all__ = ["_in_a_folder_with_a_module"]  # a fixture that every test here uses


def flat(runner: Runner) -> Runner:
    """Train with a loop of the user, over all batches."""
    with Session(runner) as run:
        for batch in run:
            run.step(cross_entropy(run.model, batch))
    return runner


def by_epochs(runner: Runner) -> Runner:
    """Train with a loop of the user that has room between epochs."""
    with Session(runner) as run:
        for epoch in run.epochs():
            for batch in epoch:
                run.step(cross_entropy(run.model, batch))
    return runner


def toy_session(model: nn.Module | None = None, **options: Any) -> Session:
    model = model or toy_model()
    optimizer = options.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=0.1)
    loader = options.pop("loader", None) or toy_data()
    given: dict[str, Any] = {"device": "cpu", "quiet": True, "work_dir": "run", **options}
    if "max_iters" not in given:
        given.setdefault("max_epochs", 2)
    return hookline.session(model, optimizer, loader, **given)


def validation() -> EvalLoop:
    return EvalLoop(toy_data(2, seed=1), loss=cross_entropy)


def use(session: Session, body: Callable[[Session], None]) -> None:
    with session as run:
        body(run)


def loss_of(run: Session, batch: Any) -> Tensor:
    return cross_entropy(run.model, batch)


# ------------------------------------------------------------------------------------------------- all built-in hooks


@pytest.mark.parametrize("way", ["by epochs", "by iterations", "fp16, background saves"])
@pytest.mark.parametrize("name", NAMES)
def test_a_hook_records_and_saves_the_same_as_in_a_runner(name: str, way: str) -> None:
    theirs = flat(build_runner(name, "theirs/run", way=way))
    ours = train(build_runner(name, "ours/run", way=way))
    assert ours.iter == EPOCHS * BATCHES
    assert_same(theirs, ours)


@pytest.mark.parametrize("loop", [flat, by_epochs])
@pytest.mark.parametrize("length", [{"max_epochs": 2}, {"max_iters": 6}, {"max_iters": 8}])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_points_scopes_and_bits_are_those_of_a_runner(
    loop: Callable[[Runner], Runner], length: dict[str, Any], accumulate: int
) -> None:
    found = []
    for how in (loop, train):
        recorder = Recorder()
        runner = how(toy_runner(custom_hooks=[recorder, EMAHook()], accumulate=accumulate, **length))
        found.append((recorder.events, state_digest(runner)))
    assert found[0] == found[1]


def test_the_example_of_the_docs_has_the_bits_of_a_runner() -> None:
    def build() -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any]]:
        torch.manual_seed(7)
        model = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.3), nn.Linear(16, 2))
        data = TensorDataset(torch.randn(40, 4), torch.randint(2, (40,)))
        return model, torch.optim.AdamW(model.parameters(), lr=0.01), DataLoader(data, batch_size=8, shuffle=True)

    model, optimizer, loader = build()
    schedulers = [StepLR(optimizer, 2)]
    with hookline.session(
        *(model, optimizer, loader),
        max_epochs=3,
        schedulers=schedulers,
        clip_norm=0.5,
        work_dir="mine/run",
        hooks=[EMAHook()],
        val=validation(),
        quiet=True,
    ) as run:
        for batch in run:
            run.step(nn.functional.cross_entropy(model(batch[0]), batch[1]))
    ours, optimizer, loader = build()
    optim = Optim(optimizer, [StepLR(optimizer, 2)], clip_norm=0.5)
    runner = Runner(
        ours,
        train=TrainLoop(loader, cross_entropy, max_epochs=3),
        val=validation(),
        optim=optim,
        custom_hooks=[EMAHook()],
        work_dir="ours/run",
        quiet=True,
    )
    runner.train()
    assert_same(run.runner, runner)


@pytest.mark.parametrize("point", ["before_train_iter", "before_backward", "after_backward", "before_optimizer_step"])
def test_a_batch_that_a_hook_skips_is_skipped_as_in_a_runner(point: str) -> None:
    found = []
    for how in (flat, train):
        recorder = Recorder()
        runner = how(toy_runner(custom_hooks=[recorder, SkipsAt(point)], accumulate=2))
        found.append((runner.iter, runner.updates, recorder.events, state_digest(runner)))
    assert found[0] == found[1]


def test_a_step_takes_all_that_a_step_of_a_runner_may_return() -> None:
    memory = MemoryWriter()
    with toy_session(writers=[memory], default_hooks={"logger": {"interval": 1}}, max_epochs=1) as run:
        for number, batch in enumerate(run):
            loss = loss_of(run, batch)
            run.log({"train/number": float(number)})
            run.step([loss, {"loss": loss, "margin": 0.5}, (batch, loss), {"a_loss": loss, "b_loss": loss}][number])
    steps = [record for record in memory.records if "train/loss" in record]
    assert [record["train/number"] for record in steps] == [0.0, 1.0, 2.0, 3.0]
    assert steps[1]["train/margin"] == 0.5
    assert steps[3]["train/loss"] == pytest.approx(2 * steps[3]["train/a_loss"])


def test_a_skipped_batch_changes_nothing_and_is_counted() -> None:
    recorder, model = Recorder("after_train_iter", "after_optimizer_step"), toy_model()
    with toy_session(model, hooks=[recorder], max_epochs=1) as run:
        for number, batch in enumerate(run):
            if number == 1:
                before = [parameter.clone() for parameter in model.parameters()]
                run.skip("too long")
                assert all(map(torch.equal, before, model.parameters()))
            else:
                run.step(loss_of(run, batch))
    assert [event[::2] for event in recorder.events if event.name == "after_train_iter"] == [
        ("after_train_iter", 0),
        ("after_train_iter", 2),
        ("after_train_iter", 3),
    ]
    assert (run.runner.iter, run.runner.updates) == (4, 3)


# ------------------------------------------------------------------------------------------------ own steps, two optims


def own_steps(runner: Runner, every: int = 1) -> Runner:
    """Train with a loop that makes its own backward passes and steps."""
    optimizer = runner.optims.sole.optimizer
    with Session(runner) as run:
        for epoch in run.epochs():
            for number, batch in enumerate(epoch):
                loss = cross_entropy(run.model, batch)
                last = number == BATCHES - 1
                (loss if last else loss / every).backward()  # type: ignore[no-untyped-call]  # torch has no annotations
                if last or number % every == every - 1:
                    optimizer.step()
                    optimizer.zero_grad()
                run.stepped(loss)
    return runner


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("name", ["EMAHook", "GradNormHook", "GradClipHook", "LoggerHook", "CheckpointHook"])
def test_a_loop_that_steps_its_optimizer_itself_gets_everything_but_the_update(name: str, every: int) -> None:
    theirs = own_steps(build_runner(name, "theirs/run", optim={"accumulate": 1}), every)
    ours = train(build_runner(name, "ours/run", optim={"accumulate": every}))
    assert theirs.updates == ours.updates == EPOCHS * (BATCHES // every + (every > 1))
    assert records("theirs/run") == records("ours/run")
    found = [store.read(Path(folder) / "run" / "iter_15.pth", sealed=True) for folder in ("theirs", "ours")]
    for part in ("state_dict", "optimizer", "hooks", "position", "rng"):
        assert state_digest_of(found[0], part) == state_digest_of(found[1], part), part


def state_digest_of(checkpoint: dict[str, Any], part: str) -> str:
    return digest({part: checkpoint[part]})


def test_a_save_waits_until_a_loop_that_accumulates_itself_has_stepped() -> None:
    saved: list[int] = []

    class Notes(Hook):
        def before_save_checkpoint(self, runner: Runner) -> None:
            saved.append(runner.iter)

    runner = build_runner("LoggerHook", optim={"accumulate": 1}, default_hooks={"checkpoint": {"interval": 1}})
    runner.register_hook(Notes())
    own_steps(runner, 2)
    assert saved == [2, 4, 5, 7, 9, 10, 12, 14, 15]


class Pair(nn.Module):
    """Two nets with an optimizer each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = toy_model(), toy_model(1)


def update_both(model: Any, batch: Any, optim: Any) -> dict[str, Tensor]:
    first = cross_entropy(model.first, batch)
    optim["first"].update(first)
    second = cross_entropy(model.second, batch)
    optim["second"].update(second)
    return {"first_loss": first.detach(), "second_loss": second.detach()}


def test_several_optimizers_are_stepped_by_name_with_the_bits_of_a_runner() -> None:
    def optims(model: Any) -> dict[str, Any]:
        return {
            "first": Optim(torch.optim.SGD(model.first.parameters(), lr=0.1), accumulate=2),
            "second": torch.optim.Adam(model.second.parameters(), lr=0.01),
        }

    def loss_of_first(model: Any, batch: Any) -> Tensor:
        return cross_entropy(model.first, batch)

    options: dict[str, Any] = {
        "default_hooks": {"logger": {"interval": 1}},
        "val": EvalLoop(toy_data(2, seed=1), loss=loss_of_first),
    }
    theirs = Pair()
    with toy_session(theirs, optimizer=optims(theirs), work_dir="theirs/run", **options) as run:
        for batch in run:
            run.step(cross_entropy(theirs.first, batch), optim="first")
            run.step(cross_entropy(theirs.second, batch), optim="second")
    ours = Pair()
    runner = Runner(
        ours,
        train=TrainLoop(toy_data(), update_both, max_epochs=2),
        optim=optims(ours),
        work_dir="ours/run",
        quiet=True,
        device="cpu",
        **options,
    )
    runner.train()
    assert_same(run.runner, runner)


# --------------------------------------------------------------------------------------------------- own validations


def validating(model: nn.Module, inside: bool, **options: Any) -> tuple[Session, list[float]]:
    """Train with a loop that validates itself after every epoch."""
    found = []
    with toy_session(model, **options) as run:
        for epoch in run.epochs():
            for batch in epoch:
                run.step(loss_of(run, batch))
            with run.evaluating() as evaluated:
                assert not model.training
                assert not torch.is_grad_enabled()
                found.append(float(sum(parameter.abs().sum() for parameter in evaluated.parameters())))
                torch.rand(1)
                if inside:
                    run.report({"size": found[-1]})
            if not inside:
                run.report({"size": found[-1]})
    return run, found


@pytest.mark.parametrize("inside", [True, False])
def test_reported_metrics_are_recorded_and_choose_the_best_checkpoint(inside: bool) -> None:
    best = {"save_best": "size", "rule": "less"}
    run, found = validating(toy_model(), inside, max_epochs=3, default_hooks={"checkpoint": best})
    reported = [
        record["val/size"]
        for record in map(json.loads, Path("run/metrics.jsonl").read_text().splitlines())
        if "val/size" in record
    ]
    assert reported == pytest.approx(found)
    number = found.index(min(found)) + 1
    assert sorted(path.name for path in Path("run").glob("*.pth")) == sorted(
        [f"best_size_epoch_{number}.pth", "epoch_1.pth", "epoch_2.pth", "epoch_3.pth"]
    )
    assert run.runner.validations == 3


def test_averaged_weights_are_evaluated_and_the_raw_ones_are_back_afterwards() -> None:
    model, ema = toy_model(), EMAHook(momentum=0.5)
    _, with_average = validating(model, True, hooks=[ema])
    _, without = validating(toy_model(), True, work_dir="raw")
    assert with_average != without
    with toy_session(toy_model(), hooks=[EMAHook(momentum=0.5)], work_dir="other", max_epochs=1) as run:
        for epoch in run.epochs():
            for batch in epoch:
                run.step(loss_of(run, batch))
            before = run.model[0].weight.clone()  # type: ignore[index]  # it is a Sequential
            with run.evaluating() as evaluated:
                assert not torch.equal(evaluated[0].weight, before)
            assert torch.equal(run.model[0].weight, before)  # type: ignore[index]


def test_reports_stop_early_and_step_a_plateau_schedule() -> None:
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedulers = [(ReduceLROnPlateau(optimizer, patience=0), "val", "score")]
    rates = []
    hooks = [EarlyStoppingHook("score", rule="greater", patience=3)]
    with toy_session(model, optimizer=optimizer, schedulers=schedulers, hooks=hooks, max_epochs=9) as run:
        for epoch in run.epochs():
            for batch in epoch:
                run.step(loss_of(run, batch))
            run.report({"score": 1.0})
            rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.1, 0.01, 0.001, 0.0001])
    assert run.runner.stopped.by == "EarlyStoppingHook"
    assert run.runner.epoch == 4


def test_the_points_of_a_validation_surround_the_users_evaluation() -> None:
    names = ("before_val", "before_val_epoch", "after_val_epoch", "after_val", "val", "val_epoch")
    for inside in (True, False):
        recorder = Recorder(*names)
        validating(toy_model(), inside, hooks=[recorder], max_epochs=1, work_dir=f"run-{inside}")
        whole = ["enter val", "before_val", "enter val_epoch", "before_val_epoch"]
        after = ["after_val_epoch", "leave val_epoch", "after_val", "leave val"]
        late = ["leave val_epoch", "leave val", "after_val_epoch", "after_val"]
        assert recorder.names == whole + (after if inside else late)
        assert {event[1:] for event in recorder.events} == {(1, 4)}


def test_a_validation_inside_the_loop_counts_the_step_before_it() -> None:
    recorder = Recorder("after_val_epoch", "after_train_iter")
    with toy_session(hooks=[recorder], max_iters=6) as run:
        for batch in run:
            run.step(loss_of(run, batch))
            if run.runner.iter in (1, 3):
                run.report({"score": 1.0})
    assert [(event.name, event.epoch, event.iter) for event in recorder.events if event.name == "after_val_epoch"] == [
        ("after_val_epoch", 0, 2),
        ("after_val_epoch", 1, 4),
    ]
    assert (run.runner.iter, run.runner.position.validated_at) == (6, 4)


def test_an_evaluation_that_is_never_reported_is_a_validation_without_metrics() -> None:
    recorder = Recorder("after_val_epoch")
    with toy_session(hooks=[recorder], max_epochs=1) as run:
        for epoch in run.epochs():
            for batch in epoch:
                run.step(loss_of(run, batch))
            with run.evaluating():
                pass
    assert recorder.arguments == [{"metrics": {}}]


def test_a_metric_that_is_never_reported_is_named() -> None:
    with toy_session(default_hooks={"checkpoint": {"save_best": "score", "rule": "greater"}}, max_epochs=1) as run:
        for batch in run:
            run.step(loss_of(run, batch))
    assert "CheckpointHook needs the metric 'score', but run.report({'score': ...}) was never called" in (
        Path("run/run.log").read_text()
    )


def test_a_report_after_the_loop_is_recorded_and_saves_a_best_checkpoint() -> None:
    with toy_session(default_hooks={"checkpoint": {"save_best": "score", "rule": "greater"}}, max_epochs=1) as run:
        for batch in run:
            run.step(loss_of(run, batch))
        with run.evaluating():
            run.report({"score": 2.0})
    assert sorted(path.name for path in Path("run").glob("*.pth")) == ["best_score_epoch_1.pth", "epoch_1.pth"]


# ------------------------------------------------------------------------------------------------------ ends of a loop


def digests_of(runner: Runner, left_out: list[str]) -> list[str]:
    return [each for each in state_digest(runner).split(",") if each.partition("=")[0] not in left_out]


def names_in(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).glob("*.pth"))


@pytest.mark.parametrize("stepped", [True, False])
def test_a_break_ends_training_for_now_with_a_checkpoint_that_continues(stepped: bool) -> None:
    def train_until(limit: int | None, folder: str) -> Session:
        with toy_session(work_dir=folder, resume=True, accumulate=2, max_epochs=3, hooks=[EMAHook()]) as run:
            for batch in run:
                if run.runner.iter == limit and not stepped:
                    break
                run.step(loss_of(run, batch))
                if stepped and limit is not None and run.runner.iter == limit - 1:
                    break
        return run

    left = train_until(6, "left")
    assert (left.runner.iter, left.runner.stopped.reason, left.runner.stopped.for_now) == (6, "the loop was left", True)
    assert names_in("left") == ["epoch_1.pth", "iter_6.pth"]
    resumed, whole = train_until(None, "left"), train_until(None, "whole")
    assert resumed.runner.iter == 12
    left_out = [] if stepped else ["message_hub"]  # the rate of a batch is recorded when it begins, so here twice
    assert digests_of(resumed.runner, left_out) == digests_of(whole.runner, left_out)


def test_a_break_inside_a_window_updates_with_the_batches_of_the_window() -> None:
    with toy_session(accumulate=4) as run:
        for batch in run:
            run.step(loss_of(run, batch))
            if run.runner.iter == 1:
                break
    assert (run.runner.iter, run.runner.updates, run.runner.accumulating) == (2, 1, False)


def test_a_return_out_of_the_loop_is_a_break() -> None:
    def loop() -> Session:
        with toy_session() as run:
            for epoch in run.epochs():
                for batch in epoch:
                    run.step(loss_of(run, batch))
                return run
        raise AssertionError

    run = loop()
    assert (run.runner.epoch, run.runner.iter) == (1, 4)
    assert names_in("run") == ["epoch_1.pth"]


def test_an_error_in_the_body_is_seen_by_hooks_and_names_the_iteration() -> None:
    def fail(run: Session) -> None:
        for _ in run:
            raise RuntimeError("out of luck")

    recorder = Recorder()
    with pytest.raises(RuntimeError, match="out of luck") as failed:
        use(toy_session(hooks=[recorder]), fail)
    assert failed.value.__notes__ == ["in the step, epoch=0 iter=0 rank=0"]
    left = [name.split()[1] for name in recorder.names if name.startswith("fail")]
    assert left == ["forward", "train_iter", "train_epoch", "train", "run"]
    assert "on_exception" in recorder.names
    assert "out of luck" in Path("run/run.log").read_text()


def test_a_stop_iteration_of_the_body_leaves_the_session_unchanged() -> None:
    def fail(run: Session) -> None:
        for _ in run:
            raise StopIteration("mine")

    with pytest.raises(StopIteration, match="mine"):
        use(toy_session(), fail)


def test_an_error_of_a_step_that_the_body_catches_still_ends_the_run() -> None:
    class Fails(Hook):
        def after_train_iter(self, runner: Runner) -> None:
            raise ValueError("a hook fails")

    calls = []

    def catch(run: Session) -> None:
        for batch in run:
            calls.append(run.runner.iter)
            with suppress(ValueError):
                run.step(loss_of(run, batch))

    with pytest.raises(ValueError, match="a hook fails"):
        use(toy_session(hooks=[Fails()]), catch)
    assert calls == [0]


def test_an_error_that_the_code_catches_before_it_leaves_the_loop_is_raised_at_the_end() -> None:
    def fail(runner: Runner) -> None:
        raise HookError("no")

    def catch(run: Session) -> None:
        for batch in run:
            with suppress(HookError):
                run.step(loss_of(run, batch))
            break

    session = toy_session()
    session.runner.on("before_backward")(fail)
    with pytest.raises(HookError, match="no"):
        use(session, catch)


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_ends_the_loop_with_a_checkpoint_and_its_exit_code(
    number: signal.Signals, error: type[BaseException]
) -> None:
    def train_once(send: bool, folder: str) -> Session:
        with toy_session(work_dir=folder, resume=True, max_epochs=3, hooks=[EMAHook()]) as run:
            for batch in run:
                if send and run.runner.iter == 5:
                    os.kill(os.getpid(), number)
                run.step(loss_of(run, batch))
        return run

    with pytest.raises(error):
        train_once(True, "run")
    assert names_in("run") == ["epoch_1.pth", "iter_6.pth"]
    assert state_digest(train_once(False, "run").runner) == state_digest(train_once(False, "whole").runner)


@pytest.mark.parametrize("by_hook", [True, False])
def test_after_a_stop_the_iteration_simply_ends(by_hook: bool) -> None:
    session = toy_session(max_epochs=5)
    if by_hook:
        session.runner.on("after_train_iter", every=6)(lambda runner: runner.stop("enough"))
    with session as run:
        for batch in run:
            run.step(loss_of(run, batch))
            if not by_hook and run.runner.iter == 5:
                run.stop("enough")
    assert (run.runner.iter, run.runner.stopped.reason) == (6, "enough")
    assert names_in("run") == ["epoch_1.pth", "iter_6.pth"]


def test_a_run_that_is_over_has_no_batches_when_it_is_resumed() -> None:
    flat(toy_runner(work_dir="run"))
    with Session(toy_runner(work_dir="run", resume=True)) as run:
        assert [0 for _ in run] == []


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    data: Any = toy_data()
    data[1] = (data[1][0] * float("nan"), data[1][1])
    with pytest.raises(NumericsError, match="the loss has become nan at iteration 2"):
        use(toy_session(loader=data), stepping)


def test_code_after_an_epoch_runs_again_if_the_run_was_killed_in_it() -> None:
    """The checkpoint of an epoch is written before the code after it."""
    seen: list[tuple[str, int]] = []

    def train_once(die: bool) -> Session:
        with toy_session(resume=True, default_hooks={"checkpoint": {"save_best": "score", "rule": "greater"}}) as run:
            for epoch in run.epochs():
                for batch in epoch:
                    seen.append(("batch", run.runner.iter))
                    run.step(loss_of(run, batch))
                seen.append(("after", epoch.number))
                if die:
                    raise SystemError("as if it were killed")
                run.report({"score": float(torch.rand(1))})
        return run

    with pytest.raises(SystemError):
        train_once(die=True)
    assert seen == [("batch", 0), ("batch", 1), ("batch", 2), ("batch", 3), ("after", 0)]
    seen.clear()
    resumed = train_once(die=False)
    assert seen == [("after", 0), ("batch", 4), ("batch", 5), ("batch", 6), ("batch", 7), ("after", 1)]
    seen.clear()
    with toy_session(work_dir="whole", default_hooks={"checkpoint": {"save_best": "score", "rule": "greater"}}) as run:
        for epoch in run.epochs():
            for batch in epoch:
                run.step(loss_of(run, batch))
            run.report({"score": float(torch.rand(1))})
    assert state_digest(resumed.runner) == state_digest(run.runner)
    assert records("run") == records("whole")


# ---------------------------------------------------------------------------------------------------------- bad input


def stepping(run: Session) -> None:
    for batch in run:
        run.step(loss_of(run, batch))


def stepping_outside(run: Session) -> None:
    run.step(torch.zeros(()))


def stepping_twice(run: Session) -> None:
    for batch in run:
        run.step(loss_of(run, batch))
        run.step(loss_of(run, batch))


def not_stepping(run: Session) -> None:
    for _ in run:
        pass


def stepping_a_constant(run: Session) -> None:
    for _ in run:
        run.step(torch.zeros(()))


def evaluating_before_the_step(run: Session) -> None:
    for _ in run:
        with run.evaluating():
            pass


def reporting_before_the_step(run: Session) -> None:
    for _ in run:
        run.report({"score": 1.0})


def reporting_a_number(run: Session) -> None:
    run.report(0.5)  # type: ignore[arg-type]  # on purpose


def evaluating_inside(run: Session) -> None:
    with run.evaluating(), run.evaluating():
        pass


def leaving_one_epoch(run: Session) -> None:
    for epoch in run.epochs():
        for batch in epoch:
            run.step(loss_of(run, batch))
            break


def stepping_both_ways(run: Session) -> None:
    optimizer = run.runner.optims.sole.optimizer
    for batch in run:
        loss = loss_of(run, batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
        optimizer.step()
        run.step(loss)


def changing_the_way(run: Session) -> None:
    for number, batch in enumerate(run):
        (run.stepped if number else run.step)(loss_of(run, batch))


def naming_an_optim(run: Session) -> None:
    for batch in run:
        run.step(loss_of(run, batch), optim="critic")


def opening_another(run: Session) -> None:
    with toy_session(work_dir="other"):
        pass


def epochs_inside(run: Session) -> None:
    for _ in run:
        for _ in run.epochs():
            pass


def two_values(run: Session) -> None:
    for batch in run:
        run.step((loss_of(run, batch), torch.zeros(())))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (stepping_outside, "run.step was called before the first batch; call it in the body of the loop: "),
        (stepping_twice, "run.step(loss) was called a second time for one batch; add up the losses, and call it once"),
        (
            not_stepping,
            "the body of the loop ended without run.step(loss); call it once per batch, or run.skip",
        ),
        (stepping_a_constant, "the loss has no gradient: it was detached"),
        (evaluating_before_the_step, "run.evaluating() was called before run.step(loss) of the current batch; "),
        (reporting_before_the_step, "run.report() was called before run.step(loss) of the current batch; "),
        (reporting_a_number, "run.report() needs a dict of metrics by name, not a float"),
        (evaluating_inside, "run.evaluating() was called inside run.evaluating(); use one of them"),
        (leaving_one_epoch, "the loop over epoch 0 was left before its end, and then continued with the next epoch; "),
        (
            stepping_both_ways,
            "the body of the loop has stepped the optimizer itself, and run.step(loss) would step ",
        ),
        (changing_the_way, "this loop has called run.step(loss) before; use either run.step or run.stepped in it"),
        (naming_an_optim, "unknown optim 'critic': this run has one optim, without a name"),
        (opening_another, "a session is already open in this process (run); two of them would use the same random "),
        (epochs_inside, "run.epochs() was called inside the loop; it is the loop: for epoch in run.epochs()"),
        (two_values, "the step returned a pair of two single numbers, but only one of them can be the loss"),
    ],
)
def test_a_wrong_call_is_refused_with_what_to_write(body: Callable[[Session], None], message: str) -> None:
    with pytest.raises(HooklineError) as refused:
        use(toy_session(), body)
    assert message in str(refused.value)
    use(after := toy_session(work_dir="after"), stepping)  # nothing is left open
    assert after.runner.iter == 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_epochs": None}, "session() needs either max_epochs or max_iters"),
        ({"max_iters": 3, "max_epochs": 1}, "session() needs either max_epochs or max_iters"),
        ({"work_dirs": "x"}, "session() has no parameter 'work_dirs'; did you mean 'work_dir'?"),
        ({"custom_hooks": []}, "session() has no parameter 'custom_hooks'; pass hooks instead"),
        ({"loader": iter(DataLoader(TensorDataset(torch.zeros(4, 4))))}, "is an iterator that was already started"),
        ({"loader": iter([1, 2])}, "is an iterator that was already started"),
        ({"optimizer": "SGD"}, "optim must be an Optim, a torch optimizer, or a dict of them, not 'SGD'"),
    ],
)
def test_wrong_parameters_are_refused_before_anything_is_written(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        toy_session(**options)
    assert message in str(refused.value)
    assert not Path("run").exists()


def test_hooks_and_precisions_that_a_loop_with_its_own_backward_pass_does_not_reach_are_refused() -> None:
    def steps_itself(run: Session) -> None:
        for batch in run:
            loss = loss_of(run, batch)
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
            run.runner.optims.sole.optimizer.step()
            run.stepped(loss)

    hook = CheckInvalidLossHook(policy="skip")
    with pytest.raises(HooklineError, match="CheckInvalidLossHook works at before_backward"):
        use(toy_session(hooks=[hook]), steps_itself)
    with pytest.raises(HooklineError, match="precision='fp16' scales the loss in run.step"):
        use(toy_session(precision="fp16", work_dir="fp16"), steps_itself)


def test_a_folder_that_is_used_by_another_run_is_refused() -> None:
    runner = toy_runner(work_dir="run")

    @runner.on("after_train_iter")
    def open_session(runner: Runner) -> None:
        with toy_session():
            pass

    with pytest.raises(HooklineError, match="run is in use"):
        runner.train()


def test_a_session_is_used_once_and_entered_first() -> None:
    run = toy_session()
    with pytest.raises(HooklineError, match="the session was not entered; write: with hookline.session"):
        next(iter(run))
    with run:
        for batch in run:
            run.step(loss_of(run, batch))
    with pytest.raises(HooklineError, match="this session was already used; create a new one"), run:
        pass


def test_the_runner_of_a_session_has_no_loop_of_its_own() -> None:
    with pytest.raises(HooklineError, match="this Runner belongs to a session, whose step is the body of your loop"):
        toy_session().runner.train()


def test_a_compiled_model_has_to_be_called_through_the_session() -> None:
    model, ours, plain = toy_model(), toy_model(), toy_model()

    def calling_the_model(run: Session) -> None:
        for batch in run:
            run.step(cross_entropy(model, batch))

    compiled = {"backend": "eager"}
    with pytest.raises(HooklineError, match="did not call run.model; call it, not your model, because it is the comp"):
        use(toy_session(model, compile=compiled), calling_the_model)
    use(toy_session(ours, compile=compiled, work_dir="compiled"), stepping)
    use(toy_session(plain, work_dir="plain"), stepping)
    assert all(map(torch.equal, ours.parameters(), plain.parameters()))


def test_clipping_by_a_hook_works_in_a_session() -> None:
    found = []
    for how in (flat, train):
        runner = how(toy_runner(custom_hooks=[GradClipHook(max_norm=0.01)]))
        found.append(state_digest(runner))
    assert found[0] == found[1]


def test_a_stream_without_a_length_works() -> None:
    def stream() -> Iterator[Any]:
        while True:
            yield from toy_data()

    with toy_session(loader=stream(), max_iters=6) as run:
        for batch in run:
            run.step(loss_of(run, batch))
    assert run.runner.iter == 6
