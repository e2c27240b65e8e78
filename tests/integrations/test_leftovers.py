"""Mistakes in the body of a session that would train in another way, or not at all, are refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR

from hookline.engine.steps import cross_entropy
from hookline.errors import ConfigError, HooklineError
from hookline.hooks import EMAHook
from hookline.integrations import open_session
from hookline.testing import toy_data, toy_model
from tests.contract.test_hooks import _in_a_folder_with_a_module
from tests.integrations.test_session import loss_of, stepping, toy_session, use

if TYPE_CHECKING:
    from hookline.integrations.own_loop import Session

__all__ = ["_in_a_folder_with_a_module"]  # a fixture that every test here uses


def optimizer_of(run: Session) -> Any:
    return run.runner.optim.optimizer


def another_model(run: Session) -> None:
    other = toy_model()
    for batch in run:
        run.step(cross_entropy(other, batch))


def no_update(run: Session) -> None:
    for batch in run:
        run.stepped(loss_of(run, batch))


def looping_over_all_in_an_epoch(run: Session) -> None:
    for _ in run.epochs():
        for batch in run:
            run.step(loss_of(run, batch))


def stepping_after_a_failed_step(run: Session) -> None:
    for batch in run:
        try:
            run.step(loss_of(run, batch).detach())
        except HooklineError:
            run.step(loss_of(run, batch))


def no_step(run: Session) -> None:
    for batch in run:
        loss = loss_of(run, batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
        run.stepped(loss)


def zeroing(run: Session) -> None:
    for batch in run:
        optimizer_of(run).zero_grad()
        run.step(loss_of(run, batch))


def going_back(run: Session) -> None:
    for batch in run:
        loss = loss_of(run, batch)
        loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]  # torch has no annotations here
        run.step(loss)


def scheduling_in_the_body(run: Session) -> None:
    for batch in run:
        run.step(loss_of(run, batch))
        run.runner.optim.schedulers[0].scheduler.step()


def scheduling_between_epochs(run: Session) -> None:
    for epoch in run.epochs():
        for batch in epoch:
            run.step(loss_of(run, batch))
        run.runner.optim.schedulers[0].scheduler.step()


def looping_twice(run: Session) -> None:
    for _ in range(2):
        stepping(run)


def using_an_epoch_twice(run: Session) -> None:
    for epoch in run.epochs():
        for _ in range(2):
            for batch in epoch:
                run.step(loss_of(run, batch))


def never_looping(run: Session) -> None:
    pass


def logging_the_loss(run: Session) -> None:
    for _ in run:
        run.log({"train/loss": 1.0})


def skipping_twice(run: Session) -> None:
    for _ in run:
        run.skip("")
        run.skip("")


def stepping_a_skipped_batch(run: Session) -> None:
    for batch in run:
        run.skip("")
        run.step(loss_of(run, batch))


def skipping_a_stepped_batch(run: Session) -> None:
    for batch in run:
        run.step(loss_of(run, batch))
        run.skip("")


def stepping_after_own_steps(run: Session) -> None:
    for number, batch in enumerate(run):
        loss = loss_of(run, batch)
        if number:
            run.step(loss)
            continue
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
        optimizer_of(run).step()
        run.stepped(loss)


@pytest.mark.parametrize(
    ("body", "options", "message"),
    [
        (another_model, {}, "after the first backward pass, no parameter of the optimizer has a gradient, so nothing "),
        (
            no_update,
            {},
            "run.stepped(loss) was called, but no parameter of the optimizer was stepped since the session",
        ),
        (no_step, {}, "run.stepped(loss) was called, but no parameter of the optimizer was stepped since the "),
        (no_step, {"accumulate": 2}, "accumulate has no effect in a loop that steps its optimizer itself; leave it "),
        (zeroing, {"accumulate": 3}, "the body of the loop has dropped the gradients of an open accumulation window"),
        (going_back, {}, "the body of the loop has called backward() itself, and run.step(loss) would add its "),
        (looping_twice, {}, "the loop over the batches is over: `for batch in run` has the batches of all epochs"),
        (using_an_epoch_twice, {}, "the batches of epoch 0 are used up; write one loop over them: for batch in epoch"),
        (looping_over_all_in_an_epoch, {}, "inside `for epoch in run.epochs()`, write: for batch in epoch, not: for "),
        (stepping_after_a_failed_step, {}, "the loss has no gradient: it was detached (.item(), .detach(), no_grad)"),
        (never_looping, {}, "the loop over the batches never began, so nothing was trained: for batch in run"),
        (logging_the_loss, {}, "run.log() cannot record 'train/loss': every step records it; use another name"),
        (skipping_twice, {}, "run.skip(reason) was called a second time for one batch"),
        (stepping_a_skipped_batch, {}, "run.step() was called after run.skip() of the same batch; call one of them"),
        (skipping_a_stepped_batch, {}, "run.skip() was called after run.step() of the same batch; call one of them"),
        (stepping_after_own_steps, {}, "this loop has called run.stepped(loss) before; use run.step or run.stepped"),
    ],
)
def test_a_mistake_is_refused_with_what_to_write(
    body: Callable[[Session], None], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(HooklineError) as refused:
        use(toy_session(**options), body)
    assert message in str(refused.value)


@pytest.mark.parametrize("body", [scheduling_in_the_body, scheduling_between_epochs])
def test_a_scheduler_that_the_loop_steps_itself_is_refused(body: Callable[[Session], None]) -> None:
    model = toy_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    session = toy_session(model, optimizer=optimizer, schedulers=[StepLR(optimizer, 5)])
    with pytest.raises(HooklineError, match=r"the loop has called step\(\) of StepLR itself, but a session steps its"):
        use(session, body)


@pytest.mark.parametrize("when", ["iter", "epoch", "step"])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("flat", [True, False])
def test_the_schedules_of_a_session_are_no_leftovers(when: str, accumulate: int, flat: bool) -> None:
    model = toy_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    schedulers = [(StepLR(optimizer, 2), when)]
    with toy_session(model, optimizer=optimizer, schedulers=schedulers, accumulate=accumulate, max_epochs=3) as run:
        if flat:
            stepping(run)
            return
        for epoch in run.epochs():
            for batch in epoch:
                run.step(loss_of(run, batch))
            run.report({"score": 1.0})
    assert run.runner.iter == 12


def test_a_loop_that_zeroes_the_gradients_of_each_step_has_the_same_bits() -> None:
    use(ours := toy_session(), zeroing)
    use(theirs := toy_session(work_dir="theirs"), stepping)
    for name, weight in theirs.runner.model.state_dict().items():
        assert torch.equal(weight, ours.runner.model.state_dict()[name])


def test_a_session_that_nobody_has_closed_is_left_at_the_end_of_the_process() -> None:
    def train() -> Generator[Session, None, None]:
        with toy_session(work_dir="run") as run:
            for batch in run:
                run.step(loss_of(run, batch))
                yield run

    training = train()
    next(training)
    run = next(training)
    open_session.leave()
    assert run.runner.stopped.reason == "the loop was left"
    assert [path.name for path in Path("run").glob("*.pth")] == ["iter_2.pth"]
    assert "the session was still open at the end of the process" in Path("run/run.log").read_text()
    training.close()  # as the interpreter does it after this
    with toy_session(work_dir="next") as run:
        stepping(run)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0.5", "the metric 'score' must be a number, a tensor, or a mapping of names to these, not a str"),
        (None, "the metric 'score' must be a number, a tensor, or a mapping of names to these, not None"),
        ([1.0], "the metric 'score' must be a number, a tensor, or a mapping of names to these, not a list"),
        ({"a": 1}, "the metric 'score' must be a number, a tensor, or a mapping of names to these, not a dict"),
        (10**400, "the metric 'score' must be a number, a tensor, or a mapping of names to these, not an int that no "),
    ],
)
def test_a_reported_metric_that_is_no_number_is_refused(value: Any, message: str) -> None:
    def body(run: Session) -> None:
        for epoch in run.epochs():
            for batch in epoch:
                run.step(loss_of(run, batch))
            run.report({"score": value})

    with pytest.raises(ConfigError) as refused:
        use(toy_session(), body)
    assert message in str(refused.value)
    assert refused.value.__notes__ == ["in the body of the loop, epoch=1 iter=4 rank=0"]


def test_a_reported_tensor_with_one_element_is_a_number() -> None:
    with toy_session(default_hooks={"checkpoint": {"save_best": "score", "rule": "greater"}}) as run:
        for epoch in run.epochs():
            for batch in epoch:
                run.step(loss_of(run, batch))
            run.report({"score": torch.tensor([epoch.number + 0.5])})
    records = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [record["val/score"] for record in records if "val/score" in record] == [0.5, 1.5]


def test_verbs_are_refused_after_the_session() -> None:
    use(run := toy_session(), stepping)
    with pytest.raises(HooklineError, match=r"run.report\(\) was called after the session had ended"):
        run.report({"score": 1.0})
    with pytest.raises(HooklineError, match=r"run.log\(\) was called after the session had ended"):
        run.log({"train/x": 1.0})


def test_the_length_is_the_number_of_batches_that_are_left() -> None:
    with toy_session() as run:
        assert (len(run), bool(run)) == (8, True)
        for number, batch in enumerate(run):
            assert len(run) == 8 - number
            run.step(loss_of(run, batch))
        assert (len(run), bool(run)) == (0, True)


def test_a_session_in_a_generator_that_is_closed_is_left_as_by_a_break() -> None:
    def losses() -> Iterator[float]:
        with toy_session() as run:
            for batch in run:
                loss = loss_of(run, batch)
                run.step(loss)
                yield float(loss.detach())

    training = losses()
    for _ in range(3):
        next(training)
    training.close()  # type: ignore[attr-defined]  # it is a generator
    assert [path.name for path in Path("run").glob("*.pth")] == ["iter_3.pth"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_epoch": 1}, "session() has no parameter 'max_epoch'; did you mean 'max_epochs'?"),
        ({"hooks": EMAHook()}, "hooks must be a list, also with one: [EMAHook()], not a EMAHook"),
        ({"hooks": "EMAHook"}, "hooks must be a list, also with one: [EMAHook()], not 'EMAHook'"),
        ({"hooks": {"type": "EMAHook"}}, "hooks must be a list, also with one: [EMAHook()], not a dict"),
        ({"val": toy_data()}, "val must be an EvalLoop or a dict of them by name, not a "),
        ({"optimizer": [SGD([torch.zeros(1)], 0.1)]}, "a torch optimizer, or a dict of them, not a list"),
        ({"schedulers": StepLR(SGD([torch.zeros(1)], 0.1), 1)}, "schedulers must be a list, also with one: schedulers"),
        ({"schedulers": (StepLR(SGD([torch.zeros(1)], 0.1), 1), "iter")}, "schedulers must be a list, also with one"),
    ],
)
def test_wrong_kinds_of_parameters_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, HooklineError)) as refused:
        toy_session(**options)
    assert message in str(refused.value)


def test_a_generator_that_was_already_started_is_refused() -> None:
    def batches() -> Iterator[Any]:
        yield from toy_data()

    started = batches()
    next(started)
    with pytest.raises(ConfigError, match="is an iterator that was already started"):
        toy_session(loader=started, max_iters=3)
    use(run := toy_session(loader=batches(), max_iters=3), stepping)
    assert run.runner.iter == 3
