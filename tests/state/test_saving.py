from __future__ import annotations

import enum
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from hookline import EvalLoop, Hook, Optim, Runner
from hookline.checkpoint import seal, store
from hookline.checkpoint.copies import Copies
from hookline.engine.steps import predict
from hookline.errors import HookError, StorageError
from hookline.hooks import CheckpointHook
from hookline.resume.contract import RunContract
from hookline.runner.host import RunnerHost
from hookline.state import hook_states, saving
from hookline.testing import Recorder, toy_data, toy_model, toy_runner
from hookline.writers.jsonl import JsonlWriter


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.pth"))


def dies_at(iteration: int, runner: Runner) -> Runner:
    @runner.on("before_train_iter")
    def die(runner: Runner) -> None:
        if runner.iter == iteration:
            raise ZeroDivisionError

    return runner


# ------------------------------------------------------------------------------------------------------ copies


def test_a_copy_keeps_kinds_sharing_and_what_else_a_state_dict_carries() -> None:
    model = nn.Linear(3, 3)
    sparse = torch.eye(3).to_sparse()
    state = {"model": model.state_dict(), "tied": model.weight, "steps": Counter({2: 1}), "sparse": sparse}
    copied = Copies().take(state)
    assert copied["steps"] == {2: 1}
    assert type(copied["steps"]) is type(state["steps"])
    assert copied["model"]._metadata == model.state_dict()._metadata  # type: ignore[attr-defined]
    assert copied["tied"].data_ptr() == copied["model"]["weight"].data_ptr() != model.weight.data_ptr()
    assert copied["sparse"].to_dense().equal(torch.eye(3))


def test_the_memory_of_a_copy_is_used_again() -> None:
    copies = Copies()
    first = copies.take({"a": torch.zeros(3)})["a"]
    second = copies.take({"a": torch.ones(3)})["a"]
    assert first is second
    assert second.tolist() == [1, 1, 1]
    assert copies.take({"a": torch.ones(4)})["a"] is not second


SCHEDULERS: dict[str, Any] = {
    "MultiStepLR": lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [2, 5], 0.1),
    "StepLR": lambda optimizer: lr_scheduler.StepLR(optimizer, 3),
    "CosineAnnealingWarmRestarts": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3),
    "OneCycleLR": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=20),
    "CyclicLR": lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, cycle_momentum=False),
    "LambdaLR": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: np.float64(0.9**step)),
    "SequentialLR": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.LinearLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)], [3]
    ),
    "PolynomialLR": lambda optimizer: lr_scheduler.PolynomialLR(optimizer, 9),
}


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_resumes_exactly(tmp_path: Path, name: str, beside: bool) -> None:
    def make(folder: Path, **parts: Any) -> Runner:
        model = toy_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optim = Optim(optimizer, [(SCHEDULERS[name](optimizer), "iter")])
        hooks = {"checkpoint": {"interval": 3, "by_epoch": False, "async_save": beside}}
        return toy_runner(model=model, optim=optim, max_epochs=3, work_dir=folder, default_hooks=hooks, **parts)

    whole = make(tmp_path / "whole")
    whole.train()
    with pytest.raises(ZeroDivisionError):
        dies_at(7, make(tmp_path / "broken")).train()
    resumed = make(tmp_path / "broken", resume=True)
    resumed.train()
    assert str(resumed.model.state_dict()) == str(whole.model.state_dict())
    assert resumed.optims.sole.learning_rates() == whole.optims.sole.learning_rates()


# ------------------------------------------------------------------------------------------- what can be saved


class Phase(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    ("state", "where"),
    [
        ({"phase": Phase.ONE}, "the state of Odd['phase'] is a tests.state.test_saving.Phase"),
        ({np.int64(3): 1}, "the key np.int64(3) in the state of Odd is a numpy.int64"),
        ({"path": Path("x")}, "the state of Odd['path'] is a pathlib.PosixPath"),
    ],
)
def test_a_hook_state_that_cannot_be_read_back_is_refused_by_name(state: Any, where: str) -> None:
    class Odd(Hook):
        def state_dict(self) -> Any:
            return state

    with pytest.raises(HookError) as refused:
        toy_runner(custom_hooks=[Odd()]).train()
    assert str(refused.value) == (
        f"{where}, which a checkpoint cannot store; use tensors and plain data (numbers, strings, lists, dicts)"
    )


def test_entries_of_others_that_cannot_be_read_back_are_refused_by_name(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path)
    runner.hub.info["where"] = tmp_path
    with pytest.raises(HookError, match=r"^checkpoint\['message_hub'\]\['info'\]\['where'\] is a pathlib.PosixPath"):
        runner.train()
    runner = toy_runner(work_dir=tmp_path)
    runner.on("before_save_checkpoint")(lambda runner, checkpoint: checkpoint.update(mine=np.float64(3)))
    with pytest.raises(HookError, match=r"^checkpoint\['mine'\] is a numpy.float64"):
        runner.train()
    assert files(tmp_path) == []


def test_learning_rates_of_numpy_are_numbers_like_others(tmp_path: Path) -> None:
    model = toy_model()
    optim = Optim(torch.optim.SGD(model.parameters(), lr=np.float64(0.1)))
    toy_runner(model=model, optim=optim, max_epochs=1, work_dir=tmp_path).train()
    assert type(store.read(tmp_path / "epoch_1.pth", sealed=True)["optimizer"]["param_groups"][0]["lr"]) is float


# -------------------------------------------------------------------------------------------------- exactness

FRESH = """
import random, sys
import torch
from hookline.testing import toy_model, toy_runner
from hookline.engine.steps import cross_entropy

model = toy_model()
def step(model, batch):
    return cross_entropy(model, batch) * random.random()
runner = toy_runner(model=model, max_epochs=3, step=step, work_dir=sys.argv[1], resume=True)
if len(sys.argv) > 2:
    runner.on("after_train_iter")(lambda runner: runner.request_save() if runner.iter == 5 else 1 / (runner.iter - 6))
runner.train()
print(sum(p.double().sum().item() for p in model.parameters()))
"""


def test_nothing_that_a_fresh_process_imports_moves_its_generators(tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", FRESH, *words], capture_output=True, text=True, check=False)

    whole = run(str(tmp_path / "whole"))
    assert run(str(tmp_path / "broken"), "dies").returncode == 1
    resumed = run(str(tmp_path / "broken"))
    assert (resumed.returncode, resumed.stdout) == (0, whole.stdout)


# ------------------------------------------------------------------------------------------ files and folders


def test_a_template_needs_the_ending_by_which_checkpoints_are_found() -> None:
    with pytest.raises(Exception, match="must be a file name with one {} that ends with .pth, not 'model_{}.pt'"):
        CheckpointHook(filename_tmpl="model_{}.pt")


def test_records_are_cut_back_also_when_checkpoints_lie_elsewhere(tmp_path: Path) -> None:
    hooks = {"checkpoint": {"out_dir": str(tmp_path / "out")}, "logger": {"interval": 2}}

    def make(**parts: Any) -> Runner:
        return toy_runner(max_epochs=4, work_dir=tmp_path / "run", default_hooks=hooks, **parts)

    with pytest.raises(ZeroDivisionError):
        dies_at(11, make()).train()
    make(resume=True).train()
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [2, 4, 4, 6, 8, 8, 10, 12, 12, 14, 16, 16]


def test_out_dir_may_be_the_folder_of_the_run_in_other_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hooks = {"checkpoint": {"out_dir": str(tmp_path)}}
    toy_runner(max_epochs=1, work_dir="same", default_hooks=hooks).train()
    assert files(tmp_path / "same") == ["epoch_1.pth"]


def test_a_run_in_a_subfolder_is_another_run(tmp_path: Path) -> None:
    toy_runner(max_epochs=2, work_dir=tmp_path).train()
    toy_runner(max_epochs=1, work_dir=tmp_path).train()
    toy_runner(max_epochs=3, work_dir=tmp_path, resume=tmp_path / "old-1" / "epoch_2.pth").train()
    assert files(tmp_path) == ["epoch_3.pth"]
    assert files(tmp_path / "old-2") == ["epoch_1.pth"]


def test_going_back_sets_later_ones_aside_in_every_folder(tmp_path: Path) -> None:
    def make(**parts: Any) -> Runner:
        hooks = {"checkpoint": {"out_dir": str(tmp_path / "out")}}
        return toy_runner(max_epochs=3, work_dir=tmp_path / "run", default_hooks=hooks, **parts)

    runner = make()
    runner.on("before_train_iter")(lambda runner: os.kill(os.getpid(), signal.SIGTERM) if runner.iter == 9 else None)
    with pytest.raises(SystemExit):
        runner.train()
    out = tmp_path / "out" / "run"
    assert (files(out), files(tmp_path / "run")) == (["epoch_1.pth", "epoch_2.pth", "iter_10.pth"], [])
    with pytest.raises(ZeroDivisionError):
        dies_at(6, make(resume=out / "epoch_1.pth")).train()
    assert (files(out), files(out / "old-1")) == (["epoch_1.pth"], ["epoch_2.pth", "iter_10.pth"])


def test_files_of_the_user_stay_where_they_are(tmp_path: Path) -> None:
    torch.save(toy_model().state_dict(), tmp_path / "pretrained.pth")
    (tmp_path / "unreadable.pth").write_bytes(b"mine")
    toy_runner(max_epochs=1, work_dir=tmp_path, resume=True).train()
    toy_runner(max_epochs=1, work_dir=tmp_path, load_from=tmp_path / "pretrained.pth").train()
    assert files(tmp_path) == ["epoch_1.pth", "pretrained.pth", "unreadable.pth"]
    assert files(tmp_path / "old-1") == ["epoch_1.pth"]


def test_a_pointer_without_its_file_never_means_a_fresh_start(tmp_path: Path) -> None:
    (tmp_path / "mine.bin").touch()
    (tmp_path / "last_checkpoint").write_text('{"name": "mine.bin"}')
    with pytest.raises(StorageError) as refused:
        toy_runner(work_dir=tmp_path, resume=True).train()
    assert str(refused.value).splitlines()[1] == f"  {tmp_path / 'last_checkpoint'} names a file that cannot be used"


def test_another_optimizer_or_scheduler_is_refused_and_nothing_is_loaded(tmp_path: Path) -> None:
    toy_runner(max_epochs=1, work_dir=tmp_path).train()
    model = toy_model(seed=5)
    before = str(model.state_dict())
    optim = Optim(torch.optim.Adam(model.parameters()))
    with pytest.raises(StorageError, match="the optimizer: this run has Adam, the checkpoint SGD"):
        toy_runner(model=model, optim=optim, resume=tmp_path / "epoch_1.pth").train()
    assert str(model.state_dict()) == before


# -------------------------------------------------------------------------------------------- several that save


def test_two_hooks_that_save_keep_out_of_each_others_way(tmp_path: Path) -> None:
    other = CheckpointHook(interval=5, by_epoch=False, max_keep_ckpts=1)
    toy_runner(max_epochs=4, work_dir=tmp_path, custom_hooks=[other]).train()
    assert files(tmp_path) == ["epoch_1.pth", "epoch_2.pth", "epoch_3.pth", "epoch_4.pth", "iter_16.pth"]


def test_each_hook_has_its_last_checkpoint(tmp_path: Path) -> None:
    other = CheckpointHook(interval=0, out_dir=str(tmp_path / "out"))
    runner = toy_runner(max_epochs=4, work_dir=tmp_path / "run", custom_hooks=[other])
    runner.on("after_train_iter")(lambda runner: runner.stop("enough") if runner.iter == 6 else None)
    runner.train()
    assert files(tmp_path / "run") == ["epoch_1.pth", "iter_7.pth"]
    assert files(tmp_path / "out" / "run") == ["iter_7.pth"]


class Rising:
    """A metric that is better every time."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self, preds: Any, target: Any) -> float:
        self.at += 1
        return self.at


def test_the_best_beside_the_training_is_there_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = store.write

    def slow(checkpoint: Any, path: Path, note: seal.Note) -> str:
        time.sleep(0.05)
        return write(checkpoint, path, note)

    monkeypatch.setattr(store, "write", slow)
    loop = EvalLoop(toy_data(1), predict, metrics={"m": Rising()})
    hook = {"save_best": "m", "rule": "greater", "async_save": True, "interval": 0}
    runner = toy_runner(max_epochs=6, val=loop, work_dir=tmp_path, default_hooks={"checkpoint": hook})
    looks: list[bool] = []

    @runner.on("before_train_iter")
    def look(runner: Runner) -> None:
        time.sleep(0.01)
        looks.append(bool(list(tmp_path.glob("best_*.pth"))))

    runner.train()
    assert looks == sorted(looks)  # once a checkpoint exists, there is always one
    assert files(tmp_path) == ["best_m_epoch_6.pth", "epoch_6.pth"]


def test_a_best_in_the_middle_of_an_epoch_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    loop = EvalLoop(toy_data(1), predict, metrics={"m": Rising()})
    hook = {"save_best": "m", "rule": "greater", "interval": 0, "save_last": False}
    runner = toy_runner(max_epochs=2, val=loop, work_dir=tmp_path, default_hooks={"checkpoint": hook})
    runner.on("after_train_iter")(lambda runner: runner.request_val() if runner.iter in (1, 5) else None)
    runner.train()
    assert files(tmp_path) == ["best_m_epoch_2.pth"]


def test_a_best_that_could_not_be_written_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = store.write

    def sometimes(checkpoint: Any, path: Path, note: seal.Note) -> str:
        if path.name == "best_m_epoch_1.pth":
            raise StorageError(f"{path} cannot be written: No space left on device")
        return write(checkpoint, path, note)

    monkeypatch.setattr(store, "write", sometimes)
    values = iter([9.0, 3.0, 4.0, 2.0])
    loop = EvalLoop(toy_data(1), predict, metrics={"m": lambda preds, target: next(values)})
    hook = {"save_best": "m", "rule": "greater", "interval": 0, "on_save_error": "go_on"}
    runner = toy_runner(max_epochs=4, val=loop, work_dir=tmp_path, default_hooks={"checkpoint": hook})
    seen: list[Any] = []
    runner.on("before_train_epoch")(lambda runner: seen.append(runner.hub.get_info("best_ckpt")))
    runner.train()
    assert files(tmp_path) == ["best_m_epoch_3.pth", "epoch_4.pth"]
    assert seen == [None, None, "best_m_epoch_2.pth", "best_m_epoch_3.pth"]


# ----------------------------------------------------------------------------------------------------- failures


def test_the_checkpoint_of_a_failure_waits_for_a_save_in_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, order = store.write, []

    def slow(checkpoint: Any, path: Path, note: seal.Note) -> str:
        time.sleep(0.1)
        order.append(path.name)
        return write(checkpoint, path, note)

    monkeypatch.setattr(store, "write", slow)
    hook = {"async_save": True, "save_on_exception": True}
    with pytest.raises(ZeroDivisionError):
        dies_at(5, toy_runner(work_dir=tmp_path, default_hooks={"checkpoint": hook})).train()
    assert order == ["epoch_1.pth", "iter_5.pth"]
    assert json.loads((tmp_path / "last_checkpoint").read_text())["name"] == "iter_5.pth"


def test_a_buffer_with_infinities_is_no_reason_not_to_save(tmp_path: Path) -> None:
    model = toy_model()
    model.register_buffer("mask", torch.full((2, 2), -torch.inf))
    runner = toy_runner(model=model, work_dir=tmp_path, default_hooks={"checkpoint": {"save_on_exception": True}})
    with pytest.raises(ZeroDivisionError):
        dies_at(6, runner).train()
    assert files(tmp_path) == ["epoch_1.pth", "iter_6.pth"]


def test_a_signal_while_a_resume_is_loading_is_not_forgotten(tmp_path: Path) -> None:
    toy_runner(max_epochs=1, work_dir=tmp_path).train()
    runner = toy_runner(max_epochs=5, work_dir=tmp_path, resume=True)
    runner.on("after_load_checkpoint")(lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        runner.train()
    assert runner.iter == 4


def test_an_interrupted_runner_trains_on_in_another_thread() -> None:
    runner = toy_runner(max_epochs=2)
    sent: list[int] = []

    @runner.on("before_train_iter")
    def once(runner: Runner) -> None:
        if not sent:
            sent.append(runner.iter)
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit):
        runner.train()
    thread = threading.Thread(target=runner.train)
    thread.start()
    thread.join(60)
    assert runner.iter == 8


def test_a_validation_ends_at_once_when_its_state_is_saved_already(tmp_path: Path) -> None:
    recorder = Recorder("before_val_iter")
    runner = toy_runner(max_epochs=2, val_batches=5, work_dir=tmp_path, custom_hooks=[recorder])
    runner.on("before_val")(lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        runner.train()
    assert recorder.events == []


def test_the_folder_is_forced_to_the_disk_after_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    replace, fsync = os.replace, os.fsync

    def noting_replace(old: Path, new: Path) -> None:
        done.append("rename")
        replace(old, new)

    def noting_fsync(file: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)
        fsync(file)

    monkeypatch.setattr(os, "replace", noting_replace)
    monkeypatch.setattr(os, "fsync", noting_fsync)
    store.write({"a": 1}, tmp_path / "a.pth", seal.Note())
    assert done == [".a.pth.partial", "rename", tmp_path.name]


def test_a_kill_between_two_bests_of_one_moment_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(folder: Path, *values: float, **parts: Any) -> Runner:
        falling, rising = iter([0.0, *values]), iter([0.0, *values])
        metrics = {"a": lambda preds, target: next(rising), "b": lambda preds, target: -next(falling)}
        loop = EvalLoop(toy_data(1), predict, metrics=metrics)
        hook = {"save_best": ["a", "b"], "rule": ["greater", "less"], "published_keys": "state_dict"}
        return toy_runner(max_epochs=3, val=loop, work_dir=folder, default_hooks={"checkpoint": hook}, **parts)

    whole = make(tmp_path / "whole", 1.0, 2.0, 3.0)
    whole.train()
    write = store.write

    def killed(checkpoint: Any, path: Path, note: seal.Note) -> str:
        if path.name == "best_b_epoch_3.pth":
            raise KeyboardInterrupt
        return write(checkpoint, path, note)

    monkeypatch.setattr(store, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "broken", 1.0, 2.0, 3.0).train()
    assert "best_a_epoch_3.pth" in files(tmp_path / "broken")
    assert "best_b_epoch_2.pth" in files(tmp_path / "broken")
    monkeypatch.setattr(store, "write", write)
    make(tmp_path / "broken", resume=True).train()
    names = [[name.partition("-")[0] for name in files(tmp_path / each)] for each in ("whole", "broken")]
    assert names[0] == names[1]
    assert names[0] == [
        *["best_a_epoch_3", "best_a_epoch_3.pth", "best_b_epoch_3", "best_b_epoch_3.pth"],
        *["epoch_1.pth", "epoch_2.pth", "epoch_3", "epoch_3.pth"],
    ]


def test_why_a_run_ended_stands_in_its_log(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        dies_at(3, toy_runner(work_dir=tmp_path / "a")).train()
    text = (tmp_path / "a" / "run.log").read_text()
    assert "ended:\nTraceback (most recent call last):" in text
    assert "\nZeroDivisionError\nin hook die, at before_train_iter, epoch=0 iter=3 rank=0 (" in text
    with pytest.raises(HookError):
        toy_runner(work_dir=tmp_path / "b", custom_hooks=[OddState()]).train()
    assert "  ended: the state of OddState['x'] is a builtins.object" in (tmp_path / "b" / "run.log").read_text()


class OddState(Hook):
    def state_dict(self) -> Any:
        return {"x": object()}


def test_a_state_that_cannot_be_saved_is_refused_before_the_first_step(tmp_path: Path) -> None:
    recorder = Recorder("before_train")
    with pytest.raises(HookError, match=r"^the state of OddState\['x'\] is a builtins.object"):
        toy_runner(work_dir=tmp_path, custom_hooks=[OddState(), recorder]).train()
    assert recorder.events == []


def test_weights_that_do_not_fit_are_not_tested(tmp_path: Path) -> None:
    toy_runner(max_epochs=1, work_dir=tmp_path).train()
    other = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 2))
    with pytest.raises(
        StorageError, match="does not fit the model, so it cannot be evaluated:\n  0.weight: the model has"
    ):
        toy_runner(model=other, load_from=tmp_path / "epoch_1.pth").test()


def test_a_nan_in_a_buffer_is_never_saved(tmp_path: Path) -> None:
    model = toy_model()
    model.register_buffer("mean", torch.full((2,), torch.nan))
    with pytest.raises(Exception, match="^mean of the model became NaN or Inf by iteration 4"):
        toy_runner(model=model, work_dir=tmp_path).train()


def test_differences_from_the_saved_run_are_reported(tmp_path: Path) -> None:
    toy_runner(max_epochs=1, work_dir=tmp_path).train()
    model = toy_model()
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.5), accumulate=2)
    runner = toy_runner(
        model=model, optim=optim, max_epochs=2, batches=6, work_dir=tmp_path, resume=True, precision="bf16"
    )
    runner.train()
    text = (tmp_path / "run.log").read_text()
    lines, keep = [line[21:] for line in text.splitlines()], "to use the checkpoint's: keep="
    at = lines.index(f"resumed from {tmp_path / 'epoch_1.pth'}: epoch 1, iteration 4")
    assert lines[at + 1 : at + 6] == [
        '  lr: checkpoint 0.1, config 0.5: the checkpoint wins; to use the config\'s: keep="lr=config"',
        f'  max_epochs: checkpoint 1, config 2: the config wins; {keep}"max_epochs=checkpoint"',
        f'  accumulate: checkpoint 1, config 2: the config wins; {keep}"accumulate=checkpoint"',
        "  batches per epoch: checkpoint 4, config 6: the config wins (no choice: the loader decides)",
        "  precision: checkpoint fp32, config bf16: the config wins (no choice: the run is built with it; to use the "
        "checkpoint's, change the config)",
    ]


def test_a_state_that_a_full_disk_keeps_out_of_memory_does_not_end_the_run(tmp_path: Path) -> None:
    checkpoint = {"save_on_exception": 2, "interval": 0}
    hooks = {"logger": {"interval": 1}, "checkpoint": checkpoint}
    runner = dies_at(9, toy_runner(max_iters=12, val=None, work_dir=tmp_path, default_hooks=hooks))
    (writer,) = runner.writers.all
    assert isinstance(writer, JsonlWriter)
    opened: list[Any] = []

    @runner.on("before_train_iter")
    def fill(runner: Runner) -> None:
        if runner.iter == 3:
            opened.append(writer._file)
            writer._file = open("/dev/full", "ab", buffering=0)  # noqa: SIM115  # closed below
        if runner.iter == 8:
            full, writer._file = writer._file, opened.pop()
            assert full is not None
            full.close()

    with pytest.raises(ZeroDivisionError):
        runner.train()
    said = [line[21:] for line in (tmp_path / "run.log").read_text().splitlines() if " warning: " in line]
    path = tmp_path / "metrics.jsonl"
    assert said == [
        f"warning: {path} cannot be written: No space left on device; will try again",
        f"warning: {path} cannot be written, and a checkpoint needs all records to be in it. The run continues without "
        "a newer state in memory.",
    ]
    assert files(tmp_path) == ["iter_2.pth"]


def test_records_wait_for_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        full = True

        def __init__(self, fileno: Any) -> None:
            self.data = b""
            self.fileno = fileno

        def write(self, data: bytes) -> int:
            if self.full:
                raise OSError(28, "No space left on device")
            self.data += data[:10]
            return len(data[:10])

        def close(self) -> None:
            pass

        def tell(self) -> int:
            return len(self.data)

    writer = JsonlWriter()
    writer.begin(tmp_path, "x")
    assert writer._file is not None
    file = Full(writer._file.fileno)
    monkeypatch.setattr(writer, "_file", file)
    writer.write_scalars({"loss": 1.0}, 1)
    with pytest.raises(
        StorageError, match="metrics.jsonl cannot be written, and a checkpoint needs all records to be in it$"
    ):
        writer.state_dict()
    file.full = False
    writer.write_scalars({"loss": 2.0}, 2)
    writer.flush()
    assert file.data == b'{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 2.0}\n'
    assert writer.state_dict() == {"size": 50}
    monkeypatch.undo()
    writer.close()


@pytest.mark.parametrize("background", [False, True])
def test_extra_facts_go_into_the_meta_of_one_checkpoint_and_replace_none(tmp_path: Path, background: bool) -> None:
    class Asks(Hook):
        def after_train_epoch(self, runner: Runner) -> None:
            if runner.epoch == 0:
                more: dict[str, Any] = {"classes": ["a", "b"], "epoch": 99}
                runner.request_save("mine_{}.pth", meta=more, background=background)
                more["classes"].append("too late")

    toy_runner(max_epochs=2, work_dir=tmp_path, custom_hooks=[Asks()]).train()
    own = torch.load(tmp_path / "mine_1.pth", weights_only=True)["meta"]
    others = [torch.load(tmp_path / f"epoch_{n}.pth", weights_only=True)["meta"] for n in (1, 2)]
    assert (own["classes"], own["epoch"]) == (["a", "b"], 1)
    assert [("classes" in meta, meta["epoch"]) for meta in others] == [(False, 1), (False, 2)]


def test_every_hook_is_looked_at_before_training_also_behind_one_that_has_no_state_yet(tmp_path: Path) -> None:
    class Later(Hook):
        def state_dict(self) -> Any:
            return {"of the data": self.data}  # known only during training

        def load_state_dict(self, state: Any) -> None:
            self.data = state["of the data"]

        def before_train(self, runner: Runner) -> None:
            self.data = 1

    class Odd(Hook):
        def state_dict(self) -> Any:
            return {"set": {1}}

        def load_state_dict(self, state: Any) -> None: ...

    with pytest.raises(
        HookError, match=r"^the state of Odd\['set'\] is a builtins.set, which a checkpoint cannot store"
    ):
        toy_runner(work_dir=tmp_path, custom_hooks=[Later(), Odd()]).train()
    assert not (tmp_path / "epoch_1.pth").exists()


def test_a_state_that_could_not_be_restored_is_refused(tmp_path: Path) -> None:
    class Entry:
        name = "Half"

        class hook:  # noqa: N801
            state_dict = staticmethod(lambda: {"a": 1})

    with pytest.raises(
        HookError, match=r"^Half has a state_dict but no load_state_dict, so its state could not be rest"
    ):
        hook_states.check_states_can_be_saved([Entry()])


def test_a_subclass_may_read_weights_from_files_of_other_kinds(tmp_path: Path) -> None:
    class TextContract(RunContract):
        def read_weights(self, path: Path) -> dict[str, Any]:
            value = float(path.read_text())
            own = self._runner.model.state_dict()
            return {"state_dict": {name: torch.full_like(each, value) for name, each in own.items()}}

    class TextHost(RunnerHost):
        contract_class = TextContract

    class ReadsText(Runner):
        _host_class = TextHost

    (tmp_path / "weights.txt").write_text("0.5")
    toy = toy_runner()
    runner = ReadsText(toy.model, test=toy.test_loop, load_from=tmp_path / "weights.txt", work_dir=tmp_path, quiet=True)
    runner.test()
    assert all(value.unique().tolist() == [0.5] for value in runner.model.state_dict().values())


def test_a_request_may_name_its_file_out_of_where_the_run_stands_when_it_is_written(tmp_path: Path) -> None:
    class Asks(Hook):
        def after_train_iter(self, runner: Runner) -> None:
            if runner.iter == 1:
                runner.request_save(lambda at: f"at_{at.epoch}_{at.iter}.pth")

    runner = toy_runner(
        work_dir=tmp_path, max_epochs=1, accumulate=3, default_hooks={"checkpoint": None}, custom_hooks=[Asks()]
    )
    runner.train()
    assert files(tmp_path) == ["at_0_3.pth"]


def test_weights_that_another_program_keeps_under_model_are_loaded(tmp_path: Path) -> None:
    other = toy_model(seed=3)
    torch.save({"model": other.state_dict(), "epoch": 4}, tmp_path / "theirs.pth")
    runner = toy_runner(work_dir=tmp_path / "run", load_from=tmp_path / "theirs.pth")
    runner.val()
    assert all(a.equal(b) for a, b in zip(runner.model.parameters(), other.parameters(), strict=True))


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.pth"))


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


def test_a_save_in_the_middle_of_an_epoch_does_not_take_the_name_of_an_epoch(tmp_path: Path) -> None:
    hooks = {"checkpoint": {"filename_tmpl": "ckpt-{}.pth", "interval": 1}}
    runner = toy_runner(max_epochs=2, work_dir=tmp_path, default_hooks=hooks)

    @runner.on("after_train_iter")
    def stop(runner: Runner) -> None:
        if runner.iter == 5:
            runner.stop("enough")

    runner.train()
    assert checkpoints(tmp_path) == ["ckpt-1.pth", "iter_6.pth"]


def test_records_are_cut_only_when_the_checkpoint_was_taken(tmp_path: Path) -> None:
    toy_runner(max_epochs=3, work_dir=tmp_path).train()
    before = (tmp_path / "metrics.jsonl").read_text()
    with pytest.raises(StorageError, match="does not fit this run; nothing was loaded"):
        toy_runner(model=nn.Linear(4, 2), max_epochs=3, work_dir=tmp_path, resume=tmp_path / "epoch_1.pth").train()
    assert (tmp_path / "metrics.jsonl").read_text() == before
    assert (tmp_path / "epoch_3.pth").is_file()


# ------------------------------------------------------------------------- verification of large files, later


def test_a_large_file_is_verified_in_the_background_before_anything_refers_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "SMALL", 0)
    go, verify, seen = threading.Event(), store.verify, []

    def wait_and_verify(path: Path) -> None:
        assert threading.current_thread() is not threading.main_thread()
        assert go.wait(60)
        verify(path)

    monkeypatch.setattr(store, "verify", wait_and_verify)
    hook = {"max_keep_ckpts": 1, "save_last": False}
    runner = toy_runner(max_epochs=2, work_dir=tmp_path, default_hooks={"checkpoint": hook})

    @runner.on("before_train_epoch")
    def look(runner: Runner) -> None:
        seen.append((files(tmp_path), (tmp_path / "last_checkpoint").exists(), runner.saving.busy))

    @runner.on("after_train_epoch")
    def finish(runner: Runner) -> None:
        if len(seen) == 2:  # the first file was looked at
            go.set()

    runner.train()
    assert seen == [([], False, False), (["epoch_1.pth"], False, True)]
    assert files(tmp_path) == ["epoch_2.pth"]
    assert json.loads((tmp_path / "last_checkpoint").read_text())["name"] == "epoch_2.pth"


def test_damage_that_is_found_later_ends_the_run_and_the_old_checkpoint_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "SMALL", 0)
    verify = store.verify

    def damage_and_verify(path: Path) -> None:
        if path.name == "epoch_2.pth":
            data = bytearray(path.read_bytes())
            data[1000] ^= 1
            path.write_bytes(bytes(data))
        verify(path)

    monkeypatch.setattr(store, "verify", damage_and_verify)
    runner = toy_runner(max_epochs=4, work_dir=tmp_path, default_hooks={"checkpoint": {"max_keep_ckpts": 1}})
    with pytest.raises(StorageError) as raised:
        runner.train()
    assert str(raised.value) == (
        f"{tmp_path / 'epoch_2.pth'} was written, but reading it back shows damage: its bytes do not match its "
        "SHA-256; check the disk"
    )
    assert files(tmp_path) == ["epoch_1.pth", "epoch_2.pth"]
    assert json.loads((tmp_path / "last_checkpoint").read_text())["name"] == "epoch_1.pth"
    assert (runner.saving.saved_at, runner.saving.last_path) == (-1, None)


def test_after_a_signal_the_report_waits_for_the_verification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "SMALL", 0)
    monkeypatch.setattr(store, "verify", lambda path: (_ for _ in ()).throw(StorageError("damaged")))
    runner = toy_runner(max_epochs=4, work_dir=tmp_path)
    runner.on("after_train_iter")(lambda runner: os.kill(os.getpid(), signal.SIGTERM) if runner.iter == 1 else None)
    with pytest.raises(StorageError, match="damaged"):
        runner.train()
    assert "ended by SIGTERM" not in (tmp_path / "run.log").read_text()


def train_and_signal(folder: Path, monkeypatch: pytest.MonkeyPatch, fails: list[str], **checkpoint: Any) -> Runner:
    """Train. The first verifications of some files fail, and a signal comes in the sixth iteration."""
    monkeypatch.setattr(saving, "SMALL", 0)
    verify, go = store.verify, threading.Event()

    def fail_once(path: Path) -> None:
        if path.name in fails:
            assert go.wait(60)
            fails.remove(path.name)
            raise StorageError(f"{path.name} is damaged")
        verify(path)

    monkeypatch.setattr(store, "verify", fail_once)
    runner = toy_runner(max_epochs=4, work_dir=folder, default_hooks={"checkpoint": checkpoint})

    @runner.on("after_train_iter")
    def send(runner: Runner) -> None:
        if runner.iter == 5:
            go.set()
            runner.saving._background.join()  # the failure is there, and nobody has looked at it yet
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as ended:
        runner.train()
    assert ended.value.code == 143
    assert fails == []
    return runner


@pytest.mark.parametrize("checkpoint", [{}, {"async_save": True}], ids=["verified later", "written later"])
def test_a_save_that_failed_right_before_a_signal_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: dict[str, Any]
) -> None:
    """The failure comes in the iteration of the signal: after the save of the fifth iteration."""
    checkpoint = {"by_epoch": False, "interval": 5, **checkpoint}
    runner = train_and_signal(tmp_path / "run", monkeypatch, ["iter_5.pth"], **checkpoint)
    lines = (tmp_path / "run" / "run.log").read_text()
    assert "warning: iter_5.pth is damaged. The run ends after a signal, and saves its state again." in lines
    assert "ended by SIGTERM after " in lines
    assert f": saved {tmp_path}/run/iter_6.pth\n" in lines
    assert json.loads((tmp_path / "run" / "last_checkpoint").read_text())["name"] == "iter_6.pth"
    assert runner.saving.saved_at == 6
    again = toy_runner(max_epochs=4, work_dir=tmp_path / "run", resume=True)
    again.train()
    whole = toy_runner(max_epochs=4, work_dir=tmp_path / "whole")
    whole.train()
    assert all(map(torch.equal, again.model.state_dict().values(), whole.model.state_dict().values()))


def test_a_save_that_is_due_with_the_signal_does_not_raise_the_error_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_and_signal(tmp_path, monkeypatch, ["iter_3.pth"], by_epoch=False, interval=3)
    assert json.loads((tmp_path / "last_checkpoint").read_text())["name"] == "iter_6.pth"
    assert files(tmp_path) == ["iter_3.pth", "iter_6.pth"]


def test_without_a_signal_the_error_of_a_save_in_the_background_still_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **options: Any) -> None:
        raise StorageError("last_checkpoint cannot be written: No space left on device")

    monkeypatch.setattr(saving, "SMALL", 0)
    hook = {"checkpoint": {"by_epoch": False, "interval": 2, "max_keep_ckpts": 1}}
    runner = toy_runner(max_epochs=4, work_dir=tmp_path, default_hooks=hook)

    @runner.on("before_train_iter")
    def fill_the_disk(runner: Runner) -> None:
        if runner.iter == 3:
            runner.saving._background.join()  # the first checkpoint is complete
            monkeypatch.setattr(store, "point_to", full)

    with pytest.raises(StorageError, match="No space left on device"):
        runner.train()
    assert files(tmp_path) == ["iter_2.pth", "iter_4.pth"], "the old one stays until the new one is complete"
    monkeypatch.undo()
    again = toy_runner(max_epochs=4, work_dir=tmp_path, resume=True)
    again.train()
    assert again._host.loading.resumed_at == 4, "the file itself is intact"


def test_a_second_save_in_the_background_waits_for_the_first_and_both_have_their_own_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, began, order, go = store.write, threading.Event(), [], threading.Event()

    def slow(checkpoint: Any, path: Path, note: seal.Note) -> str:
        order.append(f"begin {path.name}")
        if path.name == "iter_1.pth":
            began.set()
            assert go.wait(60)
        found = write(checkpoint, path, note)
        order.append(f"end {path.name}")
        return found

    monkeypatch.setattr(store, "write", slow)
    runner = toy_runner(max_epochs=1, work_dir=tmp_path, default_hooks={"checkpoint": None})
    weights: dict[str, torch.Tensor] = {}

    @runner.on("after_train_iter")
    def ask(runner: Runner) -> None:
        if runner.iter == 1:
            assert began.wait(60)
            threading.Timer(0.2, go.set).start()
        if runner.iter < 2:
            weights[f"iter_{runner.iter + 1}.pth"] = next(iter(runner.model.state_dict().values())).clone()
            runner.request_save(background=True, done=lambda path: order.append(f"done {path.name}"))

    runner.train()
    assert order == [f"{what} {name}" for name in ("iter_1.pth", "iter_2.pth") for what in ("begin", "end", "done")]
    for name, expected in weights.items():
        saved = torch.load(tmp_path / name, weights_only=True)
        assert torch.equal(next(iter(saved["state_dict"].values())), expected)
        assert f"iter_{saved['meta']['iter']}.pth" == name


KILLED = """
import os, signal, sys, threading, time
from hookline.checkpoint import store
from hookline.state import saving
from hookline.testing import toy_runner

saving.SMALL = 0
verify = store.verify

def killed(path):
    if path.name == "iter_6.pth":
        os.kill(os.getpid(), signal.SIGKILL)
    verify(path)

store.verify = killed
toy_runner(max_epochs=4, work_dir=sys.argv[1], default_hooks={"checkpoint": {"by_epoch": False, "interval": 3,
    "max_keep_ckpts": 1}}).train()
"""


@pytest.mark.processes
def test_a_kill_during_the_verification_leaves_a_run_that_resumes(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    ended = subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    assert files(folder) == ["iter_3.pth", "iter_6.pth"]
    assert json.loads((folder / "last_checkpoint").read_text())["name"] == "iter_3.pth"
    hook = {"checkpoint": {"by_epoch": False, "interval": 3, "max_keep_ckpts": 1}}
    again = toy_runner(max_epochs=4, work_dir=folder, resume=True, default_hooks=hook)
    again.train()
    assert again._host.loading.resumed_at == 6, "its bytes are intact"
    whole = toy_runner(max_epochs=4, work_dir=tmp_path / "whole", default_hooks=hook)
    whole.train()
    assert all(map(torch.equal, again.model.state_dict().values(), whole.model.state_dict().values()))
    assert files(folder) == files(tmp_path / "whole")
