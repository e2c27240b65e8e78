"""Calls of hooks: failures, compiled points, the call in progress."""

from __future__ import annotations

import contextlib
import inspect
import linecache
import re
import traceback
from collections.abc import Iterator
from types import CodeType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hookline import Hook, Runner
from hookline.errors import HookError
from hookline.plan import callers, calls
from hookline.plan.plan import Plan
from hookline.testing import toy_runner

if TYPE_CHECKING:
    from torch import nn


def test_arguments_of_a_point_may_have_any_name() -> None:
    seen: list[Any] = []
    runner = toy_runner(points={"after_count": ("n", "host", "calls", "error")})
    for _ in range(2):
        runner.on("after_count")(lambda runner, n, host, calls, error: seen.append((n, host, calls, error)))
    runner.call_hook("after_count", n=7, host="h", calls="c", error="e")
    assert seen == [(7, "h", "c", "e")] * 2
    with pytest.raises(HookError, match="^the point 'host' would hide an attribute of the plan"):
        runner.add_point("host")


def test_a_tolerated_failure_at_on_exception_leaves_the_others_their_error() -> None:
    class Watch(Hook):
        role = "observer"

        def on_exception(self, runner: Any, error: BaseException) -> None:
            raise OSError("away")

    seen: list[BaseException] = []
    runner = toy_runner(custom_hooks=[{"type": Watch, "on_error": "disable"}])
    runner.on("on_exception")(lambda runner, error: seen.append(error))

    @runner.on("before_train")
    def fail(runner: Runner) -> None:
        raise KeyError("first")

    with pytest.raises(KeyError) as failed:
        runner.train()
    assert seen == [failed.value]


def test_a_stop_iteration_of_the_step_blames_nobody_else() -> None:
    class Around(Hook):
        def around_train_iter(self, runner: Any) -> Iterator[None]:
            yield

    def step(model: nn.Module, batch: Any) -> Any:
        raise StopIteration

    with pytest.raises((StopIteration, RuntimeError)) as failed:
        toy_runner(custom_hooks=[Around()], step=step).train()
    assert "Around" not in str(getattr(failed.value, "__notes__", ""))


def test_a_generator_or_coroutine_at_a_point_is_refused_because_it_would_never_run() -> None:
    class Generator(Hook):
        def before_train(self, runner: Any) -> Iterator[None]:
            yield

    class Coroutine(Hook):
        async def before_train(self, runner: Any) -> None: ...

    class AsyncGenerator(Hook):
        async def before_train(self, runner: Any) -> Any:
            yield

    class Managed(Hook):
        @contextlib.contextmanager
        def around_train(self, runner: Any) -> Iterator[None]:
            yield

    for hook in (Generator(), Coroutine(), AsyncGenerator()):
        with pytest.raises(HookError, match="its body would never run, because it is a generator or a coroutine"):
            toy_runner(custom_hooks=[hook])
    with pytest.raises(HookError, match="must be a plain generator function with one yield"):
        toy_runner(custom_hooks=[Managed()]).train()


def test_a_point_that_returns_a_body_nobody_runs_is_refused_at_its_first_call() -> None:
    def as_task(function: Any) -> Any:
        def task(self: Any, runner: Any) -> Any:
            return function(self, runner)

        return task

    class Coroutine(Hook):
        @as_task
        async def after_train_iter(self, runner: Any) -> None: ...

    class Generator(Hook):
        @as_task
        def after_train_iter(self, runner: Any) -> Iterator[None]:
            yield

    class AsyncGenerator(Hook):
        @as_task
        async def after_train_iter(self, runner: Any) -> Any:
            yield

    for hook, kind in ((Coroutine(), "coroutine"), (Generator(), "generator"), (AsyncGenerator(), "async_generator")):
        runner = toy_runner(custom_hooks=[hook])
        with pytest.raises(HookError) as refused:
            runner.train()
        assert runner.iter == 0
        assert re.fullmatch(
            rf"{type(hook).__name__}\.after_train_iter \(.*test_calls\.py:\d+\) returned a {kind}, whose body nobody "
            r"runs; write a plain method, or name a method with a yield around_<scope>",
            str(refused.value),
        )


def test_a_result_of_any_other_kind_is_ignored_and_checked_once() -> None:
    class Returns(Hook):
        def after_train_iter(self, runner: Any) -> Any:
            frames.append(inspect.stack()[1].function)
            return [1]

    frames: list[str] = []
    toy_runner(max_epochs=1, custom_hooks=[Returns()], default_hooks={"logger": None}).train()
    assert frames[0] == "first"
    assert frames[-1] == "after_train_iter"


# -------------------------------------------------------------------------- what a compiled point shows of itself


class Fails(Hook):
    def after_train_iter(self, runner: Runner) -> None:
        raise ValueError("planted")


def test_a_traceback_shows_the_text_of_a_compiled_point() -> None:
    runner = toy_runner(max_epochs=1, custom_hooks=[Fails()])
    with pytest.raises(ValueError, match="planted") as caught:
        runner.train()
    shown = "".join(traceback.format_exception(caught.value))
    file = re.search(
        r'File "(<hookline after_train_iter [0-9a-f]{8}>)", line \d+, in after_train_iter\n +(.+)\n', shown
    )
    assert file is not None, shown
    assert re.fullmatch(r"hl_method\d+\(hl_host\)", file[2])
    assert linecache.getline(file[1], 1) == "def after_train_iter(batch_idx, data_batch, outputs):\n"


def test_the_same_hooks_compile_to_the_same_file_name() -> None:
    def compiled() -> str:
        plan = Plan(SimpleNamespace(epoch=0, iter=0))
        plan.add(Fails())
        return str(plan.after_train_iter.__code__.co_filename)

    assert compiled() == compiled()


def test_registering_many_hooks_compiles_a_point_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_text = calls.compile_text

    def count(text: str, name: str) -> CodeType:
        compiled.append(name)
        return compile_text(text, name)

    monkeypatch.setattr(calls, "compile_text", count)
    plan = Plan(SimpleNamespace(epoch=0, iter=0))
    for _ in range(50):
        plan.add(type("Quiet", (Hook,), {"after_train_epoch": lambda self: None})())
    assert compiled == []
    plan.after_train_epoch()
    plan.after_train_epoch()
    assert compiled == ["after_train_epoch"]


def test_the_call_in_progress_is_known_only_during_the_call() -> None:
    seen: list[str | None] = []

    class Looks(Hook):
        def before_train(self, runner: Runner) -> None:
            seen.append(name_of_call(runner))

        def around_train(self, runner: Runner) -> Iterator[None]:
            seen.append(name_of_call(runner))
            yield
            seen.append(name_of_call(runner))

    def name_of_call(runner: Runner) -> str | None:
        call = callers.call_in_progress(runner)
        return f"{call.who} {call.point.name}" if call is not None else None

    runner = toy_runner(max_epochs=1, custom_hooks=[Looks()])
    runner.train()
    assert seen == ["Looks around_train", "Looks before_train", "Looks around_train"]
    assert name_of_call(runner) is None
    assert callers.call_in_progress(object()) is None
