"""In every dialect, methods of any kind are called, and parameters with defaults follow the same rule as natively."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hookline import Hook
from hookline.dialects.imix.engine.hooks import HookBase
from hookline.dialects.mmengine.hooks import Hook as MMEngineHook
from hookline.dialects.pointrix.hook import Hook as PointrixHook
from hookline.dialects.robo_orchard_core.utils.hook import HookContext, HookContextChannel
from hookline.errors import HookError
from hookline.testing import toy_runner
from tests.dialects.imix.engines import engine_in
from tests.dialects.mmengine.parts import runner_of
from tests.dialects.pointrix.scene import SceneTrainer, config

seen: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def natively(folder: Path, hook: Any) -> None:
    toy_runner(custom_hooks=[hook], work_dir=folder, max_epochs=1).train()


def as_mmengine(folder: Path, hook: Any) -> None:
    runner_of(folder, train_cfg={"by_epoch": True, "max_epochs": 1}, custom_hooks=[hook]).train()


def as_imix(folder: Path, hook: Any) -> None:
    engine_in(folder, total_epochs=1, custom_hooks=[hook]).train()


def as_pointrix(folder: Path, hook: Any) -> None:
    trainer = SceneTrainer(config(), folder)
    trainer.register_hook(hook)
    trainer.train_loop()


everywhere = pytest.mark.parametrize(
    ("train", "base"),
    [
        pytest.param(natively, Hook, id="natively"),
        pytest.param(as_mmengine, MMEngineHook, id="mmengine"),
        pytest.param(as_imix, HookBase, id="imix"),
        pytest.param(as_pointrix, PointrixHook, id="pointrix"),
    ],
)


def note(self: Any, what: str, runner: Any = None) -> None:
    seen.append((what, runner is not None))


class Notes:
    def __call__(self, runner: Any = None) -> None:
        seen.append(("called", runner is not None))


@everywhere
def test_a_partial_method_is_called(train: Any, base: Any, tmp_path: Path) -> None:
    train(tmp_path, type("Mine", (base,), {"after_train": functools.partialmethod(note, "called")})())
    assert seen == [("called", True)]


@everywhere
def test_a_function_in_the_hook_itself_is_called(train: Any, base: Any, tmp_path: Path) -> None:
    hook = base()
    hook.after_train = functools.partial(note, None, "called")
    train(tmp_path, hook)
    assert seen == [("called", True)]


@everywhere
def test_an_object_that_can_be_called_is_called(train: Any, base: Any, tmp_path: Path) -> None:
    train(tmp_path, type("Mine", (base,), {"after_train": Notes()})())
    assert seen == [("called", True)]


@everywhere
def test_an_attribute_that_would_never_be_called_is_refused(train: Any, base: Any, tmp_path: Path) -> None:
    for value in (property(lambda self: print), functools.singledispatchmethod(note)):
        with pytest.raises(HookError) as refused:
            train(tmp_path, type("Mine", (base,), {"after_train": value})())
        assert str(refused.value) == (
            f"Mine.after_train must be a method, not an object of the type {type(value).__name__}, which would never "
            "be called; write def after_train(self, ...)"
        )


@everywhere
def test_a_parameter_that_the_point_does_not_provide_keeps_its_default(train: Any, base: Any, tmp_path: Path) -> None:
    def with_runner(self: Any, runner: Any, verbose: bool = False, *, mode: str = "train") -> None:
        seen.append((verbose, mode))

    def without(self: Any, verbose: bool = False, *, mode: str = "train") -> None:
        seen.append((verbose, mode))

    train(tmp_path, type("Mine", (base,), {"after_train": without if base is HookBase else with_runner})())
    assert seen == [(False, "train")]


@everywhere
def test_a_near_miss_of_an_argument_is_refused_even_with_a_default(train: Any, base: Any, tmp_path: Path) -> None:
    def mine(self: Any, runner: Any, checkpont: Any = None) -> None: ...

    with pytest.raises(HookError) as refused:
        train(tmp_path, type("Mine", (base,), {"after_load_checkpoint": mine})())
    assert str(refused.value).endswith(
        "after_load_checkpoint(runner, checkpoint) has no argument 'checkpont'; did you mean 'checkpoint'?"
    )


# RoboOrchard calls before and after with one argument, so there are no names that could be misspelled.


def surround(**methods: Any) -> list[Any]:
    methods = {"after": lambda self, arg: seen.append("after"), **methods}
    channel = HookContextChannel[Any]("on_step")
    channel.register(type("Mine", (HookContext,), methods)())
    with channel.begin("arg"):
        seen.append("body")
    return seen


def test_a_robo_orchard_hook_may_have_methods_of_any_kind_and_defaults() -> None:
    before = functools.partialmethod(lambda self, what, arg, verbose=False: seen.append((what, arg, verbose)), "before")
    assert surround(before=before) == [("before", "arg", False), "body", "after"]


@pytest.mark.parametrize("name", ["before", "after"])
def test_a_robo_orchard_method_whose_body_would_never_run_is_refused(name: str) -> None:
    def body(self: Any, arg: Any) -> Iterator[None]:
        yield

    given = {"before": lambda self, arg: None, name: body}
    with pytest.raises(
        HookError, match=rf"^Mine\.{name}: <FunctionInfo .* would never run, because it is a generator o"
    ):
        surround(**given)
