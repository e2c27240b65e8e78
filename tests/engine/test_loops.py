from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop
from hookline.engine.metrics import Metrics, accuracy
from hookline.engine.steps import cross_entropy, predict
from hookline.errors import ConfigError, DataError, HookError, HooklineError, exit_code_of
from hookline.run.requests import Stop
from hookline.testing import Event, Recorder, toy_data, toy_model, toy_runner

ITERATION = ["enter train_iter", "before_train_iter", "enter forward", "leave forward"]
ITERATION += ["enter backward", "before_backward", "after_backward", "leave backward"]
UPDATE = ["enter optimizer_step", "before_optimizer_step", "after_optimizer_step", "leave optimizer_step"]
END = ["after_train_iter", "leave train_iter"]
VAL_ITER = ["enter val_iter", "before_val_iter", "enter forward", "leave forward", "after_val_iter", "leave val_iter"]
VAL = ["enter val", "before_val", "enter val_epoch", "before_val_epoch", *VAL_ITER]
VAL += ["after_val_epoch", "leave val_epoch", "after_val", "leave val"]


def validations(runner: Runner) -> list[tuple[int, int]]:
    """Train, and return (epoch, iter) of every validation."""
    recorder = Recorder("before_val")
    runner.register_hook(recorder)
    runner.train()
    return [(event.epoch, event.iter) for event in recorder.events]


# -------------------------------------------------------------------------------------------------- sequences


def test_a_run_by_epochs_goes_through_exactly_these_points() -> None:
    recorder = Recorder()
    toy_runner(max_epochs=1, batches=2, val_batches=1, custom_hooks=[recorder]).train()
    assert recorder.names == [
        *["enter run", "before_run", "enter train", "before_train", "enter train_epoch", "before_train_epoch"],
        *[*ITERATION, *UPDATE, *END] * 2,
        *["after_train_epoch", "leave train_epoch", "before_save_checkpoint"],
        *VAL,
        *["after_train", "leave train", "after_run", "leave run"],
    ]


def test_a_run_by_iterations_surrounds_all_passes_with_one_epoch() -> None:
    recorder = Recorder()
    toy_runner(max_iters=3, batches=2, val_batches=1, train={"val_interval": 2}, custom_hooks=[recorder]).train()
    step = [*ITERATION, *UPDATE, *END]
    assert recorder.names == [
        *["enter run", "before_run", "enter train", "before_train", "enter train_epoch", "before_train_epoch"],
        *step,
        *step,
        "before_save_checkpoint",
        *VAL,
        *step,
        "before_save_checkpoint",
        *VAL,
        *["after_train_epoch", "leave train_epoch", "after_train", "leave train", "after_run", "leave run"],
    ]


def test_counters_count_what_is_finished() -> None:
    recorder = Recorder("before_train_iter", "after_train_iter", "after_train_epoch", "before_val", "after_train")
    toy_runner(max_epochs=2, batches=2, custom_hooks=[recorder]).train()
    assert recorder.events == [
        Event("before_train_iter", 0, 0), Event("after_train_iter", 0, 0),
        Event("before_train_iter", 0, 1), Event("after_train_iter", 0, 1),
        Event("after_train_epoch", 0, 2), Event("before_val", 1, 2),
        Event("before_train_iter", 1, 2), Event("after_train_iter", 1, 2),
        Event("before_train_iter", 1, 3), Event("after_train_iter", 1, 3),
        Event("after_train_epoch", 1, 4), Event("before_val", 2, 4), Event("after_train", 2, 4),
    ]  # fmt: skip


def test_by_iterations_the_epoch_counts_passes_and_the_batch_index_restarts() -> None:
    recorder = Recorder("before_train_iter")
    runner = toy_runner(max_iters=5, batches=2, custom_hooks=[recorder])
    runner.train()
    assert [(event.epoch, event.iter) for event in recorder.events] == [(0, 0), (0, 1), (1, 2), (1, 3), (2, 4)]
    assert [arguments["batch_idx"] for arguments in recorder.arguments] == [0, 1, 0, 1, 0]
    assert (runner.epoch, runner.iter) == (2, 5)


# ----------------------------------------------------------------------------------------- when to validate


@pytest.mark.parametrize(
    ("interval", "begin", "epochs"),
    [(1, 1, [1, 2, 3, 4, 5]), (2, 1, [2, 4, 5]), (2, 3, [4, 5]), (1, 4, [4, 5]), (9, 1, [5]), (2, 0, [0, 2, 4, 5])],
)
def test_validation_follows_its_interval_and_comes_after_the_last_epoch(
    interval: int, begin: int, epochs: list[int]
) -> None:
    runner = toy_runner(max_epochs=5, batches=2, train={"val_interval": interval, "val_begin": begin})
    assert validations(runner) == [(epoch, 2 * epoch) for epoch in epochs]


@pytest.mark.parametrize(
    ("interval", "begin", "iters"),
    [(2, 1, [2, 4, 6, 7]), (3, 4, [6, 7]), (100, 1, [7]), (None, 1, [7]), (3, 0, [0, 3, 6, 7]), (7, 1, [7])],
)
def test_validation_by_iterations_likewise(interval: int | None, begin: int, iters: list[int]) -> None:
    runner = toy_runner(max_iters=7, batches=3, train={"val_interval": interval, "val_begin": begin})
    assert validations(runner) == [(i // 3, i) for i in iters]


def test_several_validation_sets_come_as_one_validation_with_their_names() -> None:
    recorder = Recorder("before_val", "before_val_epoch", "before_val_iter", "after_val_epoch", "after_val")
    loops = {
        name: EvalLoop(toy_data(batches, seed=batches), predict, metrics={"accuracy": accuracy})
        for name, batches in {"clean": 2, "noisy": 1}.items()
    }
    runner = toy_runner(max_epochs=1, val=loops, custom_hooks=[recorder])
    runner.train()
    assert recorder.names == [
        "before_val",
        "before_val_epoch",
        *["before_val_iter"] * 3,
        "after_val_epoch",
        "after_val",
    ]
    assert list(recorder.arguments[5]["metrics"]) == ["clean/accuracy", "noisy/accuracy"]
    assert [arguments["batch_idx"] for arguments in recorder.arguments[2:5]] == [0, 1, 0]
    assert runner.val() == recorder.arguments[5]["metrics"]


def test_the_training_loss_can_be_measured_on_validation_data() -> None:
    data = [(torch.randn(n, 4), torch.randint(2, (n,))) for n in (8, 3)]
    runner = toy_runner(max_epochs=1, val=EvalLoop(data, predict, metrics={"accuracy": accuracy}, loss=cross_entropy))
    runner.train()
    inputs, target = torch.cat([pair[0] for pair in data]), torch.cat([pair[1] for pair in data])
    with torch.no_grad():
        scores = runner.model(inputs)
        loss = nn.functional.cross_entropy(scores, target)
    metrics = runner.val()
    assert list(metrics) == ["accuracy", "loss"]
    assert metrics["loss"] == pytest.approx(loss.item())
    assert metrics["accuracy"] == pytest.approx((scores.argmax(1) == target).double().mean().item())
    assert list(toy_runner(val=EvalLoop(data, loss=cross_entropy)).val()) == ["loss"]


# ------------------------------------------------------------------------------------------------------ modes


class Modes(Hook):
    """Records, for each stage, whether the model is in training mode and gradients are enabled."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool, bool]] = []

    def note(self, runner: Any, stage: str) -> None:
        self.seen.append((stage, runner.model.training, torch.is_grad_enabled()))

    def before_train_iter(self, runner: Any) -> None:
        self.note(runner, "train")

    def before_val_iter(self, runner: Any) -> None:
        self.note(runner, "val")

    def before_test_iter(self, runner: Any) -> None:
        self.note(runner, "test")


@pytest.mark.parametrize("training", [True, False])
def test_modes_are_right_in_each_stage_and_restored(training: bool) -> None:
    hook = Modes()
    model = toy_model().train(training)
    runner = toy_runner(model=model, max_epochs=1, batches=1, val_batches=1, custom_hooks=[hook])
    with torch.no_grad():
        runner.train()
        assert not torch.is_grad_enabled()
    runner.val()
    runner.test()
    assert torch.is_grad_enabled()
    assert model.training is training
    assert hook.seen == [("train", True, True), ("val", False, False), ("val", False, False), ("test", False, False)]


def test_parts_that_are_frozen_on_purpose_stay_so() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[1].eval()
    toy_runner(model=model, max_epochs=1).train()
    assert [module.training for module in model.modules()] == [True, True, False, True]
    assert model[1].num_batches_tracked == 0


def test_val_and_test_alone_work_without_training_and_whatever_hooks_there_are(tmp_path: Path) -> None:
    model = toy_model()
    runner = Runner(
        model,
        val=EvalLoop(toy_data(), predict, metrics={"accuracy": accuracy}),
        quiet=True,
        device="cpu",
        work_dir=tmp_path,
        custom_hooks=["ProgressHook"],
    )
    assert list(runner.val()) == ["accuracy"]
    message = r"^this run has no test loop; add one: Runner\(..., test=EvalLoop\(loader, ...\)\)$"
    with pytest.raises(ConfigError, match=message):
        runner.test()
    with pytest.raises(ConfigError, match="^this run has no training"):
        runner.train()


# ------------------------------------------------------------------------------------------------ what is asked


def asking(point: str, at: int, ask: Any) -> Hook:
    def method(self: Any, runner: Any) -> None:
        if runner.iter == at:
            ask(runner)

    return type("Asking", (Hook,), {point: method})()  # type: ignore[no-any-return]


def test_stop_ends_training_after_the_iteration_without_the_epochs_end_and_without_validation() -> None:
    recorder = Recorder()
    hook = asking("before_train_iter", 2, lambda runner: runner.stop("enough"))
    runner = toy_runner(max_epochs=3, batches=2, custom_hooks=[hook, recorder])
    runner.train()
    assert runner.iter == 3
    assert recorder.names[-8:] == [
        *["after_train_iter", "leave train_iter", "leave train_epoch", "after_train", "before_save_checkpoint"],
        *["leave train", "after_run", "leave run"],
    ]
    assert recorder.names.count("after_train_epoch") == 1
    assert recorder.names.count("before_val") == 1
    assert runner._host.requests.stopped == Stop("enough", "Asking")
    assert "stopped by Asking: enough" in (runner.work_dir / "run.log").read_text()


@pytest.mark.parametrize(("for_now", "ends"), [(False, 2), (True, 8)])
def test_a_run_stopped_for_now_continues_when_resumed(tmp_path: Path, for_now: bool, ends: int) -> None:
    class Stopping(Hook):
        def after_train_iter(self, runner: Runner) -> None:
            if runner.iter == 1:
                runner.stop("enough", for_now=for_now)

    toy_runner(work_dir=tmp_path, custom_hooks=[Stopping()]).train()
    resumed = toy_runner(work_dir=tmp_path, custom_hooks=[Stopping()], resume=True)
    resumed.train()
    assert resumed.iter == ends


def test_training_again_continues_after_a_stop_for_now_and_explains_a_final_one() -> None:
    runner = toy_runner(max_epochs=2)

    @runner.on("after_train_iter")
    def stop(runner: Runner) -> None:
        if runner.iter in (1, 4):
            runner.stop("time is up" if runner.iter == 1 else "enough", for_now=runner.iter == 1)

    seen = []
    for _ in range(3):
        runner.train()
        seen.append(runner.iter)
    assert seen == [2, 5, 5]
    said = (
        "this run was stopped by stop: enough. To continue, change the parameters of that hook or remove it, and resume"
    )
    assert (runner.work_dir / "run.log").read_text().splitlines()[-1].split("  ", 1)[1] == said


@pytest.mark.parametrize("again", ["resumed", "in the same process"])
def test_a_stop_at_the_end_of_the_epoch_still_holds_when_training_continues(tmp_path: Path, again: str) -> None:
    class Stopping(Hook):
        def after_train_iter(self, runner: Runner) -> None:
            if runner.iter == 4:
                runner.stop("enough", when="epoch")
            if runner.iter == 5:
                runner.stop("time is up", for_now=True)

    runner = toy_runner(work_dir=tmp_path, max_epochs=5, custom_hooks=[Stopping()])
    runner.train()
    assert (runner.iter, runner.stopped.reason) == (6, "time is up")
    if again == "resumed":
        runner = toy_runner(work_dir=tmp_path, max_epochs=5, custom_hooks=[Stopping()], resume=True)
    runner.train()
    assert (runner.iter, runner._host.requests.stopped) == (8, Stop("enough", "Stopping", "epoch"))


def test_a_stop_for_good_counts_more_than_one_for_now() -> None:
    runner = toy_runner(max_epochs=1)

    @runner.on("after_train_iter")
    def stop(runner: Runner) -> None:
        runner.stop("time is up", for_now=True)
        runner.stop("at the end of the epoch", when="epoch")
        runner.stop("good enough")
        runner.stop("time is up again", for_now=True)

    runner.train()
    assert (runner.iter, runner.stopped.reason, runner.stopped.for_now) == (1, "good enough", False)


@pytest.mark.parametrize("by", ["max_epochs", "max_iters"])
def test_stop_can_wait_for_the_end_of_the_epoch(by: str) -> None:
    hook = asking("before_train_iter", 2, lambda runner: runner.stop("enough", when="epoch"))
    length: Any = {by: 10}
    runner = toy_runner(batches=4, custom_hooks=[hook], **length)
    runner.train()
    assert (runner.epoch, runner.iter) == (1, 4)


def test_a_stop_inside_an_accumulation_window_waits_for_its_end() -> None:
    hook = asking("after_train_iter", 3, lambda runner: runner.stop("enough"))
    runner = toy_runner(max_epochs=1, batches=10, accumulate=3, custom_hooks=[hook])
    runner.train()
    assert (runner.iter, runner.updates) == (6, 2)
    with pytest.raises(HookError, match=r"stop\(when=...\) must be 'iter' or 'epoch', not 'now'"):
        runner.stop("x", when="now")  # type: ignore[arg-type]


def test_a_step_skipped_before_it_is_computed_has_no_after() -> None:
    recorder = Recorder("before_train_iter", "forward", "after_train_iter")
    hook = asking("before_train_iter", 1, lambda runner: runner.skip_step("bad batch"))
    runner = toy_runner(max_epochs=1, batches=3, custom_hooks=[hook, recorder], val=None)
    runner.train()
    step = ["before_train_iter", "enter forward", "leave forward", "after_train_iter"]
    assert recorder.names == [*step, "before_train_iter", *step]
    assert (runner.iter, runner.updates) == (3, 2)


def test_a_step_skipped_before_its_backward_pass_changes_nothing() -> None:
    recorder = Recorder("after_backward", "after_optimizer_step", "after_train_iter")
    hook = asking("before_backward", 1, lambda runner: runner.skip_step("nan"))
    runner = toy_runner(max_epochs=1, batches=2, custom_hooks=[hook, recorder], val=None)
    runner.train()
    once = toy_runner(max_epochs=1, batches=1, val=None)
    once.train()
    assert recorder.names == ["after_backward", "after_optimizer_step", "after_train_iter", "after_train_iter"]
    assert all(a.equal(b) for a, b in zip(runner.model.parameters(), once.model.parameters(), strict=True))


@pytest.mark.parametrize("point", ["after_backward", "before_optimizer_step"])
def test_a_step_skipped_after_its_backward_pass_drops_the_window(point: str) -> None:
    hook = asking(point, 1, lambda runner: runner.skip_step("exploding"))
    runner = toy_runner(max_epochs=1, batches=4, accumulate=2, custom_hooks=[hook], val=None)
    runner.train()
    data = toy_data(4)
    other = toy_runner(max_epochs=1, accumulate=2, train={}, val=None)
    other.train_loop.dataloader = data[2:]
    other.train()
    assert runner.updates == 1
    assert all(a.equal(b) for a, b in zip(runner.model.parameters(), other.model.parameters(), strict=True))


def test_a_window_left_open_by_a_skip_is_flushed_at_the_end_of_the_epoch() -> None:
    hook = asking("before_train_iter", 1, lambda runner: runner.skip_step("bad"))
    runner = toy_runner(max_epochs=1, batches=2, accumulate=2, custom_hooks=[hook], val=None)
    runner.train()
    once = toy_runner(max_epochs=1, batches=1, val=None)
    once.train()
    assert runner.updates == 1
    for ours, theirs in zip(runner.model.parameters(), once.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_validation_can_be_asked_for_and_waits_for_the_window() -> None:
    hook = asking("before_train_iter", 0, lambda runner: runner.request_val())
    runner = toy_runner(max_epochs=1, batches=6, accumulate=3, custom_hooks=[hook])
    assert validations(runner) == [(0, 3), (1, 6)]
    with pytest.raises(HookError, match="^a validation was requested, but this run has none"):
        toy_runner(val=None).request_val()


def test_a_validation_that_falls_into_a_window_comes_at_its_end() -> None:
    runner = toy_runner(max_iters=8, batches=3, accumulate=2, train={"val_interval": 3})
    assert validations(runner) == [(1, 4), (2, 6), (2, 8)]


def test_a_save_can_be_asked_for_and_is_named_after_where_it_was_made() -> None:
    hook = asking("before_train_iter", 3, lambda runner: runner.request_save())
    runner = toy_runner(max_epochs=2, batches=5, accumulate=3, custom_hooks=[hook], default_hooks={"checkpoint": None})
    runner.train()
    assert sorted(path.name for path in runner.work_dir.glob("*.pth")) == ["iter_5.pth"]
    checkpoint = torch.load(runner.work_dir / "iter_5.pth", weights_only=True)
    assert (checkpoint["position"]["epoch"], checkpoint["position"]["batch"]) == (0, 5)


def test_a_hook_can_replace_the_batch_and_the_loss() -> None:
    class Replace(Hook):
        def before_train_iter(self, runner: Any, data_batch: Any) -> None:
            inputs, target = data_batch
            runner.data_batch = (inputs * 0, target)

        def before_backward(self, runner: Any, outputs: Any) -> None:
            outputs["loss"] = outputs["loss"] * 2

    seen: list[Any] = []

    def step(model: nn.Module, batch: Any) -> torch.Tensor:
        seen.append(batch[0].abs().sum().item())
        return cross_entropy(model, batch)

    recorder = Recorder("after_train_iter")
    runner = toy_runner(max_epochs=1, batches=1, step=step, custom_hooks=[Replace(), recorder], val=None)
    runner.train()
    assert seen == [0.0]
    assert recorder.arguments[0]["data_batch"][0].abs().sum() == 0
    model = toy_model()
    inputs, target = toy_data(1)[0]
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1))
    optim.update(2 * nn.functional.cross_entropy(model(inputs * 0), target))
    assert all(a.equal(b) for a, b in zip(runner.model.parameters(), model.parameters(), strict=True))


# ------------------------------------------------------------------------------------------------------- data


class Stream:
    """A loader without a length."""

    def __init__(self, batches: int) -> None:
        self.data = toy_data(batches)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)


def test_a_loader_without_a_length_trains_to_the_same_weights_and_knows_its_last_batch() -> None:
    ends: list[bool] = []
    runner = toy_runner(max_epochs=2, accumulate=1)
    runner.train_loop.dataloader = Stream(4)
    runner.on("after_train_iter")(lambda runner: ends.append(runner.ends_epoch))
    runner.train()
    other = toy_runner(max_epochs=2)
    other.train()
    assert ends == [False, False, False, True] * 2
    assert (runner.max_iters, other.max_iters) == (None, 8)
    assert all(a.equal(b) for a, b in zip(runner.model.parameters(), other.model.parameters(), strict=True))


@pytest.mark.parametrize("sized", [True, False])
def test_a_loop_can_be_limited_to_some_batches(sized: bool) -> None:
    recorder = Recorder("before_train_iter", "before_val_iter")
    runner = toy_runner(max_epochs=1, batches=9, train={"limit_batches": 2}, custom_hooks=[recorder])
    runner.val_loops[""].limit_batches = 1
    if not sized:
        runner.train_loop.dataloader = Stream(9)
    runner.train()
    assert recorder.names == ["before_train_iter", "before_train_iter", "before_val_iter"]


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        ([], "the loader of 'train' is empty: it has no batch"),
        (Stream(0), "the Stream is empty: it returned no batch in epoch 0"),
    ],
)
def test_an_empty_loader_is_refused(loader: Any, message: str) -> None:
    runner = toy_runner(max_epochs=1)
    runner.train_loop.dataloader = loader
    with pytest.raises(DataError, match=f"^{message}$") as refused:
        runner.train()
    assert exit_code_of(refused.value) == 3
    assert runner.iter == 0


def test_a_loader_that_gives_less_than_it_says_is_refused() -> None:
    class Short(Stream):
        def __len__(self) -> int:
            return 5

    runner = toy_runner(max_epochs=1)
    runner.train_loop.dataloader = Short(3)
    with pytest.raises(DataError, match="^the Short has a length of 5 batches but returned only 3$"):
        runner.train()


def test_a_loader_that_raises_is_named_with_its_batch_and_keeps_its_error() -> None:
    def broken() -> Iterator[Any]:
        yield toy_data(1)[0]
        raise KeyError("lost")

    runner = toy_runner(max_epochs=1)
    runner.train_loop.dataloader = broken()
    with pytest.raises(KeyError, match="lost") as failed:
        runner.train()
    assert failed.value.__notes__ == ["in the generator, at batch 1 of epoch 0"]
    assert exit_code_of(failed.value) == 3


def test_predict_gives_what_the_evaluation_step_gives_and_calls_no_hook() -> None:
    recorder = Recorder()
    runner = toy_runner(custom_hooks=[recorder])
    data = toy_data(3, seed=7)
    outputs = runner.predict(data)
    assert [len(pair) for pair in outputs] == [2, 2, 2]
    assert all(pair[0].equal(runner.model(batch[0])) for pair, batch in zip(outputs, data, strict=True))
    assert not outputs[0][0].requires_grad
    assert recorder.events == []
    assert runner.predict([data[0][0]], step=lambda model, batch: batch.shape[0]) == [8]


# ------------------------------------------------------------------------------------------------------ steps


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "the step returned None; return"),
        (3.0, "the step returned a float; return"),
        (torch.zeros(3), "the loss of the step is a tensor of shape (3,); return"),
        ({"accuracy": 1.0}, "the step returned a mapping with ['accuracy'], but without a loss; return"),
        ({"loss": None}, "the loss of the step is None; return"),
        (torch.zeros(()), "the loss has no gradient: it was detached (.item(), .detach(), no_grad), or it does not"),
    ],
)
def test_a_wrong_result_of_the_step_says_what_to_return(result: Any, message: str) -> None:
    runner = toy_runner(max_epochs=1, step=lambda model, batch: result)
    with pytest.raises(HooklineError) as refused:
        runner.train()
    assert str(refused.value).startswith(message)
    assert runner.iter == 0


def test_a_step_of_validation_that_fails_is_noted_with_its_batch() -> None:
    runner = toy_runner(val_batches=3)
    seen = []

    def step(model: nn.Module, batch: Any) -> Any:
        seen.append(batch)
        return [1][len(seen) // 7], batch[1]  # the trial batch, and three batches in each of two validations

    runner.val_loops[""].step = step
    runner.val_loops[""].metrics = Metrics({})
    with pytest.raises(IndexError) as failed:
        runner.train()
    assert failed.value.__notes__ == ["in the step of val, batch 2, epoch=2 iter=8 rank=0"]


def test_a_step_may_give_a_mapping_losses_to_add_or_a_pair() -> None:
    def losses(model: nn.Module, batch: Any) -> Any:
        loss = cross_entropy(model, batch)
        return {"loss_a": loss, "loss_b": loss, "size": 8}

    recorder = Recorder("after_train_iter")
    toy_runner(max_epochs=1, batches=1, step=losses, custom_hooks=[recorder]).train()
    outputs = recorder.arguments[0]["outputs"]
    assert list(outputs) == ["loss_a", "loss_b", "size", "loss"]
    assert outputs["loss"].equal(outputs["loss_a"] * 2)
    recorder = Recorder("after_train_iter")
    pair = lambda model, batch: ("logits", cross_entropy(model, batch))  # noqa: E731  # a step in one line
    toy_runner(max_epochs=1, batches=1, step=pair, custom_hooks=[recorder]).train()
    assert list(recorder.arguments[0]["outputs"]) == ["outputs", "loss"]


def test_without_a_step_the_model_is_called_with_the_batch() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = toy_model()

        def forward(self, inputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(self.net(inputs), target)

    model = Model()
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1))
    pairs, mappings = toy_data(2), [{"inputs": x, "target": y} for x, y in toy_data(2)]
    losses = []
    for data in (pairs, mappings):
        runner = toy_runner(model=model, train={}, val=None, optim=optim)
        runner.train_loop.dataloader, runner.train_loop.step = data, TrainLoop(data, max_epochs=1).step
        runner.train()
        losses.append(runner.hub.get_scalar("train/loss").current())
    assert losses[1] < losses[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "TrainLoop needs either max_epochs or max_iters"),
        ({"max_epochs": 1, "max_iters": 1}, "TrainLoop needs either max_epochs or max_iters"),
        ({"max_epochs": 0}, "max_epochs must be an int of at least 1, not 0"),
        ({"max_iters": 1.5}, "max_iters must be an int of at least 1, not 1.5"),
        ({"max_epochs": 1, "val_interval": 0}, "val_interval must be an int of at least 1, not 0"),
        ({"max_epochs": 1, "val_begin": -1}, "val_begin must be an int of at least 0, not -1"),
        ({"max_epochs": 1, "limit_batches": True}, "limit_batches must be an int of at least 1, not True"),
    ],
)
def test_a_training_loop_that_makes_no_sense_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TrainLoop([], **arguments)
    assert str(refused.value) == message


def test_a_step_that_updates_itself_may_give_numbers_without_a_loss() -> None:
    seen = []

    def step(model: nn.Module, batch: Any, optim: Optim) -> dict[str, Any]:
        error = cross_entropy(model, batch)
        optim.update(error)
        return {"error": error, "note": "fine"}

    runner = toy_runner(step=step, max_epochs=1, val=None)
    runner.on("after_train_iter")(lambda runner, outputs: seen.append(list(outputs)))
    runner.train()
    assert seen == [["error", "note"]] * 4
    assert len(runner.hub.get_scalar("train/error")) == 4
