"""EvaluateHook: when the function runs, what is recorded, which best is kept, and no effect on training."""

from __future__ import annotations

import json
import math
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hookline import Hook, Runner
from hookline.checkpoint import store
from hookline.errors import ConfigError, HookError, StorageError
from hookline.hooks import EMAHook, EvaluateHook
from hookline.plan.functions import label_of
from hookline.plan.points import POINTS
from hookline.testing import MemoryWriter, toy_model, toy_runner
from tests.hooks.weights import State, assert_same, copied


def accuracy(model: nn.Module) -> torch.Tensor:
    """Return a number that is different for every state of the weights."""
    return torch.stack([parameter.double().abs().sum() for parameter in model.parameters()]).sum()


def given(*values: Any) -> Callable[[Runner], Any]:
    """Return a function that returns one value per epoch."""

    def accuracy(runner: Runner) -> Any:
        return values[runner.epoch]

    return accuracy


def run(hook: Any, **parts: Any) -> Runner:
    runner = toy_runner(custom_hooks=[hook], **{"max_epochs": 3, "batches": 2, **parts})
    runner.train()
    return runner


def bests(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("best_*"))


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def evaluations(records: list[dict[str, Any]], prefix: str = "eval/") -> list[dict[str, Any]]:
    return [record for record in records if any(name.startswith(prefix) for name in record)]


# ---------------------------------------------------------------------------------------------------------- when


@pytest.mark.parametrize(
    ("parameters", "loop", "expected"),
    [
        ({}, {"max_epochs": 3}, [(3, 1), (6, 2), (9, 3)]),
        ({"interval": 2}, {"max_epochs": 5}, [(6, 2), (12, 4), (15, 5)]),
        ({"interval": 2}, {"max_epochs": 4}, [(6, 2), (12, 4)]),
        ({"interval": 2, "at_end": False}, {"max_epochs": 5}, [(6, 2), (12, 4)]),
        ({"interval": 9, "at_begin": True}, {"max_epochs": 2}, [(0, 0), (6, 2)]),
        ({"interval": 9, "at_begin": True, "at_end": False}, {"max_epochs": 2}, [(0, 0)]),
        ({"interval": 4, "by_epoch": False}, {"max_epochs": 3}, [(4, 2), (8, 3), (9, 3)]),
        ({"interval": 3, "by_epoch": False}, {"max_epochs": 2}, [(3, 1), (6, 2)]),
        ({"interval": 2}, {"max_iters": 7}, [(2, 1), (4, 2), (6, 2), (7, 3)]),
        ({"interval": 2, "at_begin": True}, {"max_iters": 3}, [(0, 0), (2, 1), (3, 1)]),
        ({"interval": 3}, {"max_iters": 6}, [(3, 1), (6, 2)]),
        ({"interval": 9}, {"max_iters": 6}, [(6, 2)]),
    ],
)
@pytest.mark.parametrize("defaults", [True, False])
def test_the_steps_and_epochs_at_which_the_function_runs(
    parameters: Any, loop: Any, expected: list[tuple[int, int]], defaults: bool
) -> None:
    keys = ("runtime_info", "timer", "sampler_seed", "logger", "param_scheduler", "checkpoint")
    writer = MemoryWriter()
    hook = EvaluateHook(accuracy, **parameters)
    parts: dict[str, Any] = {} if defaults else {"default_hooks": dict.fromkeys(keys)}
    toy_runner(batches=3, custom_hooks=[hook], writers=[writer], **loop, **parts).train()
    assert [(record["step"], record["epoch"]) for record in evaluations(writer.records)] == expected


def test_recorded_values_are_measured_on_the_weights_of_that_step() -> None:
    writer = MemoryWriter()
    runner = toy_runner(max_iters=5, custom_hooks=[EvaluateHook(accuracy, at_begin=True)], writers=[writer])
    weights = [accuracy(runner.model).item()]
    runner.on("after_train_iter")(lambda runner: weights.append(accuracy(runner.model).item()))
    runner.train()
    assert [record["eval/accuracy"] for record in evaluations(writer.records)] == weights
    assert runner.hub.get_scalar("eval/accuracy").last() == weights
    assert len(set(weights)) == 6


def test_inside_an_accumulation_window_it_waits_and_the_best_is_what_was_measured(tmp_path: Path) -> None:
    hook = EvaluateHook(accuracy, interval=2, save_best="accuracy")
    runner = toy_runner(max_iters=8, batches=8, accumulate=3, custom_hooks=[hook], work_dir=tmp_path)
    runner.train()
    found = [(record["step"], record["eval/accuracy"]) for record in evaluations(lines(tmp_path))]
    assert [step for step, _ in found] == [3, 6, 8]
    best = max(found, key=lambda each: each[1])
    assert bests(tmp_path) == [f"best_eval_accuracy_iter_{best[0]}.pth"]
    model = toy_model()
    model.load_state_dict(store.read(tmp_path / bests(tmp_path)[0], sealed=True)["state_dict"])
    assert accuracy(model).item() == best[1]


@pytest.mark.parametrize(
    ("when", "expected"), [("iter", [(3, 1), (4, 2)]), ("epoch", [(3, 1), (6, 2)])]
)  # fmt: skip
def test_a_training_that_is_stopped_is_evaluated_where_it_ended(when: Any, expected: list[tuple[int, int]]) -> None:
    writer = MemoryWriter()
    hook = EvaluateHook(accuracy, save_best="auto")
    runner = toy_runner(max_epochs=5, batches=3, custom_hooks=[hook], writers=[writer])
    runner.on("after_train_iter")(lambda runner: runner.stop("enough", when) if runner.iter == 3 else None)
    runner.train()
    assert [(record["step"], record["epoch"]) for record in evaluations(writer.records)] == expected


def test_by_epoch_needs_epochs() -> None:
    message = "^EvaluateHook: by_epoch=True needs training by epochs, but this run trains by iterations"
    with pytest.raises(ConfigError, match=message):
        run(EvaluateHook(accuracy, by_epoch=True), max_epochs=None, max_iters=3)


def test_it_runs_between_the_timer_and_the_logger_and_only_where_it_has_something_to_do(tmp_path: Path) -> None:
    runner = run(EvaluateHook(accuracy, interval=2), work_dir=tmp_path)
    names = [entry.name for entry in runner.plan]
    assert names.index("IterTimerHook") < names.index("EvaluateHook") == names.index("LoggerHook") - 1
    points = [point for point in POINTS if "EvaluateHook" in [call.who for call in runner.plan.calls_at(point)]]
    assert points == ["before_train", "after_train_epoch", "after_train"]
    (often,) = [call.every for call in runner.plan.calls_at("after_train_epoch") if call.who == "EvaluateHook"]
    assert str(often) == "every 2"
    with pytest.raises(
        HookError, match="EvaluateHook declares runs_after IterTimerHook, but a lower number runs first"
    ):
        toy_runner(custom_hooks=[{"type": "EvaluateHook", "function": accuracy, "priority": 40}])


# --------------------------------------------------------------------------------------------------- the function


def test_it_is_called_in_evaluation_mode_without_gradients_and_all_is_put_back(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 2))
    model[2].eval()  # on purpose: it must stay in evaluation mode
    seen: list[tuple[list[bool], bool]] = []

    def look(model: nn.Module, runner: Runner) -> None:
        assert model is runner.model
        seen.append(([module.training for module in model.modules()], torch.is_grad_enabled()))
        model.train()

    after: list[tuple[list[bool], bool]] = []

    class After(Hook):
        def after_train_iter(self, runner: Runner) -> None:
            after.append(([module.training for module in runner.model.modules()], torch.is_grad_enabled()))

    optim = torch.optim.SGD(model.parameters(), lr=0.1)
    hooks = [EvaluateHook(look), After()]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(After, "priority", 56)
        runner = Runner(model, train=toy_runner(max_iters=2).train_loop, optim=optim, custom_hooks=hooks, quiet=True,
                        work_dir=tmp_path, device="cpu")  # fmt: skip
        runner.train()
    assert seen == [([False] * 5, False)] * 2
    assert after == [([True, True, True, False, True], True)] * 2


def test_a_function_that_raises_ends_the_run_and_the_error_names_the_hook() -> None:
    def broken(model: nn.Module) -> None:
        raise ValueError("no data")

    runner = toy_runner(custom_hooks=[EvaluateHook(broken)], batches=2)
    with pytest.raises(ValueError, match="^no data") as failed:
        runner.train()
    assert failed.value.__notes__[0].startswith("in hook EvaluateHook, at after_train_epoch, epoch=0 iter=2 rank=0 (")
    assert torch.is_grad_enabled()


def test_with_on_error_disable_it_is_left_behind() -> None:
    def broken(runner: Runner) -> float:
        return 1 / (1 - runner.epoch)

    writer = MemoryWriter()
    hook = EvaluateHook(broken)
    runner = toy_runner(max_epochs=3, batches=2, writers=[writer])
    runner.register_hook(hook, on_error="disable")
    runner.train()
    assert [record["step"] for record in evaluations(writer.records)] == [2]
    assert runner.epoch == 3
    assert "EvaluateHook" not in [entry.name for entry in runner.plan]
    assert all(module.training for module in runner.model.modules())


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (0.5, {"eval/score": 0.5}),
        (3, {"eval/score": 3.0}),
        (torch.tensor([[0.25]], requires_grad=True), {"eval/score": 0.25}),
        (np.float32(0.5), {"eval/score": 0.5}),
        (np.array([2]), {"eval/score": 2.0}),
        ({"a": 1, "b/c": torch.tensor(2.0)}, {"eval/a": 1.0, "eval/b/c": 2.0}),
        ({}, None),
        (None, None),
    ],
)
def test_the_function_may_return_numbers_dicts_or_nothing(result: Any, expected: dict[str, float] | None) -> None:
    def score() -> Any:
        return result

    writer = MemoryWriter()
    run(EvaluateHook(score), max_epochs=1, writers=[writer])
    found = evaluations(writer.records)
    assert found == ([{"step": 2, "epoch": 1, **expected}] if expected else [])
    assert all(type(value) is float for record in found for name, value in record.items() if "/" in name)


@pytest.mark.parametrize(
    ("result", "what"),
    [
        ("0.5", "str"),
        (True, "bool"),
        ([0.5], "list"),
        (torch.zeros(3), "Tensor of shape (3,)"),
        (np.zeros((2, 2)), "ndarray of shape (2, 2)"),
        (torch.tensor(True), "Tensor"),
        (1j, "complex"),
        ({"a": 1.0, "b": torch.zeros(3)}, "Tensor of shape (3,) as 'b'"),
        ({"a": None}, "NoneType as 'a'"),
        ({3: 0.5}, "float as 3"),
        ({"": 0.5}, "float as ''"),
    ],
)
def test_anything_else_is_refused(result: Any, what: str) -> None:
    def score() -> Any:
        return result

    with pytest.raises(ConfigError) as refused:
        run(EvaluateHook(score))
    assert str(refused.value) == (
        f"EvaluateHook: {label_of(score)} returned {what}; it must return a number, a mapping of names to numbers, "
        "or None"
    )


def test_a_function_without_a_name_gives_a_value() -> None:
    writer = MemoryWriter()
    run(EvaluateHook(lambda: 1.0), writers=[writer], max_epochs=1)
    assert evaluations(writer.records) == [{"step": 2, "epoch": 1, "eval/value": 1.0}]


def test_it_sees_the_raw_weights_and_can_ask_for_averaged_ones() -> None:
    averaging = EMAHook(momentum=0.1)

    def both(model: nn.Module) -> dict[str, Any]:
        raw = accuracy(model)
        with averaging.average.swapped(model):
            return {"raw": raw, "averaged": accuracy(model)}

    writer = MemoryWriter()
    runner = toy_runner(max_epochs=2, custom_hooks=[averaging, EvaluateHook(both)], writers=[writer])
    runner.train()
    averaged = toy_model()
    averaged.load_state_dict(averaging.averaged_state_dict())
    last = evaluations(writer.records)[-1]
    assert (last["eval/raw"], last["eval/averaged"]) == (accuracy(runner.model).item(), accuracy(averaged).item())
    assert last["eval/raw"] != last["eval/averaged"]


# ------------------------------------------------------------------------------------------------------- records


def test_separate_records_come_before_the_records_of_the_logger(tmp_path: Path) -> None:
    hook = EvaluateHook(given({"accuracy": 0.5, "fid": 9}, {"accuracy": 0.25, "fid": math.nan}), prefix="hold/out")
    run(hook, max_epochs=2, work_dir=tmp_path, default_hooks={"logger": {"interval": 2}})
    found = [tuple(record) for record in lines(tmp_path)]
    training, validation = found[0], found[2]
    assert "train/loss" in training
    assert "val/accuracy" in validation
    own = ("step", "epoch", "hold/out/accuracy", "hold/out/fid")
    assert found == [training, own, validation] * 2
    assert [list(record.values()) for record in evaluations(lines(tmp_path), "hold/")] == [
        [2, 1, 0.5, 9.0],
        [4, 2, 0.25, None],
    ]
    log = (tmp_path / "run.log").read_text().splitlines()
    said = [line[21:] for line in log if "hold/out" in line]
    assert said == [
        "epoch 1  hold/out  accuracy 0.5000 (best)  fid 9.0000 (best)",
        "epoch 2  hold/out  accuracy 0.2500  fid nan",
    ]


@pytest.mark.parametrize("prefix", ["train", "val"])
def test_with_a_prefix_of_the_loop_nothing_is_recorded_twice(prefix: str) -> None:
    writer = MemoryWriter()
    logger = {"logger": {"interval": 1}}
    run(EvaluateHook(lambda: {"fid": 2.0}, prefix=prefix), writers=[writer], default_hooks=logger)
    own = [record for record in writer.records if f"{prefix}/fid" in record]
    assert own == [{"step": step, "epoch": epoch, f"{prefix}/fid": 2.0} for step, epoch in ((2, 1), (4, 2), (6, 3))]


def test_its_time_is_no_part_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        now = 0.0
        perf_counter = staticmethod(lambda: Clock.now)

    def slow(model: nn.Module) -> float:
        Clock.now += 100.0
        return Clock.now

    monkeypatch.setattr("hookline.hooks.timer.time", Clock)
    monkeypatch.setattr("hookline.runner.runner.time", Clock)
    monkeypatch.setattr("hookline.data.batches.time", Clock)
    writer = MemoryWriter()
    logger = {"logger": {"interval": 1}}
    hook = EvaluateHook(slow, at_begin=True, interval=2)
    runner = toy_runner(max_iters=4, custom_hooks=[hook], writers=[writer], default_hooks=logger)
    runner.on("before_backward")(lambda: setattr(Clock, "now", Clock.now + 1.0))
    runner.train()
    times = [(record["train/data_time"], record["train/time"]) for record in writer.records if "train/time" in record]
    assert times == [(0.0, 1.0)] * 4
    assert runner.seconds_waited == runner._host.seconds_paused + runner.saving.seconds
    assert runner._host.seconds_paused == 300.0


# ---------------------------------------------------------------------------------------------------------- best


@pytest.mark.parametrize(
    ("values", "rule", "best", "at", "saved"),
    [
        ([0.1, 0.5, 0.5, 0.4], None, 0.5, "epoch 2", "epoch_2"),
        ([0.5, 0.4, 0.3, 0.6], None, 0.6, "epoch 4", "epoch_4"),
        ([0.5, 0.4, 0.3, 0.6], "less", 0.3, "epoch 3", "epoch_3"),
        ([math.nan, 0.2, math.inf, 0.1], None, 0.2, "epoch 2", "epoch_2"),
    ],
)
def test_the_best_is_kept(
    tmp_path: Path, values: list[float], rule: str | None, best: float, at: str, saved: str
) -> None:
    hook = EvaluateHook(given(*values), save_best="accuracy", rule=rule)
    runner = run(hook, max_epochs=4, work_dir=tmp_path)
    assert (hook.best["accuracy"].value, hook.best["accuracy"].at) == (best, at)
    assert runner.hub.get_info("best_eval/accuracy") == best
    assert runner.hub.get_info("best_eval/accuracy_at") == at
    assert bests(tmp_path) == [f"best_eval_accuracy_{saved}.pth"]
    number = int(saved[-1])
    found = store.read(tmp_path / bests(tmp_path)[0], sealed=True)
    assert_same(found["state_dict"], store.read(tmp_path / f"epoch_{number}.pth", sealed=True)["state_dict"])
    assert found["hooks"]["EvaluateHook"]["best"]["accuracy"]["best"] == best


def test_without_save_best_nothing_is_saved_and_names_tell_what_is_better(tmp_path: Path) -> None:
    results = [{"accuracy": 0.5, "loss": 2.0, "odd": 1.0}, {"accuracy": 0.4, "loss": 1.0, "odd": 2.0}]
    hook = EvaluateHook(given(*results))
    runner = run(hook, max_epochs=2, work_dir=tmp_path)
    assert bests(tmp_path) == []
    facts = {name: value for name, value in runner.hub.info.items() if name.startswith("best_")}
    assert facts == {
        "best_eval/accuracy": 0.5,
        "best_eval/accuracy_at": "epoch 1",
        "best_eval/loss": 1.0,
        "best_eval/loss_at": "epoch 2",
    }


def test_a_rule_is_for_all_results_or_for_the_one_that_is_saved(tmp_path: Path) -> None:
    results = [{"odd": 0.5, "loss": 1.0}, {"odd": 0.6, "loss": 2.0}]
    for_all = EvaluateHook(given(*results), rule="greater")
    run(for_all, max_epochs=2)
    assert {name: best.value for name, best in for_all.best.items()} == {"odd": 0.6, "loss": 2.0}
    for_one = EvaluateHook(given(*results), rule="greater", save_best="auto")
    run(for_one, max_epochs=2, work_dir=tmp_path)
    assert {name: best.value for name, best in for_one.best.items()} == {"odd": 0.6, "loss": 1.0}
    assert bests(tmp_path) == ["best_eval_odd_epoch_2.pth"]


@pytest.mark.parametrize(
    ("parameters", "result", "message"),
    [
        ({"save_best": "accuracy"}, {"acuracy": 1.0}, "returned no 'accuracy'; did you mean 'acuracy'?"),
        ({"save_best": "auto"}, {"odd": 1.0}, "the name 'odd' does not show whether higher or lower is better; set rule: greater or rule: less"),  # noqa: E501  # whole
    ],
)  # fmt: skip
def test_a_best_that_cannot_be_told_is_refused(parameters: Any, result: Any, message: str) -> None:
    def score() -> Any:
        return result

    with pytest.raises(ConfigError) as refused:
        run(EvaluateHook(score, **parameters))
    who = f"{label_of(score)} " if "returned" in message else ""
    assert str(refused.value) == f"EvaluateHook: save_best: {who}{message}"


def test_names_lead_nowhere_and_other_files_stay(tmp_path: Path) -> None:
    others = ["best_eval_a_b_loss_epoch_1.pth", "best_eval_a_b_epoch_x.pth", "best_eval_a_epoch_1.pth"]
    for name in others:
        (tmp_path / name).write_bytes(b"of somebody else")
    hook = EvaluateHook(given({"../a/b": 0.1}, {"../a/b": 0.2}), prefix="e/val", save_best="auto", rule="greater")
    runner = toy_runner(max_epochs=2, custom_hooks=[hook], work_dir=tmp_path / "run")
    runner.train()
    assert bests(tmp_path / "run") == ["best_e_val_.._a_b_epoch_2.pth"]
    assert bests(tmp_path) == sorted(others)


def test_by_iterations_and_at_both_ends_files_are_named_after_where_training_stood(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def accuracy() -> float:
        return float(len(seen))

    hook = EvaluateHook(accuracy, interval=2, by_epoch=False, at_begin=True, save_best="auto")
    runner = toy_runner(max_epochs=1, batches=5, val=None, custom_hooks=[hook], work_dir=tmp_path)
    for point in ("before_train_iter", "after_run"):
        runner.on(point)(lambda: seen.append(bests(tmp_path)))
    runner.train()
    names = [f"best_eval_accuracy_iter_{number}.pth" for number in (0, 2, 4, 5)]
    assert seen == [[names[0]], [names[0]], [names[1]], [names[1]], [names[2]], [names[3]]]
    assert hook.best["accuracy"].at == "iteration 5"


def test_an_older_best_stays_until_the_new_one_is_there_and_counts_again_if_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = store.write

    def failing(checkpoint: Any, path: Path, note: Any) -> str:
        if path.name == "best_eval_accuracy_epoch_2.pth":
            assert bests(tmp_path) == ["best_eval_accuracy_epoch_1.pth"]
            raise StorageError(f"{path} cannot be written: No space left on device")
        return write(checkpoint, path, note)

    monkeypatch.setattr(store, "write", failing)
    hook = EvaluateHook(given(0.5, 0.9, 0.4, 0.6), save_best="accuracy")
    runner = toy_runner(max_epochs=4, batches=2, val=None, custom_hooks=[hook], work_dir=tmp_path)
    seen: list[Any] = []
    runner.on("before_train_epoch")(lambda: seen.append((bests(tmp_path), runner.hub.get_info("best_eval/accuracy"))))
    runner.train()
    first = (["best_eval_accuracy_epoch_1.pth"], 0.5)
    assert seen == [([], None), first, first, first]
    assert bests(tmp_path) == ["best_eval_accuracy_epoch_4.pth"]
    assert runner.hub.get_info("best_eval/accuracy") == 0.6
    log = (tmp_path / "run.log").read_text()
    assert log.count("No space left on device. The run continues without this checkpoint.") == 1


# ----------------------------------------------------------------------------------------------------- resuming


def noisy(model: nn.Module) -> dict[str, Any]:
    """Draw from every generator. A resumed run must draw the same numbers."""
    return {
        "accuracy": accuracy(model) * 0 + torch.rand(()).item(),
        "loss": random.random() + float(np.random.rand()),
        "odd": accuracy(model),
    }


@pytest.mark.parametrize(
    "parameters",
    [
        {"at_begin": True, "save_best": "accuracy"},
        {"interval": 3, "by_epoch": False, "save_best": "auto"},
        {"interval": 3},
    ],
)
@pytest.mark.parametrize(
    ("point", "dies_at"),
    [("after_train_iter", 4), ("before_val", 6), ("after_val", 6), ("after_train_iter", 9), ("after_train", 12)],
)
def test_a_resumed_run_equals_one_that_was_not_interrupted(
    tmp_path: Path, parameters: Any, point: str, dies_at: int
) -> None:
    def made(folder: str, **parts: Any) -> tuple[Runner, EvaluateHook]:
        hook = EvaluateHook(noisy, **parameters)
        hooks = {"logger": {"interval": 1}, "timer": None}
        return toy_runner(max_epochs=4, batches=3, custom_hooks=[hook], work_dir=tmp_path / folder,
                          default_hooks=hooks, **parts), hook  # fmt: skip

    whole, its = made("whole")
    whole.train()
    broken, _ = made("broken")

    @broken.on(point)
    def die(runner: Runner) -> None:
        if runner.iter >= dies_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken.train()
    resumed, hook = made("broken", resume=True)
    resumed.train()
    assert_same(copied(resumed.model), copied(whole.model))
    assert hook.state_dict() == its.state_dict() != {}
    assert str(resumed.hub.state_dict()) == str(whole.hub.state_dict())
    assert lines(tmp_path / "broken") == lines(tmp_path / "whole")
    assert bests(tmp_path / "broken") == bests(tmp_path / "whole")
    steps = [record["step"] for record in evaluations(lines(tmp_path / "broken"))]
    assert steps == sorted(set(steps))


def test_epochs_in_two_runs_are_as_in_one(tmp_path: Path) -> None:
    def made(folder: str, max_epochs: int, **parts: Any) -> Runner:
        hook = EvaluateHook(noisy, save_best="accuracy")
        return toy_runner(max_epochs=max_epochs, custom_hooks=[hook], work_dir=tmp_path / folder,
                          default_hooks={"timer": None}, **parts)  # fmt: skip

    whole = made("whole", 2)
    whole.train()
    made("parts", 1).train()
    resumed = made("parts", 2, resume=True)
    resumed.train()
    assert_same(copied(resumed.model), copied(whole.model))
    assert lines(tmp_path / "parts") == lines(tmp_path / "whole")
    assert bests(tmp_path / "parts") == bests(tmp_path / "whole")


def test_a_run_that_is_resumed_when_it_is_over_has_every_record_once(tmp_path: Path) -> None:
    def made(**parts: Any) -> Runner:
        return toy_runner(max_epochs=3, batches=2, custom_hooks=[EvaluateHook(noisy, interval=2)], work_dir=tmp_path,
                          default_hooks={"timer": None}, **parts)  # fmt: skip

    made().train()
    before = lines(tmp_path)
    assert [record["step"] for record in evaluations(before)] == [4, 6]
    made(resume=True).train()
    assert lines(tmp_path) == before


def test_a_best_that_a_kill_kept_from_being_written_is_made_up_for(tmp_path: Path) -> None:
    def made(**parts: Any) -> Runner:
        hook = EvaluateHook(given(0.1, 0.5, 0.3), save_best="accuracy")
        return toy_runner(max_epochs=3, batches=2, val=None, custom_hooks=[hook], work_dir=tmp_path, **parts)

    broken = made(default_hooks={"checkpoint": {"priority": 54}, "param_scheduler": {"priority": 53}})
    write = store.write

    def dying(checkpoint: Any, path: Path, note: Any) -> str:
        if path.name == "best_eval_accuracy_epoch_2.pth":
            raise KeyboardInterrupt
        return write(checkpoint, path, note)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "write", dying)
        with pytest.raises(KeyboardInterrupt):
            broken.train()
    assert sorted(path.name for path in tmp_path.glob("*.pth")) == [
        *["best_eval_accuracy_epoch_1.pth", "epoch_1.pth", "epoch_2.pth"]
    ]
    resumed = made(resume=True)
    at_start: list[list[str]] = []
    resumed.on("before_train_iter")(lambda: at_start.append(bests(tmp_path)))
    resumed.train()
    assert at_start == [["best_eval_accuracy_epoch_2.pth"]] * 2
    found = store.read(tmp_path / "best_eval_accuracy_epoch_2.pth", sealed=True)
    assert_same(found["state_dict"], store.read(tmp_path / "epoch_2.pth", sealed=True)["state_dict"])
    assert found["position"]["iter"] == 4
    assert bests(tmp_path) == ["best_eval_accuracy_epoch_2.pth"]


def test_a_run_resumed_at_its_very_beginning_is_not_evaluated_there_again(tmp_path: Path) -> None:
    def made(**parts: Any) -> tuple[Runner, MemoryWriter]:
        writer = MemoryWriter()
        hook = EvaluateHook(accuracy, at_begin=True, save_best="auto", rule="less")
        return toy_runner(
            max_iters=2, val=None, custom_hooks=[hook], writers=[writer], work_dir=tmp_path, **parts
        ), writer

    broken, _ = made()
    broken.on("before_train_iter")(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        broken.train()
    assert bests(tmp_path) == ["best_eval_accuracy_iter_0.pth"]
    resumed, writer = made(resume=True)
    resumed.train()
    assert [record["step"] for record in evaluations(writer.records)] == [1, 2]
    assert len(resumed.hub.get_scalar("eval/accuracy")) == 3


def test_an_evaluation_that_waits_is_remembered() -> None:
    hook = EvaluateHook(accuracy, interval=2)
    runner = toy_runner(max_iters=6, batches=6, accumulate=3)
    states: list[dict[str, Any]] = []
    runner.register_hook(hook)
    runner.on("after_train_iter", priority=56)(lambda: states.append(hook.state_dict()))
    runner.train()
    assert [(state.get("evaluated_at"), state.get("owed")) for state in states] == [
        *[(None, None), (-1, True), (3, False), (3, True), (3, True), (6, False)]
    ]
    other = EvaluateHook(accuracy)
    other.load_state_dict(states[1])
    assert other.state_dict() == states[1]
    other.load_state_dict(states[5])
    assert other.state_dict() == states[5]


def test_a_result_newly_saved_as_best_starts_without_a_best_value(tmp_path: Path) -> None:
    results = [{"accuracy": 0.9, "recall": 0.8}, {"accuracy": 0.5, "recall": 0.5}, {"accuracy": 0.4, "recall": 0.6}]

    def made(max_epochs: int, save_best: str | None, **parts: Any) -> EvaluateHook:
        hook = EvaluateHook(given(*results), save_best=save_best)
        run(hook, max_epochs=max_epochs, work_dir=tmp_path, **parts)
        return hook

    made(1, None)
    hook = made(2, "auto", resume=True)
    assert (hook.best["accuracy"].value, hook.best["recall"].value) == (0.5, 0.8)
    assert bests(tmp_path) == ["best_eval_accuracy_epoch_2.pth"]
    hook = made(3, "recall", resume=True)
    assert (hook.best["accuracy"].value, hook.best["recall"].value) == (0.5, 0.6)
    assert bests(tmp_path) == ["best_eval_accuracy_epoch_2.pth", "best_eval_recall_epoch_3.pth"]


def test_another_rule_resets_the_best_value_with_a_message(tmp_path: Path) -> None:
    run(EvaluateHook(given(0.9), save_best="accuracy"), max_epochs=1, work_dir=tmp_path)
    hook = EvaluateHook(given(0.9, 0.5), save_best="accuracy", rule="less")
    run(hook, max_epochs=2, work_dir=tmp_path, resume=True)
    assert (hook.best["accuracy"].value, bests(tmp_path)) == (0.5, ["best_eval_accuracy_epoch_2.pth"])
    said = "EvaluateHook now monitors 'accuracy' (less), but the checkpoint has 'accuracy' (greater): the best value st"
    assert said in (tmp_path / "run.log").read_text()


# ------------------------------------------------------------------------------------------- the life of the hook


def test_training_is_the_same_to_the_bit_with_and_without_it(tmp_path: Path) -> None:
    def spoil(model: nn.Module, runner: Runner) -> float:
        torch.manual_seed(7)
        random.seed(7)
        np.random.seed(7)
        model.train()
        torch.set_grad_enabled(True)
        return torch.rand(()).item()

    def weights(hooks: list[Any], **loop: Any) -> State:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 2))
        optim = torch.optim.SGD(model.parameters(), lr=0.1)
        train = toy_runner(**loop).train_loop
        runner = Runner(model, train=train, optim=optim, custom_hooks=hooks, quiet=True, device="cpu",
                        work_dir=tmp_path)  # fmt: skip
        return copied(runner.train())

    for loop in ({"max_epochs": 3}, {"max_iters": 10}):
        hook = EvaluateHook(spoil, at_begin=True, save_best="auto", rule="less")
        assert_same(weights([hook], **loop), weights([], **loop))


def test_two_trainings_of_one_runner_and_one_with_nothing_to_do() -> None:
    writer = MemoryWriter()
    hook = EvaluateHook(accuracy, interval=2, at_begin=True)
    runner = toy_runner(max_epochs=3, batches=1, custom_hooks=[hook], writers=[writer])
    runner.train()
    runner.train()
    runner.train_loop.max_epochs = 5
    runner.train()
    assert [record["step"] for record in evaluations(writer.records)] == [0, 2, 3, 4, 5]


def test_a_failing_step_leaves_modes_and_gradients_as_they_were() -> None:
    hook = EvaluateHook(accuracy, save_best="auto", by_epoch=False)
    runner = toy_runner(max_epochs=2, custom_hooks=[hook])
    runner.on("before_backward")(lambda runner: 1 // (3 - runner.iter))
    with pytest.raises(ZeroDivisionError):
        runner.train()
    assert hook.evaluated_at == 3
    assert torch.is_grad_enabled()
    assert all(module.training for module in runner.model.modules())


def test_val_and_test_alone_do_not_call_it() -> None:
    def never() -> None:
        raise AssertionError

    runner = toy_runner(custom_hooks=[EvaluateHook(never, at_begin=True)])
    runner.val()
    runner.test()
    assert EvaluateHook(never).state_dict() == {}


@pytest.mark.parametrize(("loop", "expected"), [({"max_epochs": 3}, [4, 6]), ({"max_iters": 4}, [4])])
def test_it_can_come_while_training(loop: Any, expected: list[int]) -> None:
    writer = MemoryWriter()
    runner = toy_runner(batches=2, writers=[writer], **loop)
    late = EvaluateHook(accuracy)
    runner.on("after_train_iter")(lambda runner: runner.register_hook(late) if runner.iter == 2 else None)
    runner.train()
    assert [record["step"] for record in evaluations(writer.records)] == expected


def test_a_config_names_the_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scoring_of_a_test.py").write_text("def accuracy(runner):\n    return runner.epoch / 4\n")
    config = {
        "model": {"type": "DigitsNet", "width": 2},
        "train": {
            "dataloader": {"dataset": {"type": "Digits", "split": "val"}, "batch_size": 64},
            "step": "cross_entropy",
            "max_epochs": 2,
            "limit_batches": 2,
        },
        "optim": {"optimizer": {"type": "SGD", "lr": 0.1}},
        "custom_hooks": [
            {"type": "EvaluateHook", "function": "scoring_of_a_test:accuracy", "save_best": "auto", "on_error": "raise"}
        ],
        "work_dir": str(tmp_path / "run"),
    }
    try:
        Runner.from_config(config).train()
    finally:
        sys.modules.pop("scoring_of_a_test", None)
    assert evaluations(lines(tmp_path / "run")) == [
        {"step": 2, "epoch": 1, "eval/accuracy": 0.0},
        {"step": 4, "epoch": 2, "eval/accuracy": 0.25},
    ]
    assert bests(tmp_path / "run") == ["best_eval_accuracy_epoch_2.pth"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"function": 3}, "function must be a function, not 3"),
        ({"interval": 0}, "interval must be an int of at least 1, not 0"),
        ({"interval": True}, "interval must be an int of at least 1, not True"),
        ({"prefix": ""}, "prefix must be a non-empty string, not ''"),
        ({"prefix": 3}, "prefix must be a non-empty string, not 3"),
        ({"save_best": ""}, "save_best must be a non-empty string, not ''"),
        ({"save_best": ["a"]}, "save_best must be a non-empty string, not ['a']"),
        ({"save_best": "odd"}, "save_best: the name 'odd' does not show whether higher or lower is better; set rule: greater or rule: less"),  # noqa: E501  # whole
        ({"rule": "more"}, "rule cannot be 'more'; available: greater, less"),
    ],
)  # fmt: skip
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        EvaluateHook(**{"function": accuracy, **parameters})
    assert str(refused.value) == f"EvaluateHook: {message}"


def test_a_function_that_wants_more_is_refused_when_the_hook_is_made() -> None:
    def score(model: nn.Module, loader: Any) -> float:
        return 0.0

    with pytest.raises(ConfigError) as refused:
        EvaluateHook(score)
    assert str(refused.value) == (
        f"EvaluateHook: function: there is no value for the parameter 'loader' of {label_of(score)}; it can take "
        "model and runner, by name"
    )


def test_two_with_one_prefix_are_refused() -> None:
    runner = toy_runner(custom_hooks=[EvaluateHook(lambda model: 1.0), EvaluateHook(lambda model: 2.0)])
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert str(refused.value) == "EvaluateHook: two EvaluateHooks have the prefix 'eval'; give each its own"


def test_a_failed_evaluation_is_repeated_when_training_continues() -> None:
    calls: list[int] = []

    def fails_first(model: Any) -> float:
        calls.append(len(calls))
        return 1 / (len(calls) - 1)

    runner = toy_runner(max_epochs=1, custom_hooks=[EvaluateHook(fails_first, at_begin=True)])
    with pytest.raises(ZeroDivisionError):
        runner.train()
    runner.train()
    assert calls == [0, 1, 2]


def test_a_best_is_written_at_once_and_the_others_beside_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, str] = {}
    write = store.write

    def note(checkpoint: Any, path: Path, *arguments: Any) -> str:
        threads[path.name] = threading.current_thread().name
        return write(checkpoint, path, *arguments)

    monkeypatch.setattr(store, "write", note)
    hook = EvaluateHook(lambda model: {"accuracy": 1.0}, save_best="accuracy")
    toy_runner(max_epochs=1, default_hooks={"checkpoint": {"async_save": True}}, custom_hooks=[hook]).train()
    assert threads == {"best_eval_accuracy_epoch_1.pth": "MainThread", "epoch_1.pth": "hookline-save"}
