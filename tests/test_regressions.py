"""Cases that were once wrong, each in a few lines."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hookline import Hook, Optim, Runner
from hookline.data.transfer import to_device
from hookline.engine.clipping import Clip
from hookline.engine.steps import cross_entropy
from hookline.errors import HookError, NumericsError, StorageError, exit_code_of
from hookline.testing import MemoryWriter, Recorder, toy_data, toy_model, toy_runner


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.pth"))


def test_a_run_in_another_thread_is_not_held_up_by_this_one() -> None:
    other = toy_runner(max_epochs=1)
    runner = toy_runner(max_epochs=1)
    ended: list[bool] = []

    @runner.on("before_train")
    def start(runner: Runner) -> None:
        thread = threading.Thread(target=other.predict, args=(toy_data(2),))
        thread.start()
        thread.join(20)
        ended.append(not thread.is_alive())

    runner.train()
    assert ended == [True]


def test_a_run_killed_in_its_last_validation_owes_it_also_in_the_middle_of_a_pass(tmp_path: Path) -> None:
    def make(**parts: Any) -> Runner:
        return toy_runner(max_iters=10, batches=4, work_dir=tmp_path, **parts)

    first = make()

    @first.on("before_val")
    def die(runner: Runner) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.train()
    recorder = Recorder("before_val", "before_train_iter")
    resumed = make(resume=True, custom_hooks=[recorder])
    resumed.train()
    assert recorder.names == ["before_val"]
    assert resumed.saving.pending is None
    assert len(resumed.hub.get_scalar("train/loss")) == 10


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


def test_validating_first_takes_nothing_from_the_training_after_it(tmp_path: Path) -> None:
    toy_runner(max_epochs=2, work_dir=tmp_path).train()
    resumed = toy_runner(max_epochs=3, work_dir=tmp_path, resume=True)
    resumed.val()
    resumed.train()
    assert resumed.iter == 12
    fresh = toy_runner(max_epochs=1, work_dir=tmp_path)
    fresh.val()
    fresh.train()
    assert (tmp_path / "old-1").is_dir()


def test_a_checkpoint_behind_the_end_of_the_data_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    runner = toy_runner(max_iters=7, batches=4, work_dir=tmp_path, val=None)
    runner.train()
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(StorageError) as refused:
        toy_runner(max_iters=20, batches=2, work_dir=tmp_path, resume=True).train()
    assert str(refused.value).splitlines()[1:] == [
        "  the data: the checkpoint stands at batch 3 of its epoch, and the loader has only 2 now"
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            {"best": np.float64(0.3)},
            "the state of Remembers['best'] is a numpy.float64, which a checkpoint cannot store",
        ),
        ({"seen": [1, {2}]}, "the state of Remembers['seen'][1] is a builtins.set, which a checkpoint cannot store"),
        ({"f": len}, "the state of Remembers['f'] is a builtins.builtin_function_or_method"),
    ],
)
def test_a_state_that_could_not_be_read_back_is_refused_by_name(state: Any, message: str) -> None:
    class Remembers(Hook):
        def state_dict(self) -> dict[str, Any]:
            return dict(state)

    runner = toy_runner(max_epochs=1, custom_hooks=[Remembers()])
    with pytest.raises(HookError) as refused:
        runner.train()
    assert str(refused.value).startswith(message)
    assert checkpoints(runner.work_dir) == []


def test_the_file_just_saved_stays_also_beside_newer_numbers(tmp_path: Path) -> None:
    toy_runner(max_epochs=4, work_dir=tmp_path).train()
    hooks = {"checkpoint": {"max_keep_ckpts": 1}}
    toy_runner(max_epochs=2, work_dir=tmp_path, resume=tmp_path / "epoch_1.pth", default_hooks=hooks).train()
    assert "epoch_2.pth" in checkpoints(tmp_path)
    toy_runner(max_epochs=2, work_dir=tmp_path, resume=True).train()


def test_a_save_in_the_middle_of_an_epoch_does_not_take_the_name_of_an_epoch(tmp_path: Path) -> None:
    hooks = {"checkpoint": {"filename_tmpl": "ckpt-{}.pth", "interval": 1}}
    runner = toy_runner(max_epochs=2, work_dir=tmp_path, default_hooks=hooks)

    @runner.on("after_train_iter")
    def stop(runner: Runner) -> None:
        if runner.iter == 5:
            runner.stop("enough")

    runner.train()
    assert checkpoints(tmp_path) == ["ckpt-1.pth", "iter_6.pth"]


def test_a_pointer_that_is_gone_does_not_mean_that_there_is_nothing(tmp_path: Path) -> None:
    toy_runner(max_epochs=2, work_dir=tmp_path).train()
    (tmp_path / "last_checkpoint").unlink()
    recorder = Recorder("before_train_epoch")
    toy_runner(max_epochs=3, work_dir=tmp_path, resume=True, custom_hooks=[recorder]).train()
    assert [event.epoch for event in recorder.events] == [2]


def test_records_are_cut_only_when_the_checkpoint_was_taken(tmp_path: Path) -> None:
    toy_runner(max_epochs=3, work_dir=tmp_path).train()
    before = (tmp_path / "metrics.jsonl").read_text()
    with pytest.raises(StorageError, match="does not fit this run; nothing was loaded"):
        toy_runner(model=nn.Linear(4, 2), max_epochs=3, work_dir=tmp_path, resume=tmp_path / "epoch_1.pth").train()
    assert (tmp_path / "metrics.jsonl").read_text() == before
    assert (tmp_path / "epoch_3.pth").is_file()


def test_a_checkpoint_of_another_folder_begins_a_folder_of_its_own(tmp_path: Path) -> None:
    toy_runner(max_epochs=1, work_dir=tmp_path / "a").train()
    toy_runner(max_epochs=3, work_dir=tmp_path / "b").train()
    toy_runner(max_epochs=2, work_dir=tmp_path / "b", resume=tmp_path / "a" / "epoch_1.pth").train()
    assert (tmp_path / "b" / "old-1" / "epoch_3.pth").is_file()
    lines = (tmp_path / "b" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [4, 8, 8]  # the validation of epoch 1 was still owed


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


def test_an_optim_can_be_changed_while_training() -> None:
    model = toy_model()
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1), accumulate=4)
    runner = toy_runner(model=model, optim=optim, max_epochs=2, val=None)

    @runner.on("before_train_epoch")
    def change(runner: Runner) -> None:
        if runner.epoch == 1:
            optim.accumulate, optim.clip = 1, Clip(norm=1e-9)

    runner.train()
    assert optim.updates == 5
    assert optim.grad_norm is not None


def test_an_observer_disabled_in_a_validation_is_not_called_again_in_it() -> None:
    calls: list[int] = []

    class Watch(Hook):
        role = "observer"
        on_error = "disable"

        def after_val_iter(self, runner: Any, batch_idx: int) -> None:
            calls.append(batch_idx)
            raise OSError("away")

    toy_runner(val_batches=4, custom_hooks=[Watch()]).val()
    assert calls == [0]


def test_a_limit_holds_for_a_stream_that_is_resumed(tmp_path: Path) -> None:
    class Stream:
        def __iter__(self) -> Iterator[Any]:
            return iter(toy_data(6))

    def make(**parts: Any) -> Runner:
        runner = toy_runner(max_epochs=1, work_dir=tmp_path, train={"limit_batches": 2}, val=None, **parts)
        runner.train_loop.dataloader = Stream()
        return runner

    first = make(custom_hooks=[])

    @first.on("after_train_iter")
    def save(runner: Runner) -> None:
        if runner.iter == 1:
            runner.request_save()

    @first.on("after_train_epoch")
    def die(runner: Runner) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.train()
    resumed = make(resume=True)
    resumed.train()
    assert resumed.iter == 2


def test_arguments_of_a_point_may_have_any_name() -> None:
    seen: list[Any] = []
    runner = toy_runner(points={"after_count": ("n", "host", "calls", "error")})
    for _ in range(2):
        runner.on("after_count")(lambda runner, n, host, calls, error: seen.append((n, host, calls, error)))
    runner.call_hook("after_count", n=7, host="h", calls="c", error="e")
    assert seen == [(7, "h", "c", "e")] * 2
    with pytest.raises(HookError, match="^the point 'host' would hide a part of the plan"):
        runner.add_point("host")


def test_a_tolerated_failure_at_on_exception_leaves_the_others_their_error() -> None:
    class Watch(Hook):
        role = "observer"

        def on_exception(self, runner: Any, error: BaseException) -> None:
            raise OSError("away")

    seen: list[BaseException] = []
    runner = toy_runner(custom_hooks=[{"type": Watch, "on_error": "disable"}])
    runner.on("on_exception")(lambda runner, error: seen.append(error))

    @runner.on("before_train")
    def fail(runner: Runner) -> None:
        raise KeyError("first")

    with pytest.raises(KeyError) as failed:
        runner.train()
    assert seen == [failed.value]


def test_a_stop_iteration_of_the_step_blames_nobody_else() -> None:
    class Around(Hook):
        def around_train_iter(self, runner: Any) -> Iterator[None]:
            yield

    def step(model: nn.Module, batch: Any) -> Any:
        raise StopIteration

    with pytest.raises((StopIteration, RuntimeError)) as failed:
        toy_runner(custom_hooks=[Around()], step=step).train()
    assert "Around" not in str(getattr(failed.value, "__notes__", ""))


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        (
            {"runs_after": "LoggerHook"},
            "Odd: runs_after is a tuple of names or classes, as in ('LoggerHook',), not 'LoggerHook'",
        ),
        (
            {"runs_after": ("LoggerHok",)},
            "Odd: runs_after names 'LoggerHok', which is no hook; did you mean 'LoggerHook'?",
        ),
        ({"role": "obsrver"}, "Odd: the role is 'actor' or 'observer', not 'obsrver'"),
    ],
)
def test_a_statement_that_cannot_be_right_is_refused(methods: dict[str, Any], message: str) -> None:
    with pytest.raises(HookError) as refused:
        toy_runner(custom_hooks=[type("Odd", (Hook,), methods)()])
    assert str(refused.value) == message


def test_a_generator_or_coroutine_at_a_point_is_refused_because_it_would_never_run() -> None:
    class Generator(Hook):
        def before_train(self, runner: Any) -> Iterator[None]:
            yield

    class Coroutine(Hook):
        async def before_train(self, runner: Any) -> None: ...

    class Managed(Hook):
        @contextlib.contextmanager
        def around_train(self, runner: Any) -> Iterator[None]:
            yield

    for hook in (Generator(), Coroutine()):
        with pytest.raises(HookError, match="its body would never run, because it is a generator or a coroutine"):
            toy_runner(custom_hooks=[hook])
    with pytest.raises(HookError, match="must be a plain generator function with one yield"):
        toy_runner(custom_hooks=[Managed()]).train()


def test_on_without_the_name_of_a_point_is_refused() -> None:
    runner = toy_runner()

    def show(runner: Runner) -> None: ...

    with pytest.raises(HookError, match="^a function is registered at a point by its name"):
        runner.on(show)(show)  # type: ignore[arg-type]


def test_skipping_a_step_that_was_made_is_refused() -> None:
    runner = toy_runner(max_epochs=1)
    runner.on("after_train_iter")(lambda runner: runner.skip_step("late"))
    with pytest.raises(HookError, match="^skip_step was called when the step was made already"):
        runner.train()


def test_a_device_that_this_machine_lacks_is_refused() -> None:
    from hookline.errors import ConfigError

    with pytest.raises(ConfigError, match="^the device 'xla:0' is not there for this torch and machine; available: "):
        toy_runner(device="xla:0")


@pytest.mark.parametrize("hooks", [{"logger": {"interval": 2}}, {"logger": None}])
def test_a_loss_that_is_not_a_number_ends_the_run_and_is_never_saved(hooks: dict[str, Any]) -> None:
    def step(model: nn.Module, batch: Any) -> Any:
        return cross_entropy(model, batch) * float("nan")

    runner = toy_runner(max_epochs=1, step=step, default_hooks=hooks)
    with pytest.raises(NumericsError, match="^the loss has become nan by iteration") as failed:
        runner.train()
    assert exit_code_of(failed.value) == 4
    assert checkpoints(runner.work_dir) == []


def test_a_mean_goes_back_to_the_last_record_and_no_further() -> None:
    writer = MemoryWriter()
    losses = iter(range(1, 13))

    def step(model: nn.Module, batch: Any) -> Any:
        return {"loss": cross_entropy(model, batch), "my_loss": float(next(losses))}

    toy_runner(max_epochs=3, batches=4, step=step, writers=[writer], val=None).train()
    assert [record["train/my_loss"] for record in writer.records] == [2.5, 6.5, 10.5]


def test_a_record_is_json_also_with_nan_in_it() -> None:
    runner = toy_runner(max_epochs=1)
    runner.on("before_train")(lambda runner: runner.writers.write_scalars({"a": float("nan"), "b": 1.0}, 0))
    runner.train()
    first = (runner.work_dir / "metrics.jsonl").read_text().splitlines()[0]
    assert first == '{"step": 0, "a": null, "b": 1.0}'


def test_a_packed_sequence_moves_itself() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.zeros(3), torch.zeros(2)])
    moved = to_device([packed], torch.device("cpu"))[0]
    assert isinstance(moved, nn.utils.rnn.PackedSequence)


def test_every_pass_has_its_own_order_also_when_its_last_batch_is_skipped() -> None:
    epochs: list[int] = []

    class Loader(list[Any]):
        def set_epoch(self, epoch: int) -> None:
            epochs.append(epoch)

    runner = toy_runner(max_iters=4, val=None)
    runner.train_loop.dataloader = Loader(toy_data(2))

    @runner.on("before_train_iter")
    def skip(runner: Runner) -> None:
        if runner.iter == 1:
            runner.skip_step("bad")

    runner.train()
    assert epochs == [0, 1, 2]


@pytest.mark.parametrize("hooks", [{}, {"logger": None}, {"logger": None, "checkpoint": None}])
def test_one_infinite_loss_ends_the_run_wherever_it_is_seen_first(hooks: dict[str, Any]) -> None:
    def step(model: nn.Module, batch: Any) -> Any:
        return cross_entropy(model, batch) + (float("inf") if runner.iter == 5 else 0)

    runner = toy_runner(max_epochs=2, step=step, default_hooks=hooks)
    with pytest.raises(NumericsError, match="^the loss has become inf by iteration 8,"):
        runner.train()
    assert checkpoints(runner.work_dir) == ([] if "checkpoint" in hooks else ["epoch_1.pth"])


def test_the_loss_of_a_batch_that_a_hook_leaves_out_is_not_recorded() -> None:
    def step(model: nn.Module, batch: Any) -> Any:
        return cross_entropy(model, batch) * (float("nan") if runner.iter % 4 == 3 else 1)

    runner = toy_runner(max_epochs=2, step=step)

    @runner.on("before_backward")
    def leave_out(runner: Runner, outputs: dict[str, Any]) -> None:
        if outputs["loss"].isnan():
            runner.skip_step("the loss is not a number")

    runner.train()
    assert runner.updates == 6
    assert len(runner.hub.get_scalar("train/loss")) == 6


def test_a_scheduler_that_would_never_step_is_refused() -> None:
    from hookline.errors import ConfigError

    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(ConfigError, match="^ReduceLROnPlateau steps at 'val', but this run has no validation; "):
        toy_runner(model=model, optim=Optim(optimizer, [plateau]), val=None).train()


@pytest.mark.parametrize("name", ["", "..", "../x.jsonl", "/x.jsonl", "a/b.jsonl", "x\0.jsonl"])
def test_records_stay_in_the_folder_of_the_run(name: str) -> None:
    from hookline.errors import ConfigError
    from hookline.writers.jsonl import JsonlWriter

    with pytest.raises(
        ConfigError, match="^JsonlWriter: filename must be the name of a file in the run's folder, not "
    ):
        JsonlWriter(name)
