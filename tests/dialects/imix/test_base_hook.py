"""Levels, order and registration of hooks, and the engine as hooks see it."""

from __future__ import annotations

import copy
import gc
import logging
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hookline.dialects.imix.engine.base_engine import CommonEngine, EngineBase
from hookline.dialects.imix.engine.hooks import HOOKS, HookBase, PriorityStatus, build_hook
from hookline.dialects.imix.engine.hooks.ema import EMAIterHook
from hookline.errors import ConfigError, HookError
from hookline.runner.hook import Hook
from hookline.testing import Recorder as NativeRecorder

from .engines import Recorder, engine_in


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(HOOKS, "_registered", dict(HOOKS._registered))
    return iter(())


def names(engine: EngineBase) -> list[str]:
    return [type(hook).__name__ for hook in engine.hooks]


DEFAULTS = ["OptimizerHook", "LRSchedulerHook", "IterationTimerHook", "CheckPointHook", "PeriodicLogger"]


@pytest.mark.parametrize(
    ("level", "place"),
    [
        ("HIGHEST", 0),
        (0, 0),
        (PriorityStatus.HIGHER, 0),
        (10, 0),
        ("HIGH", 2),
        ("high", 2),
        (20, 2),
        (PriorityStatus.NORMAL, 5),
        (30, 5),
        (None, 5),
        ("LOW", 5),
        (50, 5),
        ("LOWEST", 5),
    ],
)
def test_a_custom_hook_comes_after_the_default_ones_of_its_level(tmp_path: Path, level: Any, place: int) -> None:
    HOOKS.register_module()(type("Mine", (HookBase,), {}))
    given = {"type": "Mine"} | ({} if level is None else {"level": level})
    engine = engine_in(tmp_path, custom_hooks=[given])
    assert names(engine) == [*DEFAULTS[:place], "Mine", *DEFAULTS[place:]]


def test_customs_of_one_level_run_in_the_order_of_the_config_and_lower_levels_later(tmp_path: Path) -> None:
    seen: list[Any] = []
    hooks = [Recorder(name, seen) for name in "abc"]
    hooks[0].level = "LOWEST"
    engine = engine_in(tmp_path, total_epochs=1, batches=1, custom_hooks=hooks)
    engine.train()
    assert [name for name, point in seen if point == "after_train_iter"] == ["b", "c", "a"]
    assert engine.hooks[-3:] == engine._hooks[-3:] == [hooks[1], hooks[2], hooks[0]]


@pytest.mark.parametrize(
    ("level", "shown", "hint"),
    [
        (35, "35", ""),
        (60.0, "60.0", ""),
        (True, "True", ""),
        ("HIHG", "'HIHG'", "; did you mean 'HIGH'?"),
    ],
)
def test_a_level_that_is_none_of_the_seven_is_refused_naming_the_hook(
    tmp_path: Path, level: Any, shown: str, hint: str
) -> None:
    with pytest.raises(HookError) as caught:
        engine_in(tmp_path, custom_hooks=[{"type": "EMAIterHook", "level": level}])
    assert str(caught.value) == (
        f"EMAIterHook: unknown level {shown}; expected one of HIGHEST 0, HIGHER 10, HIGH 20, NORMAL 30, LOW 40, "
        f"LOWER 50, LOWEST 60{hint}"
    )


def test_the_level_of_a_class_counts_unless_the_config_gives_one(tmp_path: Path) -> None:
    class Early(HookBase):
        def __init__(self) -> None:
            self._level = PriorityStatus.HIGHEST

    class Late(HookBase):
        @property  # type: ignore[misc]  # as users write it
        def level(self) -> Any:
            return "LOWEST"

    engine = engine_in(tmp_path, custom_hooks=[Late(), Early()])
    assert (names(engine)[0], names(engine)[-1]) == ("Early", "Late")
    HOOKS.register_module()(Early)
    assert names(engine_in(tmp_path, custom_hooks=[{"type": "Early", "level": "LOW"}]))[-1] == "Early"


def test_a_hook_reports_the_level_that_it_has(tmp_path: Path) -> None:
    class Early(HookBase):
        _level = "HIGH"

    first, second, late = Early(), Early(), Recorder()
    late.level = 40
    assert (first.level, late.level) == (PriorityStatus.HIGH, PriorityStatus.LOW)
    engine = engine_in(tmp_path, custom_hooks=[first, late])
    HOOKS.register_module()(Early)
    other = engine_in(tmp_path, custom_hooks=[{"type": "Early", "level": "lowest"}])
    other.register_hooks([second])
    assert [(type(hook).__name__, hook.level.name) for hook in engine.hooks] == [
        ("OptimizerHook", "HIGH"),
        ("LRSchedulerHook", "HIGH"),
        ("Early", "HIGH"),
        *((name, "NORMAL") for name in ("IterationTimerHook", "CheckPointHook", "PeriodicLogger")),
        ("Recorder", "LOW"),
    ]
    assert [hook.level for hook in other.hooks if isinstance(hook, Early)] == [20, 60]


def test_a_level_is_given_before_a_hook_is_registered(tmp_path: Path) -> None:
    hook = Recorder()
    with pytest.raises(HookError, match=r"^Recorder: unknown level 'HIHG'; expected one of .*; did you mean 'HIGH'\?$"):
        hook.level = "HIHG"
    engine = engine_in(tmp_path, custom_hooks=[hook])
    hook.level = "normal"  # the level that it has
    with pytest.raises(HookError) as caught:
        hook.level = "LOW"
    assert str(caught.value) == (
        "Recorder is already registered with the level NORMAL; set another level before you register it, or in "
        "custom_hooks"
    )
    assert engine.hooks[-1].level is PriorityStatus.NORMAL


def test_the_config_is_not_changed(tmp_path: Path) -> None:
    cfg: dict[str, Any] = {
        "custom_hooks": [{"type": "EMAIterHook", "level": 30}],
        "checkpoint_config": {"period": 5},
        "lr_config": {"policy": "StepLR", "step_size": 1, "by_epoch": True},
        "fp16": {"dtype": "bf16"},
        "log_config": {"period": 1, "hooks": [{"type": "TextLoggerHook"}]},
    }
    before = copy.deepcopy(cfg)
    engine_in(tmp_path, **cfg).train()
    assert cfg == before


def test_hooks_share_data_through_the_trainer(tmp_path: Path) -> None:
    class Gives(HookBase):
        def after_train_iter(self) -> None:
            self.value = self.trainer.iter * 10

    class Takes(HookBase):
        def __init__(self) -> None:
            self.taken: list[int] = []

        def after_train_iter(self) -> None:
            gives = next(hook for hook in self.trainer._hooks if isinstance(hook, Gives))
            self.taken.append(gives.value)

    takes = Takes()
    engine_in(tmp_path, custom_hooks=[Gives(), takes]).train()
    assert takes.taken == [0, 10, 20, 30]


def test_the_trainer_is_the_engine_and_held_weakly(tmp_path: Path) -> None:
    hook = Recorder()
    with pytest.raises(HookError, match=r"^Recorder is not registered with an engine yet, so it has no self.trainer$"):
        _ = hook.trainer
    engine = engine_in(tmp_path, custom_hooks=[hook])
    engine.train()
    assert hook.trainer.runner.iter == 4
    assert (type(hook.trainer), hook.trainer) == (weakref.ProxyType, weakref.proxy(engine))
    hook.trainer = hook.trainer  # a proxy leads to its engine
    assert hook.trainer == weakref.proxy(engine)
    del engine
    gc.collect()
    with pytest.raises(ReferenceError, match=r"^Recorder has no self.trainer: its engine was deleted$"):
        _ = hook.trainer


def test_an_engine_is_gone_with_its_last_reference() -> None:
    hook = Recorder()
    engine = EngineBase()
    engine.register_hooks([hook])
    gc.disable()
    try:
        del engine
        with pytest.raises(ReferenceError):
            _ = hook.trainer
    finally:
        gc.enable()


def test_a_hook_in_two_engines_belongs_to_the_second(tmp_path: Path) -> None:
    hook = Recorder()
    engines = [engine_in(tmp_path, custom_hooks=[hook]) for _ in range(2)]
    assert hook.trainer == weakref.proxy(engines[1])


def test_register_hooks_passes_none_over_and_refuses_what_is_no_hook(tmp_path: Path) -> None:
    engine, hook = engine_in(tmp_path), Recorder()
    engine.register_hooks([None, hook])
    assert engine.hooks[-1] is hook
    with pytest.raises(HookError, match=r"^dict is not a hook: it does not inherit from HookBase$"):
        engine.register_hooks([{"type": "EMAIterHook"}])


def test_a_hook_may_come_while_training(tmp_path: Path) -> None:
    late = Recorder()

    class Adds(HookBase):
        def after_train_epoch(self) -> None:
            if self.trainer.epoch == 0:
                self.trainer.register_hooks([late])

    engine_in(tmp_path, batches=1, custom_hooks=[Adds()]).train()
    assert [each[0] for each in late.seen] == [
        "before_train_epoch",
        "before_train_iter",
        "after_train_iter",
        "after_train_epoch",
        "after_train",
    ]


def test_one_that_comes_while_training_by_iterations_has_no_epoch_points_either(tmp_path: Path) -> None:
    late = Recorder()

    class Adds(HookBase):
        def after_train_iter(self) -> None:
            if self.trainer.iter == 1:
                self.trainer.register_hooks([late])

    engine_in(tmp_path, by_iter=True, max_iter=3, custom_hooks=[Adds()]).train()
    assert [each[0] for each in late.seen] == ["before_train_iter", "after_train_iter", "after_train"]


def test_a_native_hook_of_hookline_may_be_among_them(tmp_path: Path) -> None:
    native = NativeRecorder("after_optimizer_step")
    engine_in(tmp_path, custom_hooks=[native]).train()
    assert [event.iter for event in native.events] == [0, 1, 2, 3]


def test_the_level_of_a_native_hook_is_one_of_the_seven_too(tmp_path: Path) -> None:
    HOOKS.register_module()(type("Native", (Hook,), {}))
    for level, place in ("HIGHER", 0), (20, 2), ("LOWER", 5):
        engine = engine_in(tmp_path, custom_hooks=[{"type": "Native", "level": level}])
        assert names(engine) == [*DEFAULTS[:place], "Native", *DEFAULTS[place:]]
    with pytest.raises(HookError, match=r"^Native: unknown level 35; expected one of HIGHEST 0, "):
        engine_in(tmp_path, custom_hooks=[{"type": "Native", "level": 35}])


@pytest.mark.parametrize(("given", "shown"), [(Recorder, "Recorder"), ("EMAIterHook", "EMAIterHook")])
def test_an_object_that_is_not_a_hook_is_refused_with_a_suggestion(tmp_path: Path, given: Any, shown: str) -> None:
    with pytest.raises(HookError) as caught:
        engine_in(tmp_path, custom_hooks=[given])
    assert str(caught.value) == (
        f"custom_hooks: {given!r} is not a hook; use an object of a class that inherits from HookBase, or a dict like "
        f"dict(type='{shown}')"
    )


def test_a_misspelled_point_is_refused_and_custom_points_run_when_called(tmp_path: Path) -> None:
    class Misspelled(HookBase):
        def after_trian_iter(self) -> None: ...

    with pytest.raises(HookError, match=r"Misspelled\.after_trian_iter \(.*unknown point 'after_trian_iter';"):
        engine_in(tmp_path, custom_hooks=[Misspelled()])

    class Own(HookBase):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def after_answer(self, trainer: Any, text: str) -> None:
            self.seen.append(text)

        def after_train_iter(self) -> None:
            self.trainer.call_hook("after_answer", text=f"iteration {self.trainer.iter}")

    own = Own()
    engine = engine_in(tmp_path, total_epochs=1, custom_hooks=[own])
    engine.call_hook("after_answer", text="before")
    engine.train()
    assert own.seen == ["before", "iteration 0", "iteration 1"]


def test_a_custom_point_may_take_its_arguments_without_the_trainer(tmp_path: Path) -> None:
    class Shares(HookBase):
        def __init__(self) -> None:
            self.seen: list[tuple[Any, ...]] = []

        def after_shared(self, n: int, times: int = 1) -> None:
            self.seen.append((n, times))

        def after_counted(self, trainer: Any, n: int) -> None:
            self.seen.append((trainer.iter, n))

        def after_train_iter(self) -> None:
            self.trainer.call_hook("after_shared", n=self.trainer.iter)

    shares = Shares()
    engine = engine_in(tmp_path, total_epochs=1, custom_hooks=[shares])
    engine.call_hook("after_shared", n=1)
    engine.call_hook("after_shared", times=3, n=2)
    engine.train()
    engine.call_hook("after_counted", n=7)
    assert shares.seen == [(1, 1), (2, 3), (0, 1), (1, 1), (2, 7)]
    with pytest.raises(HookError, match=r"after_counted\(runner, m\) has no argument 'n'; available: m$"):
        engine.call_hook("after_counted", m=1)


def test_registering_by_name_and_building(caplog: pytest.LogCaptureFixture) -> None:
    @HOOKS.register_module(name="Alias")
    class Named(HookBase):
        def __init__(self, text: str = "") -> None:
            self.text = text

    hook = build_hook({"type": "Alias", "text": "x", "level": "LOW"})
    assert isinstance(hook, Named)
    assert (hook.text, hook.level) == ("x", PriorityStatus.LOW)
    with pytest.raises(ConfigError, match=r"^unknown hook 'EMAIterHok'; did you mean 'EMAIterHook'\?$"):
        build_hook({"type": "EMAIterHok"})
    with caplog.at_level(logging.WARNING, "hookline"):
        HOOKS.register_module()(type("EMAIterHook", (HookBase,), {}))
    assert caplog.messages == [f"the hook 'EMAIterHook' from {__name__} replaces the built-in one"]
    assert not isinstance(build_hook({"type": "EMAIterHook"}), EMAIterHook)


def test_a_custom_hook_of_a_default_kind_takes_its_place(tmp_path: Path) -> None:
    engine = engine_in(tmp_path, custom_hooks=[{"type": "OptimizerHook", "grad_clip": {"max_norm": 1.0}}])
    assert names(engine).count("OptimizerHook") == 1
    other = CommonEngine(engine.model, engine.data_loader, engine.optimizer, engine.loss_fn, work_dir=tmp_path)
    other.register_hooks([build_hook({"type": "OptimizerHook"}), build_hook({"type": "Fp16OptimizerHook"})])
    with pytest.raises(ConfigError, match=r"^OptimizerHook and Fp16OptimizerHook would both update the weights; remo"):
        other.train_by_epoch(0, 1)
