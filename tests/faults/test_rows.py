"""The numbered faults that need no separate process, and a check that no number is missing."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop
from hookline.checkpoint import store
from hookline.checkpoint.seal import Note
from hookline.data.loader import ResumableLoader
from hookline.engine.steps import cross_entropy, predict
from hookline.errors import ConfigError, NumericsError, StorageError, exit_code_of
from hookline.state import snapshot
from hookline.testing import toy_data, toy_model, toy_runner


def test_every_numbered_fault_of_a_single_process_has_a_test() -> None:
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py"))
    rows = {int(number) for number in re.findall(r"fault_([0-9]+)", text)}
    assert rows == {*range(1, 7), *range(12, 34)}


def test_fault_13_a_folder_that_cannot_be_written_is_refused_before_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    steps: list[int] = []
    runner = toy_runner(work_dir=tmp_path / "file" / "run")
    runner.on("before_train_iter")(lambda: steps.append(1))
    with pytest.raises(StorageError) as refused:
        runner.train()
    assert str(refused.value) == f"work_dir {tmp_path / 'file' / 'run'} cannot be written: Not a directory"
    assert (exit_code_of(refused.value), steps) == (5, [])


def test_fault_20_mismatches_of_a_checkpoint_are_listed_and_nothing_is_loaded(tmp_path: Path) -> None:
    first = toy_runner(max_epochs=1, work_dir=tmp_path)
    first.train()
    model = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 2), nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    runner = toy_runner(model=model, optim=Optim(optimizer, [scheduler]), resume=tmp_path / "epoch_1.pth")
    with pytest.raises(StorageError) as refused:
        runner.train()
    assert str(refused.value).splitlines() == [
        f"{tmp_path / 'epoch_1.pth'} does not fit this run; nothing was loaded:",
        "  missing: 3.weight (2, 2)",
        "  missing: 3.bias (2,)",
        "  0.weight: the model has (9, 4), the checkpoint (8, 4)",
        "  0.bias: the model has (9,), the checkpoint (8,)",
        "  2.weight: the model has (2, 9), the checkpoint (2, 8)",
        "  the optimizer: this run has SGD, StepLR, the checkpoint SGD",
        "  the optimizer: this run has groups of [6] parameters, the checkpoint of [4]",
    ]
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert runner.iter == 0


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ({"schedulers": 1}, "the optimizer: this run has SGD, StepLR, the checkpoint SGD"),
        (
            {"precision": "fp16"},
            "the optimizer: this run has a gradient scaler, the checkpoint has none; the precision has changed",
        ),
        ({"adam": True}, "the optimizer: exp_avg of parameter 0 is (8, 4), but the parameter is (9, 4)"),
    ],
)
def test_fault_20_optimizers_schedulers_and_scalers_are_compared_too(
    tmp_path: Path, parts: dict[str, Any], line: str
) -> None:
    def make(hidden: int, schedulers: int = 0, precision: str = "fp32", adam: bool = False, **more: Any) -> Runner:
        model = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 2))
        optimizer = torch.optim.Adam(model.parameters()) if adam else torch.optim.SGD(model.parameters(), lr=0.1)
        optim = Optim(optimizer, [torch.optim.lr_scheduler.StepLR(optimizer, 9) for _ in range(schedulers)])
        return toy_runner(model=model, optim=optim, max_epochs=1, precision=precision, **more)

    adam = bool(parts.get("adam"))
    make(8, adam=adam, work_dir=tmp_path).train()
    with pytest.raises(StorageError) as refused:
        make(9 if adam else 8, resume=tmp_path / "epoch_1.pth", **parts).train()
    assert f"  {line}" in str(refused.value).splitlines()


def test_fault_20_a_checkpoint_of_a_later_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy_runner(max_epochs=1, work_dir=tmp_path).train()
    monkeypatch.setattr(snapshot, "FORMAT", 0)
    with pytest.raises(StorageError) as refused:
        toy_runner(resume=tmp_path / "epoch_1.pth").train()
    assert str(refused.value) == (
        f"{tmp_path / 'epoch_1.pth'} has format 1, but this hookline reads only up to format 0; use a newer hookline"
    )


@pytest.mark.parametrize("at", [0, 5])
def test_fault_21_a_loss_that_is_not_finite_ends_the_run_and_is_never_saved(tmp_path: Path, at: int) -> None:
    def spoiled(model: nn.Module, batch: Any) -> Any:
        return cross_entropy(model, batch) * (math.nan if runner.iter >= at else 1.0)

    runner = toy_runner(max_epochs=3, work_dir=tmp_path, step=spoiled, default_hooks={"logger": None})
    with pytest.raises(NumericsError) as refused:
        runner.train()
    assert exit_code_of(refused.value) == 4
    for path in tmp_path.glob("*.pth"):
        assert all(value.isfinite().all() for value in store.read(path, sealed=True)["state_dict"].values())


class Broken(Dataset[Any]):
    """A data set whose sample 13 cannot be read."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        if index == 13:
            raise ValueError("a broken file")
        return torch.ones(4), torch.tensor(1)


@pytest.mark.parametrize("workers", [0, 2])
def test_fault_24_a_dataset_that_raises_is_named_with_sample_epoch_and_worker(workers: int) -> None:
    loader = ResumableLoader(Broken(), 4, num_workers=workers)
    runner = toy_runner()
    runner.train_loop.dataloader = loader
    with pytest.raises(ValueError, match="a broken file") as failed:
        runner.train()
    text = str(failed.value) + "\n".join(failed.value.__notes__)
    where = "worker 1" if workers else "the training process"
    assert f"reading sample 13 of epoch 0 in {where}" in text
    assert "in the ResumableLoader, at batch 3 of epoch 0" in text
    assert exit_code_of(failed.value) == 3


class Unsendable(Dataset[Any]):
    """A data set whose sample 13 is, or raises, something that a worker cannot pickle."""

    def __init__(self, raises: bool) -> None:
        self.raises = raises

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        class LocalError(ValueError):
            pass

        if index == 13 and self.raises:
            raise LocalError("a broken file")
        return (lambda: index) if index == 13 else index


@pytest.mark.parametrize(
    ("raises", "kind", "texts"),
    [
        (True, ValueError, ["<locals>.LocalError: a broken file", "reading sample 13 of epoch 0 in worker 1"]),
        (False, AttributeError, ["pickle local object", "sending a batch from worker 1 to the training process"]),
    ],
)
def test_fault_24_what_a_worker_cannot_send_is_an_error_and_not_an_endless_wait(
    raises: bool, kind: type[Exception], texts: list[str]
) -> None:
    # Without the timeout, a failure of this test would be an endless wait, too.
    loader = ResumableLoader(Unsendable(raises), 4, num_workers=2, collate_fn=tuple, timeout=120)
    runner = toy_runner(step=lambda model, batch: cross_entropy(model, (torch.ones(4, 4), torch.ones(4).long())))
    runner.train_loop.dataloader = loader
    with pytest.raises(kind) as failed:
        runner.train()
    text = str(failed.value) + "\n".join(failed.value.__notes__)
    for each in [*texts, "in the ResumableLoader, at batch 3 of epoch 0"]:
        assert each in text
    assert (type(failed.value), exit_code_of(failed.value)) == (kind, 3)


def test_fault_25_an_unknown_monitored_metric_is_refused_before_the_first_step() -> None:
    seen: list[str] = []

    class Counts:
        def update(self, preds: Any, target: Any) -> None:
            seen.append("update")

        def compute(self) -> float:
            return 0.5

        def reset(self) -> None:
            seen.append("reset")

    loop = EvalLoop(toy_data(3), predict, metrics={"accuracy": Counts()})
    hook = {"checkpoint": {"save_best": "accurracy"}}
    runner = toy_runner(val=loop, default_hooks=hook)
    runner.on("before_val")(lambda: seen.append("point"))
    runner.on("before_train")(lambda: seen.append("train"))
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert str(refused.value) == "CheckpointHook: validation returns no metric 'accurracy'; did you mean 'accuracy'?"
    assert seen == ["reset", "update"]


def test_fault_25_the_dry_batch_changes_nothing(tmp_path: Path) -> None:
    weights = []
    modes: list[bool] = []
    for best in (None, "accuracy"):
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
        model.load_state_dict(torch.load(tmp_path / "w") if best else model.state_dict())
        torch.save(model.state_dict(), tmp_path / "w")
        runner = toy_runner(model=model, default_hooks={"checkpoint": {"save_best": best}})
        runner.on("before_train")(lambda runner: modes.append(runner.model.training))
        runner.train()
        weights.append(str(model.state_dict()))
    assert weights[0] == weights[1]
    assert modes == [True, True]


def test_fault_26_a_metric_that_is_nan_is_never_the_best(tmp_path: Path) -> None:
    values = iter([math.nan, 0.2, math.nan])
    loop = EvalLoop(toy_data(1), predict, metrics={"accuracy": lambda preds, target: next(values)})
    toy_runner(
        max_epochs=3, val=loop, work_dir=tmp_path, default_hooks={"checkpoint": {"save_best": "accuracy"}}
    ).train()
    assert [path.name for path in tmp_path.glob("best*")] == ["best_accuracy_epoch_2.pth"]


def test_fault_28_an_observer_that_draws_does_not_change_the_training(tmp_path: Path) -> None:
    class Draws(Hook):
        role = "observer"

        def after_train_iter(self, runner: Any) -> None:
            torch.rand(3)

    ends = []
    for hooks in ([], [Draws()]):
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        model[0].load_state_dict(toy_model()[0].state_dict())
        model[2].load_state_dict(toy_model()[2].state_dict())
        toy_runner(model=model, custom_hooks=hooks).train()
        ends.append(str(model.state_dict()))
    assert ends[0] == ends[1]


def test_fault_29_a_second_run_in_the_folder_is_refused(tmp_path: Path) -> None:
    """See also tests/rundir/test_ownership.py, for a lock that another process holds, and for one left by a kill."""
    first, second = toy_runner(work_dir=tmp_path), toy_runner(work_dir=tmp_path)
    first.on("before_train")(lambda: second.val())
    with pytest.raises(StorageError, match=f"is in use by another run of this process \\({os.getpid()}\\)"):
        first.train()


def test_fault_32_a_kill_inside_an_accumulation_window_resumes_at_the_last_optimizer_step(tmp_path: Path) -> None:
    def make(folder: Path, **parts: Any) -> Runner:
        hooks = {"checkpoint": {"interval": 1, "by_epoch": False}}
        return toy_runner(max_epochs=2, batches=8, accumulate=3, work_dir=folder, default_hooks=hooks, **parts)

    whole = make(tmp_path / "whole")
    whole.train()
    broken = make(tmp_path / "broken")

    @broken.on("after_backward")
    def die(runner: Runner) -> None:
        if runner.iter == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken.train()
    assert sorted(path.name for path in (tmp_path / "broken").glob("*.pth")) == ["iter_3.pth"]
    resumed = make(tmp_path / "broken", resume=True)
    resumed.train()
    assert str(resumed.model.state_dict()) == str(whole.model.state_dict())


def test_fault_33_another_thread_count_or_version_is_reported_and_the_run_continues(tmp_path: Path) -> None:
    toy_runner(max_epochs=1, work_dir=tmp_path).train()
    path = tmp_path / "epoch_1.pth"
    checkpoint = store.read(path, sealed=True)
    threads = torch.get_num_threads()
    checkpoint["meta"] |= {"torch": "1.0", "threads": threads + 7, "seed": 5}
    store.write(checkpoint, path, Note(4, 0, True))
    runner = toy_runner(max_epochs=2, work_dir=tmp_path, resume=True)
    runner.train()
    assert runner.iter == 8
    text = (tmp_path / "run.log").read_text()
    bits = "results may differ in their last bits\n"
    assert f"  torch: checkpoint 1.0, this run {torch.__version__}: {bits}" in text
    assert f"  threads: checkpoint {threads + 7}, this run {threads}: {bits}" in text
    assert (
        "  seed: checkpoint 5, config 0: the config wins (no choice: the data is built with it; to use the "
        "checkpoint's, change the config. From now on, the order of the data is different)\n" in text
    )


def test_two_optims_whose_windows_never_close_together_save_what_is_open(tmp_path: Path) -> None:
    def alternating(model: nn.Module, batch: Any, optim: Any) -> Any:
        loss = cross_entropy(model, batch)
        optim["a" if runner_of[0].iter % 2 else "b"].update(loss)
        return {"loss": loss}

    runner_of: list[Runner] = []

    def make(folder: Path, **parts: Any) -> Runner:
        model = toy_model()
        optims = {
            "a": Optim(torch.optim.SGD(model[0].parameters(), lr=0.1), accumulate=3),
            "b": Optim(torch.optim.SGD(model[2].parameters(), lr=0.1), accumulate=2),
        }
        runner = Runner(
            model,
            train=TrainLoop(toy_data(16), alternating, max_epochs=1),
            optim=optims,
            work_dir=folder,
            device="cpu",
            quiet=True,
            default_hooks={"checkpoint": {"interval": 5, "by_epoch": False}},
            **parts,
        )
        runner_of[:] = [runner]
        return runner

    whole = make(tmp_path / "whole")
    whole.train()
    assert (tmp_path / "whole" / "iter_5.pth").is_file()
    resumed = make(tmp_path / "other", resume=tmp_path / "whole" / "iter_5.pth")
    resumed.train()
    assert str(resumed.model.state_dict()) == str(whole.model.state_dict())
