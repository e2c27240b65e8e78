from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline import EvalLoop, Runner
from hookline.checkpoint import seal, store
from hookline.engine.steps import predict
from hookline.errors import ConfigError, NumericsError, StorageError
from hookline.hooks import CheckpointHook
from hookline.hooks.best import Best
from hookline.testing import Recorder, toy_data, toy_model, toy_runner


class Given:
    """A metric that returns one value after another."""

    def __init__(self, *values: float) -> None:
        self.values = list(values)

    def update(self, preds: Any, target: Any) -> None:
        pass

    def compute(self) -> float:
        return self.values.pop(0)

    def reset(self) -> None:
        pass


def scored(folder: Path, scores: Mapping[str, Sequence[float]], checkpoint: dict[str, Any], **parts: Any) -> Runner:
    metrics = {name: Given(*values) for name, values in scores.items()}
    length = len(next(iter(scores.values())))
    return toy_runner(
        max_epochs=length,
        work_dir=folder,
        val=EvalLoop(toy_data(1), predict, metrics=metrics),
        default_hooks={"checkpoint": checkpoint},
        **parts,
    )


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.pth"))


# ------------------------------------------------------------------------------------------------------- best


@pytest.mark.parametrize(
    ("scores", "parameters", "kept"),
    [
        ([0.1, 0.3, 0.2], {}, ["best_accuracy_epoch_2.pth"]),
        ([0.3, 0.3, 0.3], {}, ["best_accuracy_epoch_1.pth"]),
        ([math.nan, 0.1, math.nan], {}, ["best_accuracy_epoch_2.pth"]),
        ([math.nan, math.nan], {}, []),
        ([0.2, math.inf, 0.3], {}, ["best_accuracy_epoch_3.pth"]),
        ([0.3, 0.1, 0.2], {"rule": "less"}, ["best_accuracy_epoch_2.pth"]),
        ([0.3, 0.1, 0.2], {"less_keys": ["acc"], "greater_keys": []}, ["best_accuracy_epoch_2.pth"]),
        ([0.3, 0.1, 0.2], {"save_best": "auto"}, ["best_accuracy_epoch_1.pth"]),
        ([0.1, 0.3, 0.2, 0.3], {"max_keep_best": 2}, ["best_accuracy_epoch_2.pth", "best_accuracy_epoch_4.pth"]),
        ([0.1, 0.3, 0.3, 0.2], {"max_keep_best": 2}, ["best_accuracy_epoch_2.pth", "best_accuracy_epoch_3.pth"]),
        ([0.1, 0.2], {"filename_tmpl": "w{}.pth"}, ["best_accuracy_w2.pth"]),
    ],
)
def test_the_best_is_kept(tmp_path: Path, scores: list[float], parameters: dict[str, Any], kept: list[str]) -> None:
    given = {"save_best": "accuracy", "interval": 0, "save_last": False} | parameters
    scored(tmp_path, {"accuracy": scores}, given).train()
    assert files(tmp_path) == kept


def test_several_metrics_have_a_best_each_and_the_hub_knows_them(tmp_path: Path) -> None:
    scores = {"coco/bbox_mAP": [0.1, 0.3, 0.2], "loss": [3.0, 2.0, 1.0]}
    runner = scored(tmp_path, scores, {"save_best": ["coco/bbox_mAP", "loss"], "interval": 0, "save_last": False})
    runner.train()
    assert files(tmp_path) == ["best_coco_bbox_mAP_epoch_2.pth", "best_loss_epoch_3.pth"]
    assert {name: value for name, value in runner.hub.info.items() if name.startswith("best")} == {
        "best_score_coco/bbox_mAP": 0.3,
        "best_ckpt_coco/bbox_mAP": "best_coco_bbox_mAP_epoch_2.pth",
        "best_score_loss": 1.0,
        "best_ckpt_loss": "best_loss_epoch_3.pth",
    }


def test_saves_follow_the_interval_also_when_a_best_is_found_in_between(tmp_path: Path) -> None:
    scored(tmp_path, {"accuracy": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}, {"save_best": "accuracy", "interval": 3}).train()
    assert files(tmp_path) == ["best_accuracy_epoch_6.pth", "epoch_3.pth", "epoch_6.pth"]


def test_by_iterations_the_best_is_named_after_the_iteration(tmp_path: Path) -> None:
    runner = toy_runner(
        max_iters=6,
        train={"val_interval": 2},
        work_dir=tmp_path,
        val=EvalLoop(toy_data(1), predict, metrics={"accuracy": Given(0.1, 0.9, 0.5)}),
        default_hooks={"checkpoint": {"save_best": "accuracy", "interval": 3}},
    )
    runner.train()
    assert files(tmp_path) == ["best_accuracy_iter_4.pth", "iter_3.pth", "iter_6.pth"]


def test_a_best_file_is_resumed_like_any_other_and_comparing_continues(tmp_path: Path) -> None:
    hook = {"save_best": "accuracy", "interval": 0}
    scored(tmp_path / "a", {"accuracy": [0.1, 0.5, 0.2]}, hook).train()
    recorder = Recorder("before_train_epoch", "before_val")
    path = tmp_path / "a" / "best_accuracy_epoch_2.pth"
    runner = scored(tmp_path / "a", {"accuracy": [0.5, 0.6, 0.3]}, hook, resume=path, custom_hooks=[recorder])
    runner.train_loop.max_epochs = 5
    runner.train()
    assert recorder.events == [
        *[("before_train_epoch", 2, 8), ("before_val", 3, 12), ("before_train_epoch", 3, 12), ("before_val", 4, 16)],
        *[("before_train_epoch", 4, 16), ("before_val", 5, 20)],
    ]
    assert files(tmp_path / "a") == ["best_accuracy_epoch_4.pth", "epoch_5.pth"]
    assert files(tmp_path / "a" / "old-1") == ["epoch_3.pth"]
    assert runner.hub.get_info("best_score") == 0.6


#: Settings that do nothing without `save_best`, and the one that the message names.
WITHOUT_EFFECT: list[tuple[dict[str, Any], str]] = [
    ({"rule": "less"}, "rule"),
    ({"max_keep_best": 3}, "max_keep_best"),
    ({"greater_keys": ["foo"]}, "greater_keys"),
    ({"greater_keys": ["foo"], "less_keys": ["bar"]}, "greater_keys"),
]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"save_best": "acuracy"}, "CheckpointHook: validation returns no metric 'acuracy'; did you mean 'accuracy'?"),
        (
            {"save_best": "speed", "rule": "fast"},
            "CheckpointHook: rule must be 'greater' or 'less', not 'fast'",
        ),
        (
            {"save_best": "speed"},
            "CheckpointHook: save_best: the name 'speed' does not show whether higher or lower is better; set rule: "
            "greater or rule: less",
        ),
        ({"save_best": ["a", "a"]}, "CheckpointHook: save_best lists a metric twice: a, a"),
        ({"save_best": ["auto", "loss"]}, "CheckpointHook: save_best must be 'auto' or names of metrics, not both"),
        (
            {"save_best": ["acc", "loss"], "rule": ["less", "less", "less"]},
            "CheckpointHook: rule has 3 entries, but save_best has 2 metrics; give one rule for all, or one per metric",
        ),
        (
            {"save_best": ["speed/a", "speed_a"], "rule": "greater"},
            "CheckpointHook: save_best: 'speed/a' and 'speed_a' would be saved under the same name",
        ),
        *(
            (
                setting,
                f"CheckpointHook: {name} has no effect without save_best; set the metric whose best checkpoints are "
                f"kept, for example save_best: accuracy, or remove {', '.join(setting)}",
            )
            for setting, name in WITHOUT_EFFECT
        ),
        ({"max_keep_ckpts": 0}, "CheckpointHook: max_keep_ckpts must be at least 1, or -1 to keep all, not 0"),
        ({"max_keep_best": 0}, "CheckpointHook: max_keep_best must be an int of at least 1, not 0"),
        ({"on_save_error": "stop"}, "CheckpointHook: on_save_error cannot be 'stop'; available: raise, go_on"),
        (
            {"save_on_exception": -1},
            "CheckpointHook: save_on_exception must be true, false or a number of steps, not -1",
        ),
        (
            {"published_keys": ["stat_dict"]},
            "CheckpointHook: published_keys: checkpoints have no entry 'stat_dict'; did you mean 'state_dict'?",
        ),
    ],
)
def test_invalid_parameters_are_refused_before_training(
    tmp_path: Path, parameters: dict[str, Any], message: str
) -> None:
    metrics = {name: Given(0.1) for name in ("accuracy", "speed", "speed/a", "speed_a")}
    loop = EvalLoop(toy_data(1), predict, metrics=metrics)
    with pytest.raises(ConfigError) as refused:
        toy_runner(max_epochs=1, work_dir=tmp_path, val=loop, default_hooks={"checkpoint": parameters}).train()
    assert str(refused.value) == message
    assert files(tmp_path) == []


def test_a_best_needs_a_validation(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        toy_runner(val=None, default_hooks={"checkpoint": {"save_best": "accuracy"}}).train()
    assert str(refused.value) == (
        "CheckpointHook needs the metric 'accuracy', but this run has no validation; add `val` to the "
        "Runner or to the config"
    )


def test_a_metric_that_is_no_number_is_refused_before_training() -> None:
    loop = EvalLoop(toy_data(1), predict, metrics={"per_class_acc": Given()})
    loop.metrics._metrics["per_class_acc"].compute = lambda: torch.zeros(3)
    with pytest.raises(ConfigError) as refused:
        toy_runner(val=loop, default_hooks={"checkpoint": {"save_best": "auto"}}).train()
    assert str(refused.value) == (
        "CheckpointHook: save_best: the metric 'per_class_acc' is a Tensor of shape (3,), not a number"
    )


@pytest.mark.parametrize("name", ["../../acc", "/acc", "acc\0x", "acc\\x", "acc: x"])
def test_the_name_of_a_metric_leads_nowhere(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "a" / "b"
    scored(folder, {name: [0.5]}, {"save_best": name}).train()
    assert len(files(folder)) == 2
    assert sorted(path.name for path in tmp_path.rglob("*") if not path.is_relative_to(folder)) == ["a"]


# ------------------------------------------------------------------------------------------------ number and place


def test_a_save_by_hand_counts_among_those_that_are_kept(tmp_path: Path) -> None:
    runner = toy_runner(max_epochs=3, work_dir=tmp_path, default_hooks={"checkpoint": {"max_keep_ckpts": 2}})
    runner.on("after_train_iter", every=5)(lambda runner: runner.request_save())
    runner.train()
    assert files(tmp_path) == ["epoch_3.pth", "iter_10.pth"]


def test_files_go_into_out_dir_and_a_resume_finds_them_there(tmp_path: Path) -> None:
    out, run = tmp_path / "out", tmp_path / "run"
    hooks = {"checkpoint": {"out_dir": str(out), "interval": 1}}
    toy_runner(max_epochs=2, work_dir=run, default_hooks=hooks).train()
    assert files(out / "run") == ["epoch_1.pth", "epoch_2.pth"]
    assert json.loads((out / "run" / "last_checkpoint").read_text())["name"] == "epoch_2.pth"
    recorder = Recorder("before_train_epoch")
    toy_runner(max_epochs=3, work_dir=run, default_hooks=hooks, resume=True, custom_hooks=[recorder]).train()
    assert [event.epoch for event in recorder.events] == [2]
    toy_runner(max_epochs=1, work_dir=run, default_hooks=hooks).train()
    assert files(out / "run") == ["epoch_1.pth"]
    assert files(out / "run" / "old-1") == ["epoch_1.pth", "epoch_2.pth", "epoch_3.pth"]


def test_going_back_to_an_earlier_checkpoint_sets_the_later_ones_aside(tmp_path: Path) -> None:
    toy_runner(max_epochs=4, work_dir=tmp_path).train()
    toy_runner(max_epochs=3, work_dir=tmp_path, resume=tmp_path / "epoch_2.pth").train()
    assert files(tmp_path) == ["epoch_1.pth", "epoch_2.pth", "epoch_3.pth"]
    assert files(tmp_path / "old-1") == ["epoch_3.pth", "epoch_4.pth"]
    assert (
        f"moved the checkpoints that are later than epoch_2.pth to {tmp_path / 'old-1'}"
        in (tmp_path / "run.log").read_text()
    )
    assert json.loads((tmp_path / "last_checkpoint").read_text())["name"] == "epoch_3.pth"


# --------------------------------------------------------------------------------------------------- publishing


def test_the_last_and_each_best_are_published_under_their_hash(tmp_path: Path) -> None:
    hook = {"save_best": "accuracy", "published_keys": ["meta", "state_dict"], "max_keep_best": 2}
    runner = scored(tmp_path, {"accuracy": [0.5, 0.1, 0.6, 0.2]}, hook)
    runner.train()
    published = [path for path in tmp_path.glob("*.pth") if "-" in path.name]
    assert sorted(path.name.rsplit("-")[0] for path in published) == [
        *["best_accuracy_epoch_1", "best_accuracy_epoch_3", "epoch_4"]
    ]
    for path in published:
        assert path.stem[-8:] == hashlib.sha256(path.read_bytes()).hexdigest()[:8]
        assert list(torch.load(path, weights_only=True)) == ["meta", "state_dict"]
    again = scored(tmp_path, {"accuracy": [0.2, 0.9]}, hook, resume=True)
    again.train_loop.max_epochs = 5
    again.train()
    names = sorted(path.name.rsplit("-")[0] for path in tmp_path.glob("*-*.pth"))
    assert names == ["best_accuracy_epoch_3", "best_accuracy_epoch_5", "epoch_5"]


# ------------------------------------------------------------------------------------------------ in the background


def test_async_saves_the_same_files_with_the_same_contents(tmp_path: Path) -> None:
    found = []
    for name in ("plain", "beside"):
        folder = tmp_path / name
        hook = {"async_save": name == "beside", "max_keep_ckpts": 2, "save_best": "accuracy"}
        scored(folder, {"accuracy": [0.5, 0.6, 0.1]}, hook).train()
        found.append({path.name: store.read(path, sealed=True) for path in folder.glob("*.pth")})
    assert sorted(found[0]) == sorted(found[1]) == ["best_accuracy_epoch_2.pth", "epoch_2.pth", "epoch_3.pth"]
    for name, checkpoint in found[0].items():
        for key in ("state_dict", "optimizer", "position", "hooks", "rng"):
            assert str(checkpoint[key]) == str(found[1][name][key]), (name, key)
        assert checkpoint["state_dict"]._metadata == found[1][name]["state_dict"]._metadata


def test_async_training_continues_while_a_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, go_on = store.write, threading.Event()
    events: list[Any] = []

    def slow(checkpoint: Any, path: Path, note: seal.Note) -> str:
        assert go_on.wait(30)
        events.append(path.name)
        return write(checkpoint, path, note)

    monkeypatch.setattr(store, "write", slow)
    runner = toy_runner(max_epochs=2, work_dir=tmp_path, default_hooks={"checkpoint": {"async_save": True}})

    @runner.on("after_train_iter")
    def watch(runner: Runner) -> None:
        events.append(runner.iter)
        if runner.iter == 6:
            go_on.set()

    runner.train()
    assert events[:7] == [0, 1, 2, 3, 4, 5, 6]  # epoch 1 was saved after iteration 3
    assert [each for each in events if isinstance(each, str)] == ["epoch_1.pth", "epoch_2.pth"]
    state = store.read(tmp_path / "epoch_1.pth", sealed=True)
    assert state["position"]["iter"] == 4
    resumed = toy_runner(max_epochs=2, work_dir=tmp_path, resume=tmp_path / "epoch_1.pth")
    resumed.train()
    assert str(resumed.model.state_dict()) == str(runner.model.state_dict())


def test_an_error_beside_the_training_ends_the_run_at_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def full(checkpoint: Any, path: Path, note: seal.Note) -> str:
        assert go_on.wait(30)
        raise StorageError(f"{path} cannot be written: No space left on device")

    monkeypatch.setattr(store, "write", full)
    runner = toy_runner(max_epochs=3, work_dir=tmp_path, default_hooks={"checkpoint": {"async_save": True}})

    @runner.on("after_train_iter")
    def wait(runner: Runner) -> None:
        if runner.iter == 4:
            go_on.set()
            while not runner._host.requests.pending:
                pass

    with pytest.raises(StorageError) as refused:
        runner.train()
    assert str(refused.value) == f"{tmp_path / 'epoch_1.pth'} cannot be written: No space left on device"
    assert runner.iter == 5
    assert [each for each in threading.enumerate() if "hookline" in each.name] == []


# ---------------------------------------------------------------------------------------------------- failures


def failing(**checkpoint: Any) -> Callable[[Path], Runner]:
    def make(folder: Path) -> Runner:
        runner = toy_runner(max_epochs=3, work_dir=folder, default_hooks={"checkpoint": checkpoint})

        @runner.on("before_train_iter")
        def fail(runner: Runner) -> None:
            if runner.iter == 6:
                raise ZeroDivisionError("mine")

        return runner

    return make


@pytest.mark.parametrize(
    ("often", "saved"), [(False, []), (True, ["iter_6.pth"]), (4, ["iter_4.pth"]), (5, ["iter_5.pth"])]
)
def test_save_on_exception_writes_the_newest_state_before_the_failure(
    tmp_path: Path, often: bool | int, saved: list[str]
) -> None:
    with pytest.raises(ZeroDivisionError, match="mine"):
        failing(save_on_exception=often, interval=0)(tmp_path).train()
    assert files(tmp_path) == saved
    if saved:
        resumed = toy_runner(max_epochs=3, work_dir=tmp_path, resume=True)
        resumed.train()
        whole = toy_runner(max_epochs=3)
        whole.train()
        assert str(resumed.model.state_dict()) == str(whole.model.state_dict())
        assert resumed.position == whole.position


def test_a_state_that_is_saved_already_is_not_saved_again_when_the_run_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        failing(save_on_exception=4, interval=1)(tmp_path).train()
    assert files(tmp_path) == ["epoch_1.pth"]


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    runner = toy_runner(max_epochs=2, work_dir=tmp_path, default_hooks={"checkpoint": {"save_on_exception": True}})

    @runner.on("after_train_iter")
    def spoil(runner: Runner) -> None:
        if runner.iter == 7:
            with torch.no_grad():
                runner.model.get_parameter("2.weight")[1, 3] = math.inf

    with pytest.raises(NumericsError) as refused:
        runner.train()
    assert str(refused.value) == (
        "2.weight of the model became NaN or Inf by iteration 8, although the loss may be finite; nothing was saved. "
        "Check the gradients (a square root of 0 or a division by 0), the learning rate and the precision, and resume "
        "from the previous checkpoint"
    )
    assert files(tmp_path) == ["epoch_1.pth"]


def test_training_may_continue_after_a_failed_save_but_the_last_save_must_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, full = store.write, True

    def sometimes(checkpoint: Any, path: Path, note: seal.Note) -> str:
        if full and path.name == "epoch_1.pth":
            raise StorageError(f"{path} cannot be written: No space left on device")
        return write(checkpoint, path, note)

    monkeypatch.setattr(store, "write", sometimes)
    hooks = {"checkpoint": {"on_save_error": "go_on"}}
    toy_runner(max_epochs=2, work_dir=tmp_path, default_hooks=hooks).train()
    assert files(tmp_path) == ["epoch_2.pth"]
    text = (tmp_path / "run.log").read_text()
    assert (
        f"warning: {tmp_path / 'epoch_1.pth'} cannot be written: No space left on device. The run continues without "
        "this checkpoint."
    ) in text
    with pytest.raises(StorageError, match="epoch_1.pth cannot be written: No space left on device"):
        toy_runner(max_epochs=1, work_dir=tmp_path / "b", default_hooks=hooks).train()
    with pytest.raises(StorageError, match="epoch_1.pth cannot be written: No space left on device"):
        toy_runner(max_epochs=2, work_dir=tmp_path / "c").train()


def test_the_hook_is_built_without_a_run_and_remembers_only_the_best() -> None:
    assert CheckpointHook().state_dict() == {}
    hook = CheckpointHook(save_best="accuracy")
    hook.know_metrics({"accuracy": 0.0})
    hook.best["accuracy"].add(0.5, "best_accuracy_epoch_1.pth")
    other = CheckpointHook(save_best=["accuracy"])
    other.load_state_dict(hook.state_dict() | {"gone": {"values": [], "names": []}})
    assert other.state_dict() == hook.state_dict()
    assert other.best["accuracy"].kept == [(0.5, "best_accuracy_epoch_1.pth")]


def test_a_validation_without_metrics_and_without_training_needs_no_best(tmp_path: Path) -> None:
    runner = Runner(toy_model(), val=EvalLoop(toy_data(1), predict), work_dir=tmp_path, device="cpu", quiet=True)
    assert runner.val() == {}


def test_a_best_that_is_taken_back_while_the_display_reads_it_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = toy_runner(max_epochs=1, default_hooks={"checkpoint": {"save_best": "accuracy"}})
    runner.train()
    hook = next(entry.hook for entry in runner.plan if isinstance(entry.hook, CheckpointHook))
    states = iter([[(0.5, "best_accuracy_epoch_1.pth")], [], []])  # a save that could not be written
    monkeypatch.setattr(Best, "kept", property(lambda best: next(states)), raising=False)
    found = hook.saved_as_best(runner)
    assert [(each.value, each.path) for each in found] == [(0.5, runner.work_dir / "best_accuracy_epoch_1.pth")]
