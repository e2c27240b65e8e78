"""EmptyCacheHook: the exact sequence of calls on each device, and no cost at other points."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch

from hookline import Hook, Runner
from hookline.errors import ConfigError
from hookline.hooks import EmptyCacheHook
from hookline.testing import toy_runner

if TYPE_CHECKING:
    from hookline.plan.plan import Plan

POINTS = [
    f"{point}_{stage}_{unit}"
    for point, unit in (("before", "epoch"), ("after", "epoch"), ("after", "iter"))
    for stage in ("train", "val", "test")
]


class Marks(Hook):
    """Records the points at which a cache could be emptied, before any other hook is called there."""

    priority = "HIGHEST"

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls


def _mark(name: str) -> Any:
    def method(self: Marks, runner: Runner) -> None:
        self.calls.append(name)

    return method


for _name in POINTS:
    setattr(Marks, _name, _mark(_name))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of calls in order: emptied caches of all kinds of devices, and garbage collections."""
    found: list[str] = []
    for kind in ("cuda", "mps", "xpu"):
        monkeypatch.setattr(getattr(torch, kind), "empty_cache", lambda kind=kind: found.append(f"empty {kind}"))
    monkeypatch.setattr(gc, "collect", lambda: found.append("collect"))
    return found


def runner_on(device: str, calls: list[str], *hooks: Any, **parts: Any) -> Runner:
    """Return a runner that believes it is on another device."""
    runner = toy_runner(batches=2, val_batches=1, custom_hooks=[Marks(calls), *hooks], **parts)
    runner._host.compute.device = torch.device(device)
    runner.model.to = lambda device: runner.model  # type: ignore[method-assign, assignment]  # stays here
    return runner


def expected(device: str, garbage: bool, *asked: str) -> list[str]:
    """Return the calls of one epoch with a validation and of a test, if the hook acts after these points."""
    points = [
        *("before_train_epoch", "after_train_iter", "after_train_iter", "after_train_epoch"),
        *("before_val_epoch", "after_val_iter", "after_val_epoch"),
        *("before_test_epoch", "after_test_iter", "after_test_epoch"),
    ]
    found = []
    for point in points:
        acts = f"{point.split('_')[0]}_{point.split('_')[2]}" in asked
        found += [point] + ["collect"] * (acts and garbage) + [f"empty {device}"] * (acts and device != "cpu")
    return found


@pytest.mark.parametrize("device", ["cuda", "mps", "xpu", "cpu"])
@pytest.mark.parametrize("garbage", [False, True])
@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        ({}, ["after_epoch"]),
        ({"before_epoch": True}, ["before_epoch", "after_epoch"]),
        ({"after_epoch": False, "after_iter": True}, ["after_iter"]),
        ({"before_epoch": True, "after_iter": True}, ["before_epoch", "after_epoch", "after_iter"]),
        ({"after_epoch": False}, []),
    ],
)
def test_exactly_this_is_called_in_training_validation_and_test(
    calls: list[str], device: str, garbage: bool, flags: dict[str, bool], asked: list[str]
) -> None:
    runner = runner_on(device, calls, EmptyCacheHook(**flags, garbage_collection=garbage), max_epochs=1)
    runner.train()
    runner.test()
    assert calls == expected(device, garbage, *asked)


def active(plan: Plan) -> list[str]:
    return [point for point in POINTS if any(call.who == "EmptyCacheHook" for call in plan.calls_at(point))]


@pytest.mark.parametrize(
    ("device", "parameters", "points"),
    [
        ("cpu", {"before_epoch": True, "after_iter": True}, []),
        ("cpu", {"garbage_collection": True}, ["after_train_epoch", "after_val_epoch", "after_test_epoch"]),
        ("cuda:1", {}, ["after_train_epoch", "after_val_epoch", "after_test_epoch"]),
        ("xpu", {"after_epoch": False, "after_iter": True}, ["after_train_iter", "after_val_iter", "after_test_iter"]),
        ("meta", {"before_epoch": True}, []),
    ],
)
def test_points_with_nothing_to_do_are_idle(
    calls: list[str], device: str, parameters: dict[str, bool], points: list[str]
) -> None:
    runner = runner_on(device, calls, EmptyCacheHook(**parameters))
    runner.plan.skip_idle_points()
    assert active(runner.plan) == points


def test_training_by_iterations_has_one_epoch_and_several_validations(calls: list[str]) -> None:
    runner = runner_on("cuda", calls, EmptyCacheHook(), max_iters=4, train={"val_interval": 2})
    runner.train()
    validation = ["before_val_epoch", "after_val_iter", "after_val_epoch", "empty cuda"]
    steps = ["after_train_iter", "after_train_iter"]
    end = ["after_train_epoch", "empty cuda"]
    assert calls == ["before_train_epoch", *steps, *validation, *steps, *validation, *end]


def test_val_alone_and_training_twice_and_a_failing_step(calls: list[str]) -> None:
    runner = runner_on("xpu", calls, EmptyCacheHook(before_epoch=True), max_epochs=1, val=None)
    runner.train()
    assert calls.count("empty xpu") == 2
    runner.train_loop.max_epochs = 2
    runner.train()
    assert calls.count("empty xpu") == 4
    runner.on("before_backward")(lambda runner: 1 // 0)
    runner.train_loop.max_epochs = 3
    with pytest.raises(ZeroDivisionError):
        runner.train()
    assert calls.count("empty xpu") == 5
    calls.clear()
    runner_on("mps", calls, EmptyCacheHook()).val()
    assert calls == ["before_val_epoch", "after_val_iter", "after_val_epoch", "empty mps"]


def test_garbage_is_collected_for_real_and_the_weights_are_the_same() -> None:
    class Circle:
        def __init__(self) -> None:
            self.me = self

    alive: list[int] = []
    made: list[weakref.ref[Circle]] = []
    hook = EmptyCacheHook(after_epoch=False, after_iter=True, garbage_collection=True)
    having = toy_runner(max_epochs=1, custom_hooks=[hook], val=None)

    @having.on("before_train_iter")
    def make_garbage(runner: Runner) -> None:
        alive.append(sum(ref() is not None for ref in made))
        made.append(weakref.ref(Circle()))

    having.train()
    without = toy_runner(max_epochs=1, val=None)
    without.train()
    assert alive == [0] * 4
    for name, value in without.model.state_dict().items():
        assert value.equal(having.model.state_dict()[name])


def test_a_config_names_it() -> None:
    runner = toy_runner(custom_hooks=[{"type": "EmptyCacheHook", "after_iter": True, "on_error": "disable"}])
    hook = next(hook for hook in runner.hooks if isinstance(hook, EmptyCacheHook))
    assert (hook.before_epoch, hook.after_epoch, hook.after_iter, hook.garbage_collection) == (False, True, True, False)
    with pytest.raises(ConfigError, match="EmptyCacheHook has no parameter 'after_iters'; did you mean 'after_iter'?"):
        toy_runner(custom_hooks=[{"type": "EmptyCacheHook", "after_iters": True}])
