from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, MultiStepLR

from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop
from hookline.data.loader import ResumableLoader
from hookline.engine.metrics import accuracy
from hookline.engine.steps import cross_entropy, predict
from hookline.errors import StorageError
from hookline.testing import Recorder, toy_data, toy_runner


class Counter(Hook):
    """A hook with a state."""

    def __init__(self) -> None:
        self.seen = 0

    def after_train_iter(self, runner: Any) -> None:
        self.seen += 1

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


def noisy_runner(folder: Path, by: str = "max_epochs", **parts: Any) -> Runner:
    """Return a run with a lot that a resume can break: dropout, momentum, two schedulers, shuffling, accumulation."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedulers = [(CosineAnnealingLR(optimizer, 40), "iter"), (MultiStepLR(optimizer, [1, 2], 0.5), "epoch")]
    inputs = torch.randn(50, 4)
    data = torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())
    length: dict[str, Any] = {by: 4 if by == "max_epochs" else 24}
    given: dict[str, Any] = {
        "train": TrainLoop(
            ResumableLoader(data, 8, shuffle=True), cross_entropy, val_interval=1 if by == "max_epochs" else 5, **length
        ),
        "val": EvalLoop(toy_data(2), predict, metrics={"accuracy": accuracy}),
        "optim": Optim(optimizer, schedulers, accumulate=2),
        "default_hooks": {"logger": {"interval": 3}, "checkpoint": {"interval": 1 if by == "max_epochs" else 5}},
        "custom_hooks": [Counter()],
        **parts,
    }
    return Runner(model, work_dir=folder, quiet=True, device="cpu", **given)


def without_times(path: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in record.items() if not name.endswith("time")} for record in records]


def assert_same_end(ours: Runner, theirs: Runner) -> None:
    for name, value in theirs.model.state_dict().items():
        assert value.equal(ours.model.state_dict()[name]), name
    assert str(ours.optims.sole.optimizer.state_dict()) == str(theirs.optims.sole.optimizer.state_dict())
    assert ours.position == theirs.position
    assert ours.updates == theirs.updates
    counters = [[hook.seen for hook in runner.hooks if isinstance(hook, Counter)] for runner in (ours, theirs)]
    assert counters[0] == counters[1]
    assert without_times(ours.work_dir / "metrics.jsonl") == without_times(theirs.work_dir / "metrics.jsonl")


@pytest.mark.parametrize("by", ["max_epochs", "max_iters"])
@pytest.mark.parametrize("point", ["after_train_iter", "before_val", "after_val_epoch", "before_train_iter"])
@pytest.mark.parametrize("at", [7, 14, 15, 20])
def test_a_run_that_died_resumes_to_the_same_bits(tmp_path: Path, by: str, point: str, at: int) -> None:
    whole = noisy_runner(tmp_path / "whole", by)
    whole.train()
    broken = noisy_runner(tmp_path / "broken", by)

    @broken.on(point)
    def die(runner: Runner) -> None:
        if runner.iter >= at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken.train()
    resumed = noisy_runner(tmp_path / "broken", by, resume=True)
    resumed.train()
    assert_same_end(resumed, whole)


def test_a_save_in_the_middle_of_an_epoch_resumes_there_without_reading_the_batches_before(tmp_path: Path) -> None:
    whole, first = noisy_runner(tmp_path / "whole"), noisy_runner(tmp_path / "broken")
    whole.train()

    @first.on("after_train_iter")
    def save_and_die(runner: Runner) -> None:
        if runner.iter == 9:
            runner.request_save()
        if runner.iter == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.train()
    recorder = Recorder("before_train_epoch", "before_train_iter")
    resumed = noisy_runner(tmp_path / "broken", resume=True, custom_hooks=[Counter(), recorder])
    resumed.train()
    assert recorder.events[:2] == [("before_train_epoch", 1, 11), ("before_train_iter", 1, 11)]
    assert recorder.arguments[1]["batch_idx"] == 4
    assert_same_end(resumed, whole)


def test_the_pointer_is_relative_so_a_moved_folder_still_resumes(tmp_path: Path) -> None:
    runner = noisy_runner(tmp_path / "here")
    runner.train()
    pointer = json.loads((tmp_path / "here" / "last_checkpoint").read_text())
    assert (pointer["name"], pointer["step"], len(pointer["sha256"])) == ("epoch_4.pth", 28, 64)
    shutil.move(tmp_path / "here", tmp_path / "there")
    resumed = noisy_runner(tmp_path / "there", resume=True)
    resumed.train()
    assert resumed.iter == 28
    assert "resumed from" in (tmp_path / "there" / "run.log").read_text()


def test_a_path_resumes_that_one(tmp_path: Path) -> None:
    noisy_runner(tmp_path / "a").train()
    recorder = Recorder("before_train_epoch")
    runner = noisy_runner(tmp_path / "b", resume=tmp_path / "a" / "epoch_2.pth", custom_hooks=[Counter(), recorder])
    runner.train()
    assert [event.epoch for event in recorder.events] == [2, 3]


def test_with_no_checkpoint_yet_it_starts_afresh_and_drops_what_a_dead_attempt_recorded(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 3}\n')
    runner = noisy_runner(tmp_path, resume=True)
    runner.train()
    assert without_times(tmp_path / "metrics.jsonl")[0]["step"] == 3
    assert "epoch" in without_times(tmp_path / "metrics.jsonl")[0]


def test_load_from_takes_weights_only_and_lists_what_does_not_fit(tmp_path: Path) -> None:
    first = noisy_runner(tmp_path / "a")
    first.train()
    weights = tmp_path / "weights.pth"
    state = first.model.state_dict()
    state["3.weight"] = torch.zeros(5, 16)
    state["extra"] = torch.zeros(1)
    torch.save(state, weights)
    runner = noisy_runner(tmp_path / "b", load_from=weights)
    seen: list[Any] = []

    @runner.on("before_train")
    def look(runner: Runner) -> None:
        seen.append((runner.iter, runner.model.state_dict()["0.weight"].equal(state["0.weight"])))

    runner.train()
    assert seen == [(0, True)]
    text = (tmp_path / "b" / "run.log").read_text()
    assert (
        f"weights from {weights}, except:\n  surplus: extra\n  3.weight: the model has (2, 16), the checkpoint (5, 16)"
        in text
    )


def test_a_checkpoint_of_another_model_is_refused_and_nothing_is_loaded(tmp_path: Path) -> None:
    noisy_runner(tmp_path / "a").train()
    runner = toy_runner(resume=tmp_path / "a" / "epoch_4.pth", max_epochs=5)
    before = [parameter.detach().clone() for parameter in runner.model.parameters()]
    with pytest.raises(StorageError) as refused:
        runner.train()
    lines = str(refused.value).splitlines()
    assert lines[0] == f"{tmp_path / 'a' / 'epoch_4.pth'} does not fit this run; nothing was loaded:"
    assert "  missing: 2.weight (2, 8)" in lines
    assert "  0.weight: the model has (8, 4), the checkpoint (16, 4)" in lines
    assert all(a.equal(b) for a, b in zip(before, runner.model.parameters(), strict=True))


def test_files_that_are_not_checkpoints_are_refused(tmp_path: Path) -> None:
    for name, content, message in [
        ("text.pth", b"hello", "cannot be resumed: it does not end with a seal"),
        ("none.pth", None, "there is no checkpoint"),
    ]:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(StorageError, match=message):
            toy_runner(resume=tmp_path / name).train()
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(StorageError, match="holds a list, not a checkpoint"):
        toy_runner(load_from=tmp_path / "list.pth").train()
    torch.save({"weights": 3}, tmp_path / "odd.pth")
    with pytest.raises(StorageError, match="contains no weights: it has weights, but no 'state_dict'"):
        toy_runner(load_from=tmp_path / "odd.pth").train()


def test_a_hostile_pickle_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "owned",))

    torch.save({"state_dict": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(StorageError, match="cannot be read as a checkpoint"):
        toy_runner(load_from=tmp_path / "evil.pth").train()
    assert not (tmp_path / "owned").exists()


def test_a_checkpoint_has_the_documented_keys_and_hooks_may_add_to_it(tmp_path: Path) -> None:
    class Adds(Hook):
        loaded: Any = None

        def before_save_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
            checkpoint["mine"] = {"epoch": runner.epoch}

        def after_load_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
            self.loaded = checkpoint["mine"]

    noisy_runner(tmp_path, custom_hooks=[Counter(), Adds()]).train()
    checkpoint = torch.load(tmp_path / "epoch_4.pth", weights_only=True)
    assert sorted(checkpoint) == sorted(
        ["meta", "state_dict", "optimizer", "param_schedulers", "message_hub", "scaler", "rng", "hooks", "position",
         "writers", "metric_states", "modules", "mine"]
    )  # fmt: skip
    loss = checkpoint["hooks"]["LoggerHook"].pop("loss_of_epoch")
    assert {**loss, "mean": 0.0} == {"sum": 0.0, "weight": 0.0, "seen": 1, "mean": 0.0, "weight_of_mean": 6.25}
    assert checkpoint["hooks"] == {"Counter": {"seen": 28}, "LoggerHook": {"logged_at": 27}}
    hook = Adds()
    noisy_runner(tmp_path, resume=True, custom_hooks=[Counter(), hook]).train()
    assert hook.loaded == {"epoch": 4}


def test_a_hook_that_is_gone_is_named_and_its_state_left(tmp_path: Path) -> None:
    noisy_runner(tmp_path).train()
    runner = noisy_runner(tmp_path, resume=True, custom_hooks=[])
    runner.train()
    text = (tmp_path / "run.log").read_text()
    assert "  hook Counter: only in the checkpoint, so it is dropped, with its state\n" in text


def test_old_checkpoints_go_when_there_are_enough_new_ones(tmp_path: Path) -> None:
    hooks = {"checkpoint": {"interval": 1, "max_keep_ckpts": 2}}
    toy_runner(max_epochs=12, work_dir=tmp_path, default_hooks=hooks).train()
    assert sorted(path.name for path in tmp_path.glob("*.pth")) == ["epoch_11.pth", "epoch_12.pth"]


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ({"interval": 2}, ["epoch_2.pth", "epoch_4.pth", "epoch_5.pth"]),
        ({"interval": 2, "save_last": False}, ["epoch_2.pth", "epoch_4.pth"]),
        ({"interval": 2, "save_begin": 1}, ["epoch_1.pth", "epoch_3.pth", "epoch_5.pth"]),
        ({"interval": 0}, ["epoch_5.pth"]),
        ({"interval": 7, "by_epoch": False}, ["iter_10.pth", "iter_7.pth"]),
        ({"interval": 5, "filename_tmpl": "weights-{}.pth"}, ["weights-5.pth"]),
    ],
)
def test_saves_follow_interval_begin_and_last(tmp_path: Path, parameters: dict[str, Any], names: list[str]) -> None:
    toy_runner(max_epochs=5, batches=2, work_dir=tmp_path, default_hooks={"checkpoint": parameters}).train()
    assert sorted(path.name for path in tmp_path.glob("*.pth")) == names


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
    assert resumed._host.loading.pending is None
    assert len(resumed.hub.get_scalar("train/loss")) == 10


def test_a_checkpoint_behind_the_end_of_the_data_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    runner = toy_runner(max_iters=7, batches=4, work_dir=tmp_path, val=None)
    runner.train()
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(StorageError) as refused:
        toy_runner(max_iters=20, batches=2, work_dir=tmp_path, resume=True).train()
    assert str(refused.value).splitlines()[1:] == [
        "  the data: the checkpoint is at batch 3 of its epoch, but the loader now has only 2"
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_pointer_that_is_gone_does_not_mean_that_there_is_nothing(tmp_path: Path) -> None:
    toy_runner(max_epochs=2, work_dir=tmp_path).train()
    (tmp_path / "last_checkpoint").unlink()
    recorder = Recorder("before_train_epoch")
    toy_runner(max_epochs=3, work_dir=tmp_path, resume=True, custom_hooks=[recorder]).train()
    assert [event.epoch for event in recorder.events] == [2]


def test_resuming_from_another_folder_starts_a_fresh_folder(tmp_path: Path) -> None:
    toy_runner(max_epochs=1, work_dir=tmp_path / "a").train()
    toy_runner(max_epochs=3, work_dir=tmp_path / "b").train()
    toy_runner(max_epochs=2, work_dir=tmp_path / "b", resume=tmp_path / "a" / "epoch_1.pth").train()
    assert (tmp_path / "b" / "old-1" / "epoch_3.pth").is_file()
    lines = (tmp_path / "b" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [4, 8, 8]  # the validation of epoch 1 was missing


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
