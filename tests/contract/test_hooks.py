"""One contract suite over all built-in hooks: every hook must pass it.

A hook is built from the YAML in its docstring and used in a digits run with dropout, batch norm, accumulation, a
schedule and validation.
"""

from __future__ import annotations

import inspect
import json
import re
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline import Runner
from hookline.cli import documentation
from hookline.common.marks import Mark
from hookline.common.nodes import plain
from hookline.common.yaml_text import parse
from hookline.config.signature import signature_of
from hookline.errors import ConfigError
from hookline.plan.hook import BaseHook
from hookline.plan.points import POINTS, SCOPES
from hookline.plan.registry import DEFAULT_HOOKS, HOOKS
from hookline.state import snapshot
from hookline.testing import toy_runner
from tests.faults.runs import digest

ROOT = Path(__file__).parents[2]
NAMES = [name for name in HOOKS if HOOKS.origin(name) == "hookline"]

BATCHES, EPOCHS = 5, 3
BASE: dict[str, Any] = {
    "model": {"type": "DigitsNet", "width": 4},
    "train": {
        "dataloader": {"dataset": {"type": "Digits"}, "batch_size": 16, "shuffle": True},
        "step": "cross_entropy",
        "max_epochs": EPOCHS,
        "limit_batches": BATCHES,
    },
    "val": {
        "dataloader": {"dataset": {"type": "Digits", "split": "val"}, "batch_size": 16},
        "step": "predict",
        "metrics": {"accuracy": "accuracy"},
        "limit_batches": 2,
    },
    "test": {
        "dataloader": {"dataset": {"type": "Digits", "split": "test"}, "batch_size": 16},
        "step": "predict",
        "metrics": {"accuracy": "accuracy"},
        "limit_batches": 2,
    },
    "optim": {
        "optimizer": {"type": "AdamW", "lr": 0.01},
        "schedulers": [{"type": "CosineAnnealingLR", "T_max": EPOCHS * BATCHES, "when": "iter"}],
        "accumulate": 2,
    },
    "default_hooks": {"checkpoint": {"interval": 1, "by_epoch": False}, "logger": {"interval": 2}},
    "device": "cpu",
}

# The user's module that the YAML of some hooks refers to.
MYNET = '''
def holdout_accuracy(model):
    """A number that depends on the weights."""
    return sum(parameter.abs().sum() for parameter in model.parameters())
'''


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "mynet.py").write_text(MYNET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("mynet", None)


def merged(base: Any, more: Any) -> Any:
    if isinstance(base, Mapping) and isinstance(more, Mapping):
        return {key: merged(base.get(key), more[key]) if key in more else base[key] for key in [*base, *more]}
    return more


def yaml_of(name: str) -> dict[str, Any]:
    found = plain(parse(documentation.read(name).yaml, lambda line, column: Mark(name, line, column)))
    assert isinstance(found, dict)
    return found


# Every hook must work with each of these ways to train.
WAYS: dict[str, dict[str, Any]] = {
    "by epochs": {},
    "by iterations": {"train": {"max_epochs": None, "max_iters": EPOCHS * BATCHES, "val_interval": BATCHES}},
    "fp16, background saves": {"precision": "fp16", "default_hooks": {"checkpoint": {"async_save": True}}},
}


def build_runner(
    name: str, folder: str = "run", *, epochs: int = EPOCHS, way: str = "by epochs", **parts: Any
) -> Runner:
    """Return a runner with the hook as in the YAML of its docstring."""
    changes = merged({"train": {"max_epochs": epochs}, "work_dir": folder, **parts}, WAYS[way])
    config = merged(merged(BASE, yaml_of(name)), changes)
    runner = Runner.from_config(config)
    runner.terminal.quiet = True
    return runner


def build_runner_with_only(name: str) -> Runner:
    """Return a runner with only this hook."""
    config = merged(BASE, yaml_of(name))
    if name != "ParamSchedulerHook":  # a run reports schedulers that no hook steps
        config = merged(config, {"optim": {"schedulers": []}})
    given = {key: config["default_hooks"].get(key, {}) if hook == name else None for key, hook in DEFAULT_HOOKS.items()}
    runner = Runner.from_config(config | {"default_hooks": given, "work_dir": "alone"})
    runner.terminal.quiet = True
    return runner


def own_hook(name: str, runner: Runner) -> Any:
    return next(entry.hook for entry in runner.plan if type(entry.hook).__name__ == name)


class FailsError(Exception):
    """The error that ends a run in these tests."""


def fail_at(runner: Runner, iteration: int, point: str = "after_train_iter") -> None:
    """End the run with an exception at this point of this iteration."""

    @runner.on(point, priority=100)
    def fail(runner: Runner) -> None:
        if runner.iter == iteration:
            raise FailsError(point)


def surroundings(runner: Runner) -> dict[str, Any]:
    """Return everything in the process and the model that a hook might change and must restore."""
    return {
        "modes": [module.training for module in runner.model.modules()],
        "frozen": [parameter.requires_grad for parameter in runner.model.parameters()],
        "gradients": torch.is_grad_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "profiling": torch._C._autograd._profiler_enabled(),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "streams": [sys.stdout, sys.stderr, warnings.showwarning],
        "progress": runner.terminal.progress,
        "loops": [list(runner.val_loops), list(runner.test_loops)],
        "running": runner.running,
        "clipping": [optim.clip for optim in runner.optims.values()],
    }


def records(folder: str) -> list[dict[str, Any]]:
    """Return the records of metrics.jsonl without the values that depend on the clock."""
    found = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in record.items() if not depends_on_the_clock(name)} for record in found]


def depends_on_the_clock(name: str) -> bool:
    return name.endswith("time") or name.startswith("train/stats/")


def state_digest(runner: Runner) -> str:
    """Return the digest of everything that a checkpoint would hold now."""
    taken = snapshot.take(runner._host)
    taken["hooks"].pop("TimeLimitHook", None)  # it holds durations
    scalars = taken["message_hub"]["scalars"]
    taken["message_hub"]["scalars"] = {name: value for name, value in scalars.items() if not depends_on_the_clock(name)}
    return digest(taken)


# ------------------------------------------------------------------------------------------------------ the contract


@pytest.mark.parametrize("name", NAMES)
def test_its_docstring_has_a_summary_its_cost_an_example_yaml_and_all_parameters(name: str) -> None:
    hook = documentation.read(name)
    assert 20 <= len(hook.summary) <= 90
    assert re.search(r"^Cost: ", hook.text, re.MULTILINE)
    assert hook.example
    assert name in hook.yaml or next(key for key, value in DEFAULT_HOOKS.items() if value == name) in hook.yaml
    assert [parameter.name for parameter in hook.parameters if not parameter.doc] == []
    assert inspect.getmodule(HOOKS.get(name)).__doc__.startswith(f"{name}: ")  # type: ignore[union-attr]  # it has one


@pytest.mark.parametrize("name", NAMES)
def test_its_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(documentation.read(name).example, name, "exec"), {})
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_its_public_methods_are_points_or_methods_of_every_hook(name: str) -> None:
    hook: Any = HOOKS.get(name)
    described = {"checkpoint_folder", "averaged_state_dict"}
    found = {key for key, value in vars(hook).items() if callable(value) and not key.startswith("_")}
    assert found <= {*POINTS, *SCOPES, *vars(BaseHook), *described}


@pytest.mark.parametrize("name", NAMES)
def test_it_is_built_from_its_yaml_and_trains_validates_and_tests(name: str) -> None:
    runner = build_runner(name)
    assert own_hook(name, runner).runner is runner
    runner.train()
    assert (runner.epoch, runner.iter, runner.validations) == (EPOCHS, EPOCHS * BATCHES, EPOCHS)
    assert runner.val().keys() >= {"accuracy"}
    assert runner.test().keys() >= {"accuracy"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("iteration", "point", "way"),
    [
        (7, "before_train_iter", "by epochs"),
        pytest.param(10, "after_train_epoch", "by epochs", marks=pytest.mark.exhaustive),
        pytest.param(10, "after_val", "by epochs", marks=pytest.mark.exhaustive),
        pytest.param(8, "before_train_iter", "by iterations", marks=pytest.mark.long),
        pytest.param(12, "before_train_iter", "fp16, background saves", marks=pytest.mark.long),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one(name: str, iteration: int, point: str, way: str) -> None:
    whole = build_runner(name, "whole/run", way=way)
    whole.train()
    broken = build_runner(name, "run", way=way)
    fail_at(broken, iteration, point)
    with pytest.raises(FailsError):
        broken.train()
    resumed = build_runner(name, "run", way=way, resume=True)
    resumed.train()
    assert state_digest(resumed) == state_digest(whole)
    assert records("run") == records("whole/run")


@pytest.mark.parametrize("name", NAMES)
def test_a_run_can_be_started_and_ended_again(name: str) -> None:
    runner = build_runner(name, epochs=1)
    for epochs in (1, 2):
        runner.train_loop.max_epochs = epochs
        runner.train()
        assert runner.iter == epochs * BATCHES
    assert runner.val() == runner.val()
    assert runner.test() == runner.test()
    whole = build_runner(name, "whole", epochs=2)
    whole.train()
    weights = whole.model.state_dict()
    assert all(value.equal(weights[key]) for key, value in runner.model.state_dict().items())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "point",
    [
        "after_train_iter",
        *(
            pytest.param(point, marks=pytest.mark.exhaustive)
            for point in ("before_train_iter", "after_backward", "before_val_iter")
        ),
    ],
)
def test_after_a_failed_run_everything_is_restored_and_the_run_can_be_started_again(name: str, point: str) -> None:
    runner = build_runner(name)
    before = surroundings(runner)
    fails = [True]

    @runner.on(point)
    def fail(runner: Runner) -> None:
        if runner.iter >= 5 and fails:
            raise FailsError(point)

    with pytest.raises(FailsError) as failed:
        runner.train()
    assert surroundings(runner) == before
    assert [note for note in failed.value.__notes__ if name in note] == []
    fails.clear()
    runner.train()
    assert runner.iter == EPOCHS * BATCHES
    assert surroundings(runner) == before


@pytest.mark.parametrize("name", NAMES)
def test_it_needs_no_other_hook_and_mentions_none(name: str) -> None:
    runner = build_runner_with_only(name)
    assert [entry.name for entry in runner.plan] == [name]
    runner.train()
    runner.val()
    runner.test()
    assert runner.iter == EPOCHS * BATCHES
    log = (runner.work_dir / "run.log").read_text()
    assert [other for other in NAMES if other != name and other in log] == []
    source = inspect.getsource(inspect.getmodule(HOOKS.get(name)))  # type: ignore[arg-type]  # it has one
    code = re.sub(r'""".*?"""|#[^\n]*|^[^\n]*runs_(after|before)[^\n]*$', "", source, flags=re.DOTALL | re.MULTILINE)
    assert [other for other in NAMES if other != name and re.search(rf"\b{other}\b", code)] == []


def test_the_page_about_hooks_is_up_to_date() -> None:
    page = (ROOT / "docs" / "built-in-hooks.md").read_text(encoding="utf-8")
    assert page == documentation.page(), "the page is out of date; run: make docs"


def test_every_hook_can_be_imported_by_its_name() -> None:
    from hookline import hooks

    everything: dict[str, object] = {}
    exec("from hookline.hooks import *", everything)
    assert sorted(everything.keys() - {"__builtins__"}) == NAMES
    assert [getattr(hooks, name).__name__ for name in NAMES] == NAMES


def test_the_stub_for_editors_is_up_to_date() -> None:
    stub = (ROOT / "src" / "hookline" / "hooks" / "__init__.pyi").read_text(encoding="utf-8")
    assert stub == documentation.stub(), "the stub is out of date; run: make docs"


def list_observers() -> list[str]:
    return [name for name in NAMES if documentation.read(name).role == "observer"]


def test_training_ends_with_the_same_weights_with_all_observers_and_with_none() -> None:
    found = list_observers()
    assert {"LoggerHook", "ProgressHook"} <= set(found)
    wanted = [entry for name in found for entry in yaml_of(name).get("custom_hooks", [])]
    none = {key: None for key in DEFAULT_HOOKS if key not in ("param_scheduler",)}
    weights = []
    for folder, config in (("with", {"custom_hooks": wanted}), ("without", {"default_hooks": none})):
        runner = Runner.from_config(merged(BASE, config) | {"work_dir": folder})
        runner.terminal.quiet = True
        runner.train()
        weights.append(runner.model.state_dict())
    assert all(value.equal(weights[1][key]) for key, value in weights[0].items())
    assert len(wanted) == len(found) - 2  # LoggerHook and ReportHook are default hooks


# A run in which a hook has little or nothing to do: its parameters, and the points at which it is still called in
# training.
IDLE: dict[str, tuple[dict[str, Any], list[str]]] = {
    "ActivationStatsHook": ({"modules": "*"}, []),  # it only watches modules
    "AutogradAnomalyHook": ({"begin": 1000}, []),
    "CheckInvalidLossHook": ({}, ["before_train", "before_backward"]),
    "EvaluateHook": ({"function": float}, ["before_train", "after_train_epoch", "after_train"]),
    "FreezeHook": (
        {"patterns": "0.*"},
        ["before_train", "after_train", "on_exception", "around_train"],
    ),
    "SyncBuffersHook": ({}, []),
    "EmptyCacheHook": ({"before_epoch": True, "after_iter": True}, []),
    "ProfilerHook": (
        {"stages": ["test"]},
        ["on_exception", "after_run", "around_test", "around_test_epoch", "around_test_iter"],
    ),
    "StatsMonitorHook": (
        {},
        ["before_train_epoch", "after_train_iter", "before_val", "after_val", "around_train"],
    ),
    "TimeLimitHook": (
        {"limit": "1h"},
        ["before_run", "before_train", "after_train_iter", "after_train_epoch", "before_val", "after_val"],
    ),
    "GradClipHook": ({"max_norm": 1.0}, ["before_train", "before_optimizer_step"]),
    "GradNormHook": ({}, ["before_optimizer_step"]),
    "CheckpointHook": ({"interval": -1, "save_last": False}, ["before_train"]),
    "DistSamplerSeedHook": ({}, []),
    "EMAHook": (
        {},
        ["after_load_checkpoint", "before_train", "after_optimizer_step", "around_val", "around_test"],
    ),
    "EarlyStoppingHook": ({"monitor": "accuracy"}, ["before_train", "after_val_epoch"]),
    "IterTimerHook": ({}, [point for point in POINTS if hasattr(HOOKS.get("IterTimerHook"), point)]),
    "LoggerHook": (
        {},
        [
            *("before_train", "after_train_iter", "after_train_epoch", "after_val_epoch", "after_train"),
            *("after_test_epoch", "after_run"),
        ],
    ),
    "ParamSchedulerHook": ({}, ["before_train"]),
    "ProgressHook": ({}, []),
    "PruningHook": ({"monitor": "accuracy", "study": "s"}, ["before_train", "after_val_epoch", "after_train"]),
    "VisualizationHook": ({}, ["before_run", "after_val_iter", "after_test_iter", "around_val"]),
    "RuntimeInfoHook": ({}, [point for point in POINTS if hasattr(HOOKS.get("RuntimeInfoHook"), point)]),
}


@pytest.mark.parametrize("name", NAMES)
def test_it_is_not_called_where_it_has_nothing_to_do(name: str) -> None:
    everywhere = [point for point in (*POINTS, *SCOPES) if hasattr(HOOKS.get(name), point)]
    parameters, points = IDLE.get(name, ({}, everywhere))  # a hook that is idle nowhere needs no entry
    runner = toy_runner(default_hooks=dict.fromkeys(DEFAULT_HOOKS), custom_hooks=[{"type": name, **parameters}])
    runner._host.running = "train"
    runner.plan.skip_idle_points()
    assert [point for point in (*POINTS, *SCOPES) if runner.plan.calls_at(point)] == points


#: Numbers that make sense although they are infinite or negative, by hook and parameter.
SENSIBLE = {
    ("CheckpointHook", "interval", -1),
    ("CheckpointHook", "max_keep_ckpts", -1),
    ("EarlyStoppingHook", "stopping_threshold", -1),
    ("GradClipHook", "norm_type", float("inf")),
    ("GradNormHook", "norm_type", float("inf")),
    ("VisualizationHook", "key", -1),
    ("VisualizationHook", "key", "huge"),  # an index or a name; only the outputs of a step can tell
}
HUGE = 16**100_000
#: Parameters that some hooks need besides the number.
NEEDED: dict[str, dict[str, Any]] = {
    "ActivationStatsHook": {"modules": "*"},
    "EarlyStoppingHook": {"monitor": "accuracy"},
    "EvaluateHook": {"function": lambda model: {}},
    "FreezeHook": {"patterns": "0.*"},
    "GradClipHook": {"max_norm": 1.0},
    "PruningHook": {"monitor": "accuracy", "study": "s"},
    "TimeLimitHook": {"limit": "1h"},
}


@pytest.mark.parametrize("name", NAMES)
def test_a_number_that_makes_no_sense_is_refused(name: str) -> None:
    hook: Any = HOOKS.get(name)
    accepted: set[Any] = set()
    for parameter in signature_of(hook).parameters.values():
        if not re.search(r"\b(int|float)\b", str(parameter.hint)):
            continue
        needed = dict(NEEDED.get(name, {}))
        if (name, parameter.name) == ("GradClipHook", "clip_value"):
            needed = {}
        for number in (float("nan"), float("inf"), float("-inf"), -1, HUGE):
            with suppress(ConfigError):
                hook(**{**needed, parameter.name: number})
                accepted.add((name, parameter.name, "huge" if number == HUGE else number))
    assert accepted <= SENSIBLE
