"""The built-in hooks, one by one: update, precision, learning rates, times, evaluation, anomalies, traces."""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hookline import Optim
from hookline.checkpoint import store
from hookline.common.numbers import as_time
from hookline.dialects.imix.engine.hooks import HookBase
from hookline.dialects.imix.solver import build_lr_scheduler
from hookline.engine.steps import cross_entropy
from hookline.errors import ConfigError, exit_code_of
from hookline.hooks import IterTimerHook
from hookline.testing import toy_data, toy_model, toy_runner
from tests.clock import Clock

from .engines import engine_in, same_weights


class Collects(HookBase):
    """Collects the result of a function of the trainer after every iteration, after all other hooks."""

    _level = "LOWEST"

    def __init__(self, function: Any) -> None:
        self.function = function
        self.seen: list[Any] = []

    def after_train_iter(self) -> None:
        self.seen.append(self.function(self.trainer))


# ----------------------------------------------------------------------------------------------------- the update


def test_losses_on_the_cpu_are_kept_as_numbers(tmp_path: Path) -> None:
    collects = Collects(lambda trainer: type(trainer.runner.hub.history("train/loss").values[-1]))
    engine_in(tmp_path, custom_hooks=[collects]).train()
    assert set(collects.seen) == {float}


@pytest.mark.parametrize("where", ["top", "optimizer_config"])
def test_accumulation_and_clipping_match_native_training(tmp_path: Path, where: str) -> None:
    steps = {"gradient_accumulation_steps": 3}
    clip = {"grad_clip": {"max_norm": 0.1, "norm_type": 2}}
    cfg = {"optimizer_config": clip, **steps} if where == "top" else {"optimizer_config": {**clip, **steps}}
    collects = Collects(lambda trainer: trainer.runner.updates)
    engine = engine_in(tmp_path, batches=7, custom_hooks=[collects], **cfg)
    engine.train()
    model = toy_model()
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1), accumulate=3, clip_norm=0.1)
    toy_runner(model=model, optim=optim, batches=7, max_epochs=2).train()
    assert same_weights(engine.model, model)
    assert collects.seen == [0, 0, 1, 1, 1, 2, 3, 3, 3, 4, 4, 4, 5, 6]
    assert len(engine.log_buffer.history("grad_norm")) == 6


class Stream:
    """Batches without a length."""

    def __iter__(self) -> Iterator[Any]:
        return iter(toy_data(5))


def test_a_window_ends_with_the_epoch_even_if_its_length_is_unknown(tmp_path: Path) -> None:
    collects = Collects(lambda trainer: (trainer.runner.updates, trainer.runner.accumulating))
    engine_in(tmp_path, batches=Stream(), gradient_accumulation_steps=3, custom_hooks=[collects]).train()
    assert collects.seen == [
        (0, True),
        (0, True),
        (1, False),
        (1, True),
        (2, False),
        *[(2, True), (2, True), (3, False), (3, True), (4, False)],
    ]


def test_gradients_stay_for_the_hooks_behind_the_update(tmp_path: Path) -> None:
    collects = Collects(lambda trainer: trainer.model[0].weight.grad.norm().item())
    engine_in(tmp_path, custom_hooks=[collects]).train()
    assert all(norm > 0 for norm in collects.seen)
    assert len(set(collects.seen)) == 4


def test_hooks_of_higher_levels_run_before_the_update(tmp_path: Path) -> None:
    before = Collects(lambda trainer: (trainer.runner.updates, trainer.output["loss"].requires_grad))
    before.level = "HIGHER"
    engine_in(tmp_path, total_epochs=1, custom_hooks=[before]).train()
    assert before.seen == [(0, True), (1, True)]


def test_a_custom_hook_may_update_the_weights_itself(tmp_path: Path) -> None:
    class ByHand(HookBase):
        _level = "HIGH"

        def after_train_iter(self) -> None:
            self.trainer.optimizer.zero_grad()
            self.trainer.output["loss"].backward()
            self.trainer.optimizer.step()

    engine = engine_in(tmp_path / "by hand", custom_hooks=[ByHand()])
    engine.plan.remove(engine.hooks[0])
    engine.train()
    assert same_weights(engine.model, engine_in(tmp_path / "other").train())


@pytest.mark.parametrize("fp16", [{"init_scale": 8.0, "growth_interval": 2}, {"dtype": "bf16"}, True])
def test_mixed_precision_works_on_a_cpu_and_its_scale_is_saved(tmp_path: Path, fp16: Any) -> None:
    types = Collects(lambda trainer: trainer.model_output.dtype)
    engine = engine_in(tmp_path, fp16=fp16, optimizer_config={"grad_clip": {"max_norm": 1.0}}, custom_hooks=[types])
    engine.train()
    half = isinstance(fp16, dict) and "dtype" in fp16
    assert set(types.seen) == {torch.bfloat16 if half else torch.float16}
    assert engine.imixed_precision
    saved = store.read(tmp_path / "Sequential_model_final.pth", sealed=True)["scaler"]
    if half:
        assert saved is None
    elif fp16 is True:
        assert saved["scale"] == 65536.0
    else:
        assert saved == {
            "scale": 32.0,
            "growth_factor": 2.0,
            "backoff_factor": 0.5,
            "growth_interval": 2,
            "_growth_tracker": 0,
        }


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        (
            {"fp16": {"init_scal": 1.0}},
            "Fp16OptimizerHook: grad_scaler_config has no 'init_scal'; did you mean 'init_sca",
        ),
        ({"fp16": {"dtype": "fp8"}}, "Fp16OptimizerHook: dtype cannot be 'fp8'; "),
        (
            {"fp16": {"dtype": "bf16", "init_scale": 1.0}},
            "Fp16OptimizerHook: bf16 uses no gradient scaler; remove grad_",
        ),
        (
            {"optimizer_config": {"grad_clip": {"max_norm": -1}}},
            "OptimizerHook: grad_clip: clip_norm must be a number ab",
        ),
    ],
)
def test_parameters_of_the_update_are_checked(tmp_path: Path, cfg: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        engine_in(tmp_path, **cfg)
    assert str(caught.value).startswith(message)


# ----------------------------------------------------------------------------------------------------- learning rates


def rates(tmp_path: Path, **cfg: Any) -> list[float]:
    engine = engine_in(tmp_path, batches=4, **cfg)
    engine.train()
    return [round(value, 6) for value in engine.log_buffer.history("lr").values()]


def test_a_scheduler_steps_every_iteration_or_with_every_update_or_epoch(tmp_path: Path) -> None:
    halves = {"policy": "ExponentialLR", "gamma": 0.5}
    assert rates(tmp_path, total_epochs=1, lr_config=halves) == [0.1, 0.05, 0.025, 0.0125]
    by_updates = {"gradient_accumulation_steps": 2, "total_epochs": 1, "lr_config": halves}
    assert rates(tmp_path, **by_updates) == [0.1, 0.1, 0.05, 0.05]
    assert rates(tmp_path, is_lr_accumulation=False, **by_updates) == [0.1, 0.05, 0.025, 0.0125]
    assert rates(tmp_path, lr_config={**halves, "by_epoch": True}) == [0.1] * 4 + [0.05] * 4
    assert rates(tmp_path, total_epochs=1) == [0.1] * 4


def test_the_policies_of_imix() -> None:
    def factors(cfg: dict[str, Any], count: int) -> list[float]:
        optimizer = torch.optim.SGD(toy_model().parameters(), lr=1.0)
        scheduler = build_lr_scheduler(cfg, optimizer)
        assert scheduler is not None
        found = []
        for _ in range(count):
            found.append(round(optimizer.param_groups[0]["lr"], 6))
            optimizer.step()
            scheduler.step()
        return found

    multi = {"policy": "MultiStepScheduler", "lr_steps": [4, 6], "lr_ratio": 0.1}
    assert factors(multi, 7) == [1, 1, 1, 1, 0.1, 0.1, 0.01]
    warm = {**multi, "use_warmup": True, "warmup_factor": 0.2, "warmup_iterations": 2}
    assert factors(warm, 6) == [0.2, 0.6, 1, 1, 0.1, 0.1]
    linear = {"policy": "WarmupLinearSchedule", "num_warmup_steps": 2, "num_training_steps": 6}
    assert factors(linear, 8) == [0, 0.5, 1, 0.75, 0.5, 0.25, 0, 0]


def test_the_rate_of_the_group_with_most_parameters_is_recorded(tmp_path: Path) -> None:
    model = toy_model()
    groups = [{"params": [model[0].bias], "lr": 0.5}, {"params": [*model[2].parameters(), model[0].weight], "lr": 0.1}]
    engine = engine_in(tmp_path, model=model, optimizer=torch.optim.SGD(groups), total_epochs=1)
    engine.train()
    assert engine.log_buffer.history("lr").values() == [0.1, 0.1]


# ------------------------------------------------------------------------------------------------------------- times


def test_times_are_recorded_and_summed_up(tmp_path: Path) -> None:
    lr = {"policy": "MultiStepScheduler", "lr_steps": [9], "lr_ratio": 0.1, "use_warmup": True, "warmup_iterations": 1}
    engine = engine_in(tmp_path, lr_config=lr)
    engine.train()
    assert len(engine.log_buffer.history("iter_time")) == len(engine.log_buffer.history("data_time")) == 4
    assert len(engine.log_buffer.history("epoch_time")) == 2
    assert min(engine.log_buffer.history("data_time").values()) >= 0
    assert "  3 iterations in 0:00:00 (" in (tmp_path / "run.log").read_text()


@pytest.mark.parametrize("with_native_timer", [False, True])
def test_data_time_is_separate_from_the_time_of_steps_and_hooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_native_timer: bool
) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)

    class SlowData:
        def __len__(self) -> int:
            return 2

        def __iter__(self) -> Iterator[Any]:
            for batch in toy_data(2):
                clock.now += 3
                yield batch

    class SlowHook(HookBase):
        def before_train_iter(self) -> None:
            clock.now += 40

        def after_train_iter(self) -> None:
            clock.now += 400

    def slow_loss(output: Tensor, target: Tensor) -> Tensor:
        clock.now += 10
        return nn.functional.cross_entropy(output, target)

    def slow_evaluation(model: nn.Module) -> float:
        clock.now += 5000
        return 1.0

    evaluates = {"type": "EvaluateHook", "eval_function": slow_evaluation, "eval_iter_period": 1}
    slow = SlowHook()
    slow.level = "LOW"
    hooks = [{**evaluates, "level": "HIGHER"}, slow, {**evaluates, "level": "LOWEST"}]
    hooks += [IterTimerHook()] * with_native_timer
    engine = engine_in(tmp_path, SlowData(), loss_fn=slow_loss, log_config={"period": 1}, custom_hooks=hooks)
    engine.train()
    assert engine.log_buffer.history("data_time").values() == [3] * (8 if with_native_timer else 4)
    assert engine.log_buffer.history("iter_time").values() == [50, 450, 50, 450]
    said = [line for line in (tmp_path / "run.log").read_text().splitlines() if "current_iter:1" in line]
    expected = ["load_data_time:3.0000", "iter_time:250.0000", f"eta:{as_time(2 * 253)}"]  # medians
    assert [line.split(" \t ")[-3:] for line in said] == [expected]


# -------------------------------------------------------------------------------------------------------- evaluation


def test_evaluations_are_a_line_each_and_the_best_is_kept(tmp_path: Path) -> None:
    given = iter([{"accuracy": 0.5, "extra": 1}, {"accuracy": 0.7, "extra": 1}, {"accuracy": 0.7, "extra": 0}])
    modes: list[bool] = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        modes.append(model.training or torch.is_grad_enabled())
        torch.rand(3)
        return next(given)

    engine = engine_in(tmp_path, total_epochs=3, custom_hooks=[{"type": "EvaluateHook", "eval_function": evaluate}])
    engine.train()
    assert modes == [False] * 3
    lines = [json.loads(line) for line in (tmp_path / "eval_result.json").read_text().splitlines()]
    assert lines == [
        {"iter": 2, "max_iter": 6, "epoch": 0, "max_epoch": 3, "accuracy": 0.5, "extra": 1},
        {"iter": 4, "max_iter": 6, "epoch": 1, "max_epoch": 3, "accuracy": 0.7, "extra": 1},
        {"iter": 6, "max_iter": 6, "epoch": 2, "max_epoch": 3, "accuracy": 0.7, "extra": 0},
    ]
    best, second = (
        store.read(tmp_path / name, sealed=True) for name in ("best_result.pth", "Sequential_epoch1_model.pth")
    )
    assert list(best["state_dict"]) == list(second["state_dict"])
    assert all(best["state_dict"][name].equal(second["state_dict"][name]) for name in best["state_dict"])
    weights = store.read(tmp_path / "model_best.pth", sealed=True)
    assert list(weights) == ["state_dict"]
    assert all(weights["state_dict"][name].equal(second["state_dict"][name]) for name in best["state_dict"])
    assert engine.log_buffer.history("accuracy").values() == [0.5, 0.7, 0.7]
    assert same_weights(engine.model, engine_in(tmp_path / "other", total_epochs=3).train())


def test_random_numbers_of_an_evaluation_do_not_change_the_training(tmp_path: Path) -> None:
    def dropping(model: nn.Module, batch: Any) -> Tensor:
        return nn.functional.cross_entropy(model(nn.functional.dropout(batch[0], 0.3)), batch[1])

    hook = {"type": "EvaluateHook", "eval_function": lambda: torch.rand(1).item()}
    one = engine_in(tmp_path / "one", loss_fn=dropping, custom_hooks=[hook]).train()
    assert same_weights(one, engine_in(tmp_path / "other", loss_fn=dropping).train())


def test_by_iterations_it_evaluates_every_period_and_after_the_last_outside_of_windows(tmp_path: Path) -> None:
    def evaluated_at(**cfg: Any) -> list[int]:
        seen: list[int] = []

        def evaluate(trainer: Any) -> float:
            seen.append(trainer.iter)
            return 1.0

        hook = {"type": "EvaluateHook", "eval_function": evaluate, "eval_iter_period": 2}
        engine_in(tmp_path, batches=5, custom_hooks=[hook], **cfg).train()
        return seen

    assert evaluated_at(by_iter=True, max_iter=5) == [1, 3, 4]
    assert evaluated_at(by_iter=True, max_iter=5, gradient_accumulation_steps=3) == [2, 4]
    assert evaluated_at(total_epochs=1) == [1, 3]


def test_less_is_better_where_the_name_says_so_and_nan_is_never_better(tmp_path: Path) -> None:
    given = iter([2.0, float("nan"), 1.0])

    def loss() -> float:
        return next(given)

    hook = {"type": "EvaluateHook", "eval_function": loss}
    engine = engine_in(tmp_path, total_epochs=3, custom_hooks=[hook])
    engine.train()
    assert engine.hooks[-1].best["metrics"] == {"loss": 1.0}
    assert [str(value) for value in engine.log_buffer.history("eval/loss").values()] == ["2.0", "nan", "1.0"]
    assert len(engine.log_buffer.history("loss")) == 6


def test_an_evaluation_that_is_switched_off_or_gives_nothing_leaves_nothing(tmp_path: Path) -> None:
    hooks = [
        {"type": "EvaluateHook", "eval_function": lambda: 1 / 0, "is_run_eval": False},
        {"type": "EvaluateHook", "eval_function": lambda: None},
    ]
    engine_in(tmp_path, custom_hooks=hooks).train()
    assert not list(tmp_path.glob("*best*")) + list(tmp_path.glob("eval*"))


def test_an_evaluation_must_return_numbers(tmp_path: Path) -> None:
    def words() -> dict[str, str]:
        return {"answer": "yes"}

    with pytest.raises(
        ConfigError, match=r"^EvaluateHook: words \(.*\) returned str as 'answer'; it must return a num"
    ):
        engine_in(tmp_path, custom_hooks=[{"type": "EvaluateHook", "eval_function": words}]).train()


# --------------------------------------------------------------------------------------------- anomalies and traces


def root(model: nn.Module, batch: Any) -> Tensor:
    loss: Tensor = (model(batch[0]) * 0).abs().sqrt().sum()
    return loss


def test_a_gradient_that_is_nan_names_the_line_that_made_it(tmp_path: Path) -> None:
    engine = engine_in(tmp_path, loss_fn=root, custom_hooks=[{"type": "AutogradAnomalyDetectHook"}])
    with pytest.raises(RuntimeError, match="returned nan values") as caught:
        engine.train()
    note = next(note for note in caught.value.__notes__ if note.startswith("AutogradAnomalyHook: "))
    assert "AbsBackward0 failed; its forward pass is tests/dialects/imix/test_hooks.py:" in note
    assert exit_code_of(caught.value) == 4
    assert not torch.is_anomaly_enabled()


def test_anomaly_detection_that_is_off_does_nothing(tmp_path: Path) -> None:
    hook = {"type": "AutogradAnomalyDetectHook", "mode": False}
    seen = Collects(lambda trainer: torch.is_anomaly_enabled())
    engine = engine_in(tmp_path, custom_hooks=[hook, seen])
    assert engine.hooks[5].trainer == weakref.proxy(engine)
    engine.train()
    assert seen.seen == [False] * 4


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ({"begin": 1, "end": 3}, ["profiler/profiler-trace-iter1.json", "profiler/profiler-trace-iter2.json"]),
        (
            {
                "enable_predicate": lambda trainer: trainer.inner_iter == 1 and trainer.epoch == 1,
                "output_dir": "traces",
            },
            ["traces/profiler-trace-iter3.json"],
        ),
        ({"begin": 9, "end": 10}, []),
    ],
)
def test_chosen_iterations_are_profiled(tmp_path: Path, parameters: dict[str, Any], names: list[str]) -> None:
    engine_in(tmp_path, custom_hooks=[{"type": "AutogradProfilerHook", **parameters}]).train()
    found = sorted(tmp_path.glob("*/profiler-trace-*.json"))
    assert [str(path.relative_to(tmp_path)) for path in found] == names
    for path in found:
        events = {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}
        assert {"aten::addmm", "Optimizer.step#SGD.step"} <= events


def test_a_text_is_logged_at_three_points(tmp_path: Path) -> None:
    engine_in(tmp_path, batches=1, total_epochs=1, custom_hooks=[{"type": "TextLoggerHook", "text": "hello"}]).train()
    said = [line.partition("  ")[2] for line in (tmp_path / "run.log").read_text().splitlines() if "hello" in line]
    assert said == ["before_train:hello", "after_train_iter:hello", "after_train:hello"]


def test_training_is_native_training_to_the_bit(tmp_path: Path) -> None:
    model = toy_model()
    toy_runner(model=model, step=cross_entropy, max_epochs=2, batches=2).train()
    assert same_weights(engine_in(tmp_path, batches=toy_data(2)).train(), model)
