"""The built-in hooks: MMEngine's parameters and defaults, and their effects."""

from __future__ import annotations

import inspect
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hookline.hooks
from hookline.dialects.mmengine import hooks
from hookline.dialects.mmengine.evaluator import BaseMetric
from hookline.dialects.mmengine.hooks import CheckpointHook, EarlyStoppingHook, EMAHook, Hook, LoggerHook
from hookline.dialects.mmengine.hooks.hook import STAGES
from hookline.dialects.mmengine.model import BaseAveragedModel, ExponentialMovingAverage
from hookline.dialects.mmengine.registry import HOOKS, METRICS, MODELS
from hookline.errors import ConfigError, HookError
from hookline.testing import toy_data
from tests.dialects.mmengine.parts import VAL, ToyNet, runner_of, weights

#: The parameters of the original hooks and their defaults.
DEFAULTS: dict[str, dict[str, Any]] = {
    "CheckpointHook": {
        **{"interval": -1, "by_epoch": True, "save_optimizer": True, "save_param_scheduler": True, "out_dir": None},
        **{"max_keep_ckpts": -1, "save_last": True, "save_best": None, "rule": None, "greater_keys": None},
        **{"less_keys": None, "file_client_args": None, "filename_tmpl": None, "backend_args": None},
        **{"published_keys": None, "save_begin": 0},
    },
    "DistSamplerSeedHook": {},
    "EMAHook": {"ema_type": "ExponentialMovingAverage", "strict_load": False, "begin_iter": 0, "begin_epoch": 0},
    "EarlyStoppingHook": {
        **{"monitor": inspect.Parameter.empty, "rule": None, "min_delta": 0.1, "strict": False, "check_finite": True},
        **{"patience": 5, "stopping_threshold": None},
    },
    "EmptyCacheHook": {"before_epoch": False, "after_epoch": True, "after_iter": False},
    "IterTimerHook": {},
    "LoggerHook": {
        **{"interval": 10, "ignore_last": True, "interval_exp_name": 1000, "out_dir": None},
        **{"out_suffix": (".json", ".log", ".py", "yaml"), "keep_local": True, "file_client_args": None},
        **{"log_metric_by_epoch": True, "backend_args": None},
    },
    "ParamSchedulerHook": {},
    "ProfilerHook": {
        **{"by_epoch": True, "profile_times": 1, "activity_with_cpu": True, "activity_with_cuda": False},
        **{"schedule": None, "on_trace_ready": None, "record_shapes": False, "profile_memory": False},
        **{"with_stack": False, "with_flops": False, "json_trace_path": None},
    },
    "RuntimeInfoHook": {},
    "SyncBuffersHook": {},
}
PRIORITIES = {
    **{"CheckpointHook": 90, "DistSamplerSeedHook": 50, "EMAHook": 50, "EarlyStoppingHook": 100, "EmptyCacheHook": 50},
    **{"IterTimerHook": 50, "LoggerHook": 60, "ParamSchedulerHook": 70, "ProfilerHook": 90, "RuntimeInfoHook": 10},
    **{"SyncBuffersHook": 50},
}


@pytest.fixture(autouse=True)
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (HOOKS, METRICS, MODELS):
        monkeypatch.setattr(registry, "_registered", dict(registry._registered))


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_parameters_defaults_and_priority_match_the_original(name: str) -> None:
    from hookline.dialects.mmengine.runner import get_priority

    kind = getattr(hooks, name)
    found = inspect.signature(kind).parameters.values()
    assert {each.name: each.default for each in found if each.kind is not each.VAR_KEYWORD} == DEFAULTS[name]
    assert HOOKS.get(name) is kind
    assert issubclass(kind, Hook)
    assert get_priority(kind.priority) == PRIORITIES[name]


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_their_methods_take_all_arguments_of_their_points(name: str) -> None:
    for stage in STAGES:
        own, original = (inspect.signature(getattr(kind, stage)) for kind in (getattr(hooks, name), Hook))
        assert list(own.parameters) == list(original.parameters), stage


@pytest.mark.parametrize(("name", "more"), [("EmptyCacheHook", "garbage_collection"), ("ProfilerHook", "stages")])
def test_parameters_that_the_original_does_not_have_are_refused(name: str, more: str) -> None:
    with pytest.raises(TypeError, match=more):
        getattr(hooks, name)(**{more: True})
    with pytest.raises(ConfigError, match=f"^hook: {name} has no parameter '{more}'; "):
        HOOKS.build({"type": name, more: True})


def test_the_loop_calls_native_methods_without_a_function_in_between(tmp_path: Path) -> None:
    runner = runner_of(tmp_path / "run", train_cfg={"max_epochs": 1})
    runner.train()
    native = [call.method.__func__ for call in runner.plan.calls_at("after_train_iter") if "Timer" in call.who]  # type: ignore[attr-defined]  # a method
    assert native == [hookline.hooks.IterTimerHook.after_train_iter]


def test_a_subclass_calls_its_base_as_the_original_is_called(tmp_path: Path) -> None:
    called = []

    class Own(CheckpointHook):
        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:  # type: ignore[override]
            super().after_train_iter(runner, batch_idx, data_batch, outputs)  # type: ignore[call-arg]  # as in the original
            called.append(batch_idx)

    saving = {"checkpoint": Own(by_epoch=False, interval=3)}
    runner_of(tmp_path / "run", default_hooks=saving, train_cfg={"max_epochs": 1}).train()
    assert called == [0, 1, 2, 3]
    assert sorted(path.name for path in (tmp_path / "run").glob("*.pth")) == ["iter_3.pth", "iter_4.pth"]


# -- CheckpointHook, as described in the tutorial


def saved(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.pth"))


def test_every_fifth_epoch_and_only_the_newest_two(tmp_path: Path) -> None:
    kept = {"checkpoint": {"type": "CheckpointHook", "interval": 5, "max_keep_ckpts": 2}}
    runner_of(tmp_path / "run", train_cfg={"max_epochs": 20}, default_hooks=kept).train()
    assert saved(tmp_path / "run") == ["epoch_15.pth", "epoch_20.pth"]


@pytest.mark.parametrize(("interval", "expected"), [(1, [5, 6, 7, 8, 9, 10]), (2, [5, 7, 9])])
def test_save_begin(tmp_path: Path, interval: int, expected: list[int]) -> None:
    late = {"checkpoint": {"type": "CheckpointHook", "interval": interval, "save_begin": 5, "save_last": False}}
    runner_of(tmp_path / "run", train_cfg={"max_epochs": 10}, default_hooks=late).train()
    assert saved(tmp_path / "run") == sorted(f"epoch_{number}.pth" for number in expected)


@METRICS.register_module()
class Scripted(BaseMetric):
    """Reports the given values, one per validation."""

    def __init__(self, values: list[float], name: str = "top-1") -> None:
        super().__init__()
        self.values, self.name = list(values), name

    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results.append(len(data_samples))

    def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
        return {self.name: self.values.pop(0), "other": 0.0}


@pytest.mark.parametrize(
    ("best", "rule", "values", "expected"),
    [
        ("auto", None, [0.1, 0.3, 0.2], "best_top-1_epoch_2.pth"),
        ("top-1", "greater", [0.1, 0.3, 0.3], "best_top-1_epoch_2.pth"),
        ("top-1", "less", [0.3, 0.1, float("nan")], "best_top-1_epoch_2.pth"),
    ],
)
def test_the_best_checkpoint(tmp_path: Path, best: str, rule: str | None, values: list[float], expected: str) -> None:
    scripted = {"type": "Scripted", "values": values}
    saving = {"checkpoint": {"type": "CheckpointHook", "interval": -1, "save_best": best, "rule": rule}}
    parts: Any = {"train_cfg": {"max_epochs": 3}, "default_hooks": saving, "val_evaluator": scripted}
    runner = runner_of(tmp_path / "run", **parts)
    runner.train()
    assert saved(tmp_path / "run") == [expected, "epoch_3.pth"]
    assert "optimizer" in weights(tmp_path / "run" / expected)
    hub, path = runner.message_hub, str(tmp_path / "run" / expected)
    assert (hub.get_info("best_score"), hub.get_info("best_ckpt")) == (values[1], path)
    assert hub.get_info("last_ckpt") == str(tmp_path / "run" / "epoch_3.pth")
    (hook,) = [each for each in runner.hooks if isinstance(each, CheckpointHook)]
    assert (hook.best_ckpt_path, hook.best_ckpt_path_dict) == (path, {"top-1": path})
    assert (hook.last_ckpt, hook.key_indicators) == (hub.get_info("last_ckpt"), ["top-1"])
    assert hook.rules == [rule or "greater"]
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    again = runner_of(moved, **{**parts, "train_cfg": {"max_epochs": 4}, "resume": True})
    again.val_evaluator.metrics[0].values = [values[1], values[1]]
    again.train()
    assert again.message_hub.get_info("best_ckpt") == str(moved / expected)


@pytest.mark.parametrize(
    ("base", "method"),
    [
        (CheckpointHook, "_save_checkpoint"),
        (CheckpointHook, "_save_best_checkpoint"),
        (EMAHook, "_swap_ema_parameters"),
        (EarlyStoppingHook, "_check_stop_condition"),
    ],
)
def test_overriding_a_method_that_is_never_called_is_refused_when_the_class_is_defined(
    base: type[Hook], method: str
) -> None:
    mixin = type("Mixin", (), {method: lambda self, runner: None})
    with pytest.raises(HookError, match=rf"^Mixed overrides {method}, which is never called here; move"):
        type("Mixed", (mixin, base), {})
    with pytest.raises(HookError) as refused:
        type("Mine", (base,), {method: lambda self, runner: None})
    assert str(refused.value) == (
        f"Mine overrides {method}, which is never called here; move its code into a method for a point, "
        "such as after_train_epoch or before_save_checkpoint"
    )


def test_out_dir_and_published_checkpoints(tmp_path: Path) -> None:
    saving = {"interval": 1, "out_dir": str(tmp_path / "all"), "published_keys": ["meta", "state_dict"]}
    runner_of(tmp_path / "run", default_hooks={"checkpoint": {"type": "CheckpointHook", **saving}}).train()
    assert saved(tmp_path / "run") == []
    first, second, published = sorted(saved(tmp_path / "all" / "run"), key=len)
    assert (first, second) == ("epoch_1.pth", "epoch_2.pth")
    assert published.startswith("epoch_2-")
    assert sorted(weights(tmp_path / "all" / "run" / published)) == ["meta", "state_dict"]


def test_other_storage_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^CheckpointHook: the backend {'backend': 'petrel'} is not supported: files are only written",
    ):
        CheckpointHook(backend_args={"backend": "petrel"})
    with pytest.raises(ConfigError, match=r"^LoggerHook: the backend {'backend': 'petrel'} is not supported"):
        LoggerHook(backend_args={"backend": "petrel"})
    CheckpointHook(backend_args={"backend": "local"})


# -- EarlyStoppingHook


@pytest.mark.parametrize(
    ("values", "settings", "epochs"),
    [
        ([0.5] * 9, {"patience": 2}, 3),
        ([0.5] * 9, {"patience": 2, "min_delta": 0}, 3),
        ([0.1, 0.15, 0.18, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], {"patience": 3}, 7),
        ([0.1, 0.2, 0.95, 0.96, 0.97, 0.98, 0.99, 1.0, 1.0], {"stopping_threshold": 0.9}, 3),
        ([0.5, float("inf"), 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], {}, 2),
    ],
)
def test_a_plateau_stops(tmp_path: Path, values: list[float], settings: dict[str, Any], epochs: int) -> None:
    stopping = {"type": "EarlyStoppingHook", "monitor": "top-1", "rule": "greater", **settings}
    scripted = {"type": "Scripted", "values": values}
    parts: Any = {"train_cfg": {"max_epochs": 9}, "custom_hooks": [stopping], "val_evaluator": scripted}
    runner = runner_of(tmp_path / "run", **parts)
    runner.train()
    assert runner.epoch == epochs
    assert f"epoch_{epochs}.pth" in saved(tmp_path / "run")


# -- the rule of a metric


@pytest.mark.parametrize(
    ("name", "rule", "warning"),
    [
        ("top-1", "greater", ""),
        ("val/loss", "less", ""),
        ("rmse", "less", ""),
        ("recall", "greater", ""),
        ("stop_rate", "greater", ""),  # as in MMEngine, and the name shows nothing else
        (
            "top1_error",
            "greater",
            "'top' is in its name, but the name shows that lower is better; set the rule: rule='less'",
        ),
        ("iou_loss", "less", ""),
        (
            "accuracy_loss",
            "greater",
            "'acc' is in its name, but the name shows that lower is better; set the rule: rule='less'",
        ),
    ],
)
def test_a_rule_is_inferred_as_mmengine_does_and_an_opposite_name_is_a_warning(
    name: str, rule: str, warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "hookline"):
        saves, stops = CheckpointHook(save_best=name)._watch(name), EarlyStoppingHook(name)
    assert (saves.monitor.rule, stops.best.monitor.rule) == (rule, rule)
    begin = f"'{name}' is monitored with MMEngine's rule '{rule}', because "
    who = ("CheckpointHook: save_best", "EarlyStoppingHook")
    assert caplog.messages == [f"{each}: {begin}{warning}" for each in who if warning]
    caplog.clear()
    assert CheckpointHook(save_best=name, rule="less")._watch(name).monitor.rule == "less"
    assert EarlyStoppingHook(name, rule="less").best.monitor.rule == "less"
    assert caplog.messages == []


# -- EMAHook


@pytest.mark.parametrize(
    ("settings", "weight"),
    [
        ({"momentum": 0.1}, lambda steps: 0.1),
        ({"ema_type": "StochasticWeightAverage"}, lambda steps: 1 / (steps + 1)),
        ({"ema_type": "MomentumAnnealingEMA", "gamma": 2, "momentum": 0.3}, lambda steps: max(0.3, 2 / (2 + steps))),
    ],
)
def test_averages_by_name(tmp_path: Path, settings: dict[str, Any], weight: Any) -> None:
    raw: list[Tensor] = []

    class Copies(Hook):
        priority = "LOWEST"

        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            raw.append(runner.model.net[0].weight.detach().clone())

    hook = EMAHook(**settings)
    runner = runner_of(tmp_path / "run", custom_hooks=[hook, Copies()])
    runner.train()
    expected = raw[0]
    for steps, each in enumerate(raw[1:], 1):
        expected = expected + (each - expected) * weight(steps)
    assert torch.allclose(hook.averaged_state_dict()["net.0.weight"], expected, atol=1e-6)
    assert torch.equal(hook.ema_model.module.net[0].weight, hook.averaged_state_dict()["net.0.weight"])  # type: ignore[index, union-attr]
    assert (int(hook.ema_model.steps), hook.src_model is runner.model) == (8, True)
    assert not torch.equal(raw[-1], expected)
    assert torch.equal(weights(tmp_path / "run" / "epoch_2.pth", "state_dict", "net.0.weight"), raw[-1])


@pytest.mark.parametrize("base", [BaseAveragedModel, ExponentialMovingAverage])
def test_an_average_with_a_custom_formula(tmp_path: Path, base: Any) -> None:
    @MODELS.register_module()
    class Greatest(base):  # type: ignore[misc]
        def avg_func(self, averaged_param: Tensor, source_param: Tensor, steps: int) -> None:
            averaged_param.copy_(torch.maximum(averaged_param, source_param))

    seen: list[Tensor] = []

    class Copies(Hook):
        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            seen.append(runner.model.net[0].weight.detach().clone())

    hook = EMAHook(ema_type="Greatest")
    runner_of(tmp_path / "run", custom_hooks=[hook, Copies()]).train()
    assert torch.equal(hook.averaged_state_dict()["net.0.weight"], torch.stack(seen).max(0).values)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ema_type": "ExponentialMovingAverag"}, "not 'ExponentialMovingAverag'; did you mean 'ExponentialMovingAver"),
        ({"ema_type": ToyNet}, "ema_type must be the name of an average or a BaseAveragedModel, not"),
        ({"momentum": 3}, "EMAHook: momentum must be above 0 and at most 1, not 3"),
        ({"begin_iter": 1, "begin_epoch": 1}, "EMAHook: set begin_iter or begin_epoch, not both"),
    ],
)
def test_invalid_averages_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        EMAHook(**settings)
    assert message in str(caught.value)


def test_the_average_is_measured_and_training_is_the_same_without_it(tmp_path: Path) -> None:
    with_it = runner_of(tmp_path / "one", custom_hooks=[{"type": "EMAHook", "momentum": 0.5}])
    without = runner_of(tmp_path / "two")
    for mine, other in zip(with_it.train().parameters(), without.train().parameters(), strict=True):
        assert torch.equal(mine, other)


# -- the others


def test_the_facts_of_a_run(tmp_path: Path) -> None:
    stages = []

    class Looks(Hook):
        def _after_epoch(self, runner: Any, mode: str = "train") -> None:
            info = runner.message_hub.runtime_info
            stages.append((mode, info["loop_stage"], info["epoch"], info["iter"]))

    runner = runner_of(tmp_path / "run", custom_hooks=[Looks()])
    runner.train()
    runner.test()
    assert stages == [
        *(("train", "train", 0, 3), ("val", "val", 0, 3), ("train", "train", 1, 7), ("val", "val", 1, 7)),
        ("test", "test", 1, 7),
    ]
    facts = runner.message_hub.runtime_info
    assert (facts["max_epochs"], facts["max_iters"], facts["seed"]) == (2, 8, 0)
    assert "loop_stage" not in facts
    assert list(runner.message_hub.log_scalars) == [
        *("train/lr", "train/data_time", "train/time", "train/loss", "val/data_time", "val/time", "val/accuracy"),
        *("test/data_time", "test/time", "test/accuracy"),
    ]


def test_the_log_processor_decides_what_is_logged(tmp_path: Path) -> None:
    losses: list[float] = []

    class Keeps(Hook):
        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            losses.append(outputs["loss"].item())

    processor = {"window_size": 2, "custom_cfg": [
        {"data_src": "loss", "log_name": "loss_of_all", "method_name": "mean", "window_size": "global"},
        {"data_src": "loss", "log_name": "least", "method_name": "min", "window_size": 3},
    ]}  # fmt: skip
    runner_of(
        tmp_path / "run", VAL, train_dataloader=toy_data(6), train_cfg={"max_epochs": 1}, custom_hooks=[Keeps()],
        default_hooks={"logger": {"type": "LoggerHook", "interval": 6}}, log_processor=processor,
    ).train()  # fmt: skip
    (record,) = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert record["train/loss"] == pytest.approx(sum(losses[-2:]) / 2)
    assert record["train/loss_of_all"] == pytest.approx(sum(losses) / 6)
    assert record["train/least"] == pytest.approx(min(losses[-3:]))


def test_metrics_are_logged_by_epoch_by_default(tmp_path: Path) -> None:
    def steps(name: str, **settings: Any) -> list[int]:
        runner_of(tmp_path / name, default_hooks={"logger": {"type": "LoggerHook", **settings}}).train()
        records = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        return [record["step"] for record in records if "val/accuracy" in record]

    assert steps("one") == [1, 2]
    assert steps("two", log_metric_by_epoch=False) == [4, 8]


def test_a_profile_is_written(tmp_path: Path) -> None:
    profiling = {"type": "ProfilerHook", "by_epoch": False, "profile_times": 2, "json_trace_path": "trace.json"}
    runner_of(tmp_path / "run", custom_hooks=[profiling], train_cfg={"max_epochs": 1}).train()
    assert "traceEvents" in json.loads((tmp_path / "run" / "trace.json").read_text())


def test_hooks_for_buffers_and_caches_do_not_change_training_in_one_process(tmp_path: Path) -> None:
    def trained(name: str, *custom: dict[str, Any]) -> tuple[list[str], dict[str, torch.Tensor]]:
        torch.manual_seed(0)
        model = ToyNet()
        model.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        runner = runner_of(tmp_path / name, model=model, custom_hooks=list(custom))
        runner.train()
        return [type(hook).__name__ for hook in runner.hooks], runner.model.state_dict()

    names, mine = trained("with", {"type": "SyncBuffersHook"}, {"type": "EmptyCacheHook", "after_iter": True})
    _, plain = trained("without")
    assert {"SyncBuffersHook", "EmptyCacheHook"} < set(names)
    assert all(torch.equal(mine[name], plain[name]) for name in plain)


@pytest.mark.parametrize(
    ("flags", "calls"),
    [
        ({"before_epoch": True, "after_epoch": False}, ["before"] * 3),
        ({}, ["after"] * 3),
        ({"after_epoch": False, "after_iter": True}, ["iter"] * (2 * 4 + 2)),
    ],
)
def test_the_cache_of_the_gpu_is_emptied_at_every_documented_place_even_on_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: dict[str, bool], calls: list[str]
) -> None:
    emptied: list[str] = []
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: emptied.append(calls[0]))
    runner = runner_of(
        tmp_path,
        custom_hooks=[{"type": "EmptyCacheHook", **flags}],
        train_cfg={"by_epoch": True, "max_epochs": 2, "val_interval": 2},
    )
    runner.train()
    assert emptied == calls
