from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from hookline import Hook, Priority, Runner, every, not_a_point
from hookline.errors import HookError
from hookline.plan.plan import Plan
from hookline.testing import toy_runner

HERE = "tests/plan/test_plan.py"


def line_of(function: Any) -> str:
    return f"{HERE}:{inspect.unwrap(function).__code__.co_firstlineno}"


@pytest.fixture
def host() -> Any:
    return SimpleNamespace(epoch=2, iter=40, rank=0, ends_epoch=False, updates=0, validations=0, data_batch="live")


@pytest.fixture
def plan(host: Any) -> Plan:
    return Plan(host)


class Log(Hook):
    """Records the arguments of its calls."""

    def __init__(self) -> None:
        self.seen: list[Any] = []


# ------------------------------------------------------------------------------------------------ arguments


def test_a_method_gets_the_runner_and_any_subset_of_arguments_in_any_order(plan: Plan, host: Any) -> None:
    class Subset(Log):
        def after_train_iter(self, whatever: Any, outputs: Any, batch_idx: int) -> None:
            self.seen.append((whatever, outputs, batch_idx))

        def before_backward(self, runner: Any, *, outputs: Any) -> None:
            self.seen.append((runner, outputs))

    hook = Subset()
    plan.add(hook)
    plan.after_train_iter(3, "batch", "out")
    plan.before_backward("out")
    assert hook.seen == [(host, "out", 3), (host, "out")]


def test_a_method_without_arguments_uses_self_runner(plan: Plan, host: Any) -> None:
    class Zero(Log):
        def before_train(self) -> None:
            self.seen.append(self.runner)

    hook = Zero()
    plan.add(hook)
    plan.before_train()
    assert hook.seen == [host]


def test_keywords_take_all_arguments_that_are_not_named(plan: Plan, host: Any) -> None:
    class All(Log):
        def after_train_iter(self, runner: Any, batch_idx: int, **rest: Any) -> None:
            self.seen.append((runner, batch_idx, rest))

        def before_train_iter(self, **rest: Any) -> None:
            self.seen.append(rest)

        def after_val_epoch(self, *args: Any, **rest: Any) -> None:
            self.seen.append((args, rest))

    hook = All()
    plan.add(hook)
    plan.after_train_iter(3, "batch", "out")
    plan.before_train_iter(1, "given")
    plan.after_val_epoch({"acc": 1})
    assert hook.seen == [
        (host, 3, {"data_batch": "batch", "outputs": "out"}),
        {"batch_idx": 1, "data_batch": "live"},
        ((host,), {"metrics": {"acc": 1}}),
    ]


def test_a_hook_sees_the_batch_that_one_before_it_put_there(plan: Plan, host: Any) -> None:
    class Replace(Hook):
        def before_train_iter(self, runner: Any, data_batch: Any) -> None:
            runner.data_batch = f"{data_batch} again"

    hook = Log()
    plan.add(Replace())
    plan.add(Replace())
    plan.on("before_train_iter", lambda runner, data_batch: hook.seen.append(data_batch))
    plan.before_train_iter(0, "live")
    assert hook.seen == ["live again again"]


def test_static_class_and_wrapped_methods_are_called_alike(plan: Plan, host: Any) -> None:
    seen: list[Any] = []

    def logged(method: Any) -> Any:
        @functools.wraps(method)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        return inner

    class Kinds(Hook):
        @staticmethod
        def before_run(runner: Any) -> None:
            seen.append(("static", runner))

        @classmethod
        def after_run(cls, runner: Any) -> None:
            seen.append((cls, runner))

        @logged
        def before_backward(self, runner: Any, outputs: Any) -> None:
            seen.append(outputs)

    plan.add(Kinds())
    plan.before_run()
    plan.after_run()
    plan.before_backward("out")
    assert seen == [("static", host), (Kinds, host), "out"]


# ------------------------------------------------------------------------------------- refused at registration


class MisspeltPoint(Hook):
    def after_tran_iter(self, runner: Any) -> None: ...


class NoPrefix(Hook):
    def aftr_train_iter(self, runner: Any) -> None: ...


class Unknown(Hook):
    def on_batch_end(self, runner: Any) -> None: ...


class MisspeltScope(Hook):
    def around_train_itr(self, runner: Any) -> Iterator[None]:
        yield


class MisspeltArgument(Hook):
    def after_train_iter(self, runner: Any, output: Any) -> None: ...


class DefaultArgument(Hook):
    def after_train_iter(self, runner: Any, output: Any = None) -> None: ...


class NoArguments(Hook):
    def before_train(self, runner: Any, metrics: Any) -> None: ...


class NoRunner(Hook):
    def after_train_iter(self, outputs: Any, batch_idx: int, batch: Any) -> None: ...


class PositionalOnly(Hook):
    def after_train_iter(self, runner: Any, outputs: Any, /) -> None: ...


class NoGenerator(Hook):
    def around_train_iter(self, runner: Any) -> None: ...


class Never(Hook):
    @every(10)
    def before_run(self, runner: Any) -> None: ...


ALL_POINTS = "If it is a helper, mark it with @not_a_point."
REFUSED = [
    (
        MisspeltPoint,
        "after_tran_iter",
        "MisspeltPoint.after_tran_iter ({}): unknown point 'after_tran_iter'; did you mean "
        f"'after_train_iter'? {ALL_POINTS}",
    ),
    (
        NoPrefix,
        "aftr_train_iter",
        "NoPrefix.aftr_train_iter ({}): unknown point 'aftr_train_iter'; did you mean 'after_train_iter'? "
        f"{ALL_POINTS}",
    ),
    (
        MisspeltScope,
        "around_train_itr",
        "MisspeltScope.around_train_itr ({}): unknown point 'around_train_itr'; did you mean "
        f"'around_train_iter'? {ALL_POINTS}",
    ),
    (
        MisspeltArgument,
        "after_train_iter",
        "MisspeltArgument.after_train_iter ({}): after_train_iter(runner, batch_idx, data_batch, outputs) has no "
        "argument 'output'; did you mean 'outputs'?",
    ),
    (
        DefaultArgument,
        "after_train_iter",
        "DefaultArgument.after_train_iter ({}): after_train_iter(runner, batch_idx, data_batch, outputs) has no "
        "argument 'output'; did you mean 'outputs'?",
    ),
    (
        NoArguments,
        "before_train",
        "NoArguments.before_train ({}): before_train(runner) has no argument 'metrics'; its only argument is the "
        "runner",
    ),
    (
        NoRunner,
        "after_train_iter",
        "NoRunner.after_train_iter ({}): its first parameter receives the runner, but 'outputs' is an argument of the "
        "point; write (runner, outputs, batch_idx, data_batch)",
    ),
    (
        PositionalOnly,
        "after_train_iter",
        "PositionalOnly.after_train_iter ({}): 'outputs' is positional-only, so it cannot be passed by name; "
        "move it after the '/'",
    ),
    (
        NoGenerator,
        "around_train_iter",
        "NoGenerator.around_train_iter ({}): an around_ hook must be a generator function with one yield, but "
        "this one has none",
    ),
    (
        Never,
        "before_run",
        "Never.before_run ({}): every 10 is not allowed at before_run: only points that count iterations, epochs, "
        "validations or optimizer steps take a frequency",
    ),
]


@pytest.mark.parametrize(("hook", "method", "message"), REFUSED, ids=[case[0].__name__ for case in REFUSED])
def test_a_method_that_cannot_be_right_is_refused(plan: Plan, hook: type[Hook], method: str, message: str) -> None:
    with pytest.raises(HookError) as refused:
        plan.add(hook())
    assert str(refused.value) == message.format(line_of(getattr(hook, method)))
    assert plan.entries == ()


def test_a_name_that_looks_like_a_point_is_refused_with_the_nearest(plan: Plan) -> None:
    with pytest.raises(HookError, match=r"Unknown.on_batch_end .*: unknown point 'on_batch_end'; "):
        plan.add(Unknown())


def test_a_helper_may_keep_its_name_when_it_is_marked(plan: Plan) -> None:
    class Helped(Hook):
        on_batch = "not callable, so no method"

        @not_a_point
        def on_batch_end(self) -> None: ...

        def load_checkpoint(self) -> None: ...

    plan.add(Helped())
    assert [entry.name for entry in plan] == ["Helped"]


def test_a_misspelt_point_of_a_function_is_refused(plan: Plan) -> None:
    with pytest.raises(HookError) as refused:
        plan.on("after_train_itr", lambda runner: None)
    assert str(refused.value) == "unknown point 'after_train_itr'; did you mean 'after_train_iter'?"


def test_a_wrong_argument_of_a_function_is_refused(plan: Plan) -> None:
    def show(runner: Any, batch: Any) -> None: ...

    with pytest.raises(HookError) as refused:
        plan.on("before_train_iter", show)
    assert str(refused.value) == (
        f"show at before_train_iter ({line_of(show)}): before_train_iter(runner, batch_idx, data_batch) has no "
        "argument 'batch'; did you mean 'data_batch'?"
    )


def test_a_wrong_priority_names_the_hook(plan: Plan) -> None:
    with pytest.raises(HookError, match="^Log: unknown priority 'LOWW'; did you mean 'LOW'\\?$"):
        plan.add(Log(), priority="LOWW")


def test_a_hook_can_be_in_a_plan_once(plan: Plan) -> None:
    hook = Log()
    plan.add(hook)
    with pytest.raises(HookError, match="this Log is already registered; a plan can hold a hook only once"):
        plan.add(hook)


# ---------------------------------------------------------------------------------------------------- order


def named(name: str, priority: Any = "NORMAL", after: tuple[Any, ...] = (), before: tuple[Any, ...] = ()) -> Hook:
    return type(name, (Hook,), {"priority": priority, "runs_after": after, "runs_before": before})()  # type: ignore[no-any-return]


def order(*hooks: Hook) -> list[str]:
    plan = Plan(SimpleNamespace())
    for hook in hooks:
        plan.add(hook)
    return [entry.name for entry in plan]


def test_lower_numbers_run_first_then_as_registered() -> None:
    hooks = [named("A"), named("B", 0), named("C", "LOWEST"), named("D", "normal"), named("E", Priority.VERY_HIGH)]
    assert order(*hooks, named("F", 55)) == ["B", "E", "A", "D", "F", "C"]


def test_the_default_hooks_and_custom_ones_run_in_the_order_of_mmengine() -> None:
    custom = [named("A"), named("B", 0), named("C", "LOWEST"), named("D"), named("E", "VERY_HIGH"), named("F", 55)]
    assert [type(hook).__name__ for hook in toy_runner(custom_hooks=custom).hooks] == [
        *["B", "RuntimeInfoHook", "E", "IterTimerHook", "DistSamplerSeedHook", "A", "D", "F"],
        *["LoggerHook", "ParamSchedulerHook", "CheckpointHook", "ReportHook", "C"],
    ]


def test_statements_order_hooks_of_equal_priority() -> None:
    assert order(named("A", after=("B",)), named("B", after=("C",)), named("C")) == ["C", "B", "A"]
    assert order(named("A"), named("B"), named("C", before=("A",))) == ["B", "C", "A"]
    base = type("Base", (Hook,), {})
    assert order(named("A", after=(base,)), type("Child", (base,), {})()) == ["Child", "A"]
    assert order(named("A", after=("Base",)), type("Child", (base,), {})()) == ["Child", "A"]


def test_a_statement_about_a_hook_that_is_not_there_is_ignored() -> None:
    assert order(named("A", after=("Nobody",)), named("B")) == ["A", "B"]


def test_a_priority_that_contradicts_a_statement_is_refused_with_both_sides() -> None:
    with pytest.raises(HookError) as refused:
        order(named("A", 10), named("B", 5, after=("A",)))
    assert str(refused.value) == (
        "the order of the hooks is contradictory: B declares runs_after A, but a lower number runs first: "
        "A (priority VERY_HIGH (10)), B (priority 5). Give B a priority of at least 10, or A one of at most 5."
    )


def test_a_circle_of_statements_is_refused_with_all_of_them() -> None:
    with pytest.raises(HookError) as refused:
        order(named("A", after=("C",)), named("B", after=("A",)), named("C", after=("B",)))
    statements = {"A declares runs_after C", "B declares runs_after A", "C declares runs_after B"}
    head, _, listed = str(refused.value).partition(": ")
    assert head == "the order of the hooks is circular"
    assert set(listed.split("; ")) == statements


def test_the_logger_before_what_it_logs_is_refused() -> None:
    with pytest.raises(HookError) as refused:
        toy_runner(default_hooks={"logger": {"priority": 5}})
    assert str(refused.value) == (
        "the order of the hooks is contradictory: LoggerHook declares runs_after RuntimeInfoHook, but a lower number "
        "runs first: RuntimeInfoHook (priority VERY_HIGH (10)), LoggerHook (priority 5). Give LoggerHook a priority of "
        "at least 10, or RuntimeInfoHook one of at most 5."
    )


# --------------------------------------------------------------------------------------------------- failures


class Failing(Hook):
    role = "observer"

    def after_train_iter(self, runner: Any) -> None:
        raise ZeroDivisionError("mine")


def test_an_exception_keeps_its_type_and_frames_and_gains_a_note(plan: Plan) -> None:
    plan.add(Failing())
    with pytest.raises(ZeroDivisionError, match="^mine") as failed:
        plan.after_train_iter(0, None, {})
    assert failed.value.__notes__ == [
        f"in hook Failing, at after_train_iter, epoch=2 iter=40 rank=0 ({line_of(Failing.after_train_iter)})"
    ]
    frames = traceback.extract_tb(failed.value.__traceback__)
    assert [frame.name for frame in frames][-2:] == ["after_train_iter", "after_train_iter"]
    assert frames[-1].filename == __file__


@pytest.mark.parametrize("error", [TypeError("t"), KeyboardInterrupt(), StopIteration(3), SystemExit(7)])
def test_any_exception_passes_through_a_point_unchanged(plan: Plan, error: BaseException) -> None:
    def fail(runner: Any) -> None:
        raise error

    plan.on("before_train", fail)
    with pytest.raises(type(error)) as failed:
        plan.before_train()
    assert failed.value is error


def test_a_failing_observer_is_disabled_once_and_the_others_continue(
    plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    hook = Log()
    plan.add(Failing(), on_error="disable")
    plan.on("after_train_iter", lambda runner: hook.seen.append("after it"))
    plan.after_train_iter(0, None, {})
    plan.after_train_iter(1, None, {})
    assert hook.seen == ["after it", "after it"]
    assert [entry.name for entry in plan] == ["<lambda>"]
    assert [record.getMessage() for record in caplog.records] == ["Failing failed; the run continues without it:"]
    assert "in hook Failing, at after_train_iter" in caplog.text


def test_an_error_after_a_disabled_observer_still_names_its_own_hook(plan: Plan) -> None:
    def fail(runner: Any) -> None:
        raise ValueError("second")

    plan.add(Failing(), on_error="disable")
    plan.on("after_train_iter", fail)
    with pytest.raises(ValueError, match="second") as failed:
        plan.after_train_iter(0, None, {})
    assert [note.split(",")[0] for note in failed.value.__notes__] == ["in hook fail"]


def test_an_actor_cannot_be_disabled(plan: Plan) -> None:
    with pytest.raises(HookError) as refused:
        plan.add(Log(), on_error="disable")
    assert str(refused.value) == (
        "Log: on_error 'disable' is only for observers (role = 'observer'); Log affects training, so a run cannot "
        "continue without it"
    )
    with pytest.raises(HookError, match="^Failing: on_error must be 'raise' or 'disable', not 'ignore'$"):
        plan.add(Failing(), on_error="ignore")  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------------- scopes


class Surround(Hook):
    """Records when it is entered and left, and fails where `fail` says."""

    log: ClassVar[list[str]] = []

    def __init__(self, name: str, fail: str = "", swallow: bool = False) -> None:
        self.name, self.fail, self.swallow = name, fail, swallow

    def around_train_iter(self, runner: Any, batch_idx: int) -> Iterator[None]:
        self.log.append(f"enter {self.name}")
        if self.fail == "enter":
            raise ValueError(f"entering {self.name}")
        try:
            yield
        except BaseException as error:
            self.log.append(f"{self.name} sees {error!r}")
            if not self.swallow:
                raise
        finally:
            self.log.append(f"leave {self.name}")
            if self.fail == "leave":
                raise ValueError(f"leaving {self.name}")


@pytest.fixture
def log() -> list[str]:
    Surround.log.clear()
    return Surround.log


def surrounded(plan: Plan, *hooks: Hook, error: Exception | None = None) -> None:
    for hook in hooks:
        plan.add(hook)
    with plan.around("train_iter", 0, None):
        Surround.log.append("body")
        if error is not None:
            raise error


def test_generators_are_entered_in_order_and_left_in_reverse(plan: Plan, log: list[str]) -> None:
    surrounded(plan, Surround("a"), Surround("b"))
    assert log == ["enter a", "enter b", "body", "leave b", "leave a"]


def test_a_failure_of_the_body_is_thrown_in_and_cannot_be_swallowed(plan: Plan, log: list[str]) -> None:
    error = KeyError("body")
    with pytest.raises(KeyError) as failed:
        surrounded(plan, Surround("a"), Surround("b", swallow=True), error=error)
    assert failed.value is error
    assert not hasattr(error, "__notes__")
    assert log == [
        *["enter a", "enter b", "body", "b sees KeyError('body')", "leave b", "a sees KeyError('body')", "leave a"]
    ]
    assert "around_train_iter" not in [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_only_those_that_were_entered_are_left(plan: Plan, log: list[str]) -> None:
    with pytest.raises(ValueError, match="entering b") as failed:
        surrounded(plan, Surround("a"), Surround("b", fail="enter"), Surround("c"))
    assert log == ["enter a", "enter b", "a sees ValueError('entering b')", "leave a"]
    assert [note.split(",")[0] for note in failed.value.__notes__] == ["in hook Surround#2"]


def test_one_that_raises_on_the_way_out_does_not_hide_the_first_error(plan: Plan, log: list[str]) -> None:
    error = KeyError("body")
    with pytest.raises(KeyError) as failed:
        surrounded(plan, Surround("a"), Surround("b", fail="leave"), Surround("c"), error=error)
    assert failed.value is error
    assert log == [
        *["enter a", "enter b", "enter c", "body", "c sees KeyError('body')", "leave c"],
        *["b sees KeyError('body')", "leave b", "a sees KeyError('body')", "leave a"],
    ]
    assert error.__notes__ == ["while leaving the scope, Surround#2 raised ValueError: leaving b"]


def test_one_that_raises_another_error_because_of_the_first_is_noted_too(plan: Plan) -> None:
    class Turns(Hook):
        def around_train_iter(self, runner: Any) -> Iterator[None]:
            try:
                yield
            except KeyError as error:
                raise ValueError("turned") from error

    error = KeyError("body")
    with pytest.raises(KeyError) as failed:
        surrounded(plan, Turns(), error=error)
    assert failed.value is error
    assert error.__notes__ == ["while leaving the scope, Turns raised ValueError: turned"]


def test_a_hook_is_blamed_also_where_the_working_directory_is_gone(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ValueError, match="leaving a") as failed:
        surrounded(plan, Surround("a", fail="leave"))
    assert failed.value.__notes__[0].startswith("in hook Surround, at around_train_iter, epoch=2 iter=40 rank=0 (/")


def test_one_that_raises_on_the_way_out_of_good_work_is_the_error_and_the_others_are_left(
    plan: Plan, log: list[str]
) -> None:
    with pytest.raises(ValueError, match="leaving b") as failed:
        surrounded(plan, Surround("a"), Surround("b", fail="leave"))
    assert log == ["enter a", "enter b", "body", "leave b", "a sees ValueError('leaving b')", "leave a"]
    assert [note.split(" (")[0] for note in failed.value.__notes__] == [
        "in hook Surround#2, at around_train_iter, epoch=2 iter=40 rank=0"
    ]


@pytest.mark.parametrize(("yields", "message"), [(0, "ended without a yield"), (2, "has more than one yield")])
def test_a_generator_has_exactly_one_yield(plan: Plan, yields: int, message: str) -> None:
    class Yields(Hook):
        def around_train_iter(self, runner: Any) -> Iterator[None]:
            for _ in range(yields):
                yield

    plan.add(Yields())
    with (
        pytest.raises(HookError, match=rf"^Yields.around_train_iter \(.*\) {message}\n"),
        plan.around("train_iter", 0, None),
    ):
        pass


# -------------------------------------------------------------------------------------------------- how often


def test_the_interval_of_a_method_may_be_a_parameter(plan: Plan, host: Any) -> None:
    class Often(Hook):
        def __init__(self, interval: int) -> None:
            self.interval = interval
            self.seen: list[int] = []

        def how_often(self) -> dict[str, int | str]:
            return {"after_train_iter": self.interval}

        def after_train_iter(self, runner: Any) -> None:
            self.seen.append(runner.iter)

    second, third = Often(2), Often(3)
    plan.add(second)
    plan.add(third)
    for host.iter in range(6):
        plan.after_train_iter(0, None, {})
    assert (second.seen, third.seen) == ([1, 3, 5], [2, 5])
    assert plan.explain().splitlines() == [
        "after_train_iter(runner, batch_idx, data_batch, outputs)",
        "   1  Often    NORMAL (50)  every 2 iterations  priority from the class",
        "   2  Often#2  NORMAL (50)  every 3 iterations  priority from the class",
    ]
    with pytest.raises(
        HookError, match="^every=0 is not a valid frequency; use a positive int, or epochs such as '2ep'$"
    ):
        plan.add(Often(0))


def test_every_counts_what_the_point_counts(plan: Plan, host: Any) -> None:
    seen: list[str] = []

    class Often(Hook):
        @every(3)
        def after_train_iter(self) -> None:
            seen.append(f"iter {host.iter}")

        @every(2)
        def after_train_epoch(self) -> None:
            seen.append(f"epoch {host.epoch}")

        @every(2)
        def after_val_iter(self, runner: Any, batch_idx: int) -> None:
            seen.append(f"batch {batch_idx}")

        @every(2)
        def after_val_epoch(self) -> None:
            seen.append(f"validation {host.validations}")

        @every(2)
        def before_optimizer_step(self) -> None:
            seen.append(f"update {host.current_updates}")

    plan.add(Often())
    for number in range(6):
        host.iter = host.epoch = host.validations = host.current_updates = number
        plan.after_train_iter(0, None, {})
        plan.after_train_epoch()
        plan.after_val_iter(number, None, {})
        plan.after_val_epoch({})
        plan.before_optimizer_step()
    assert [line for line in seen if line.startswith("iter")] == ["iter 2", "iter 5"]
    for what in ("epoch", "batch", "validation", "update"):
        assert [line for line in seen if line.startswith(what)] == [f"{what} {number}" for number in (1, 3, 5)]


def test_epochs_can_be_counted_anywhere(plan: Plan, host: Any) -> None:
    seen: list[tuple[str, int]] = []
    plan.on("after_train_iter", lambda runner: seen.append(("iter", runner.epoch)), every="2ep")
    plan.on("after_train_epoch", lambda runner: seen.append(("epoch", runner.epoch)), every="2ep")
    plan.on("after_val_epoch", lambda runner: seen.append(("val", runner.epoch)), every="2ep")
    for epoch in range(4):
        for last in (False, True):
            host.epoch, host.ends_epoch = epoch, last
            plan.after_train_iter(0, None, {})
        plan.after_train_epoch()
        host.epoch = epoch + 1
        plan.after_val_epoch({})
    assert seen == [("iter", 1), ("epoch", 1), ("val", 2), ("iter", 3), ("epoch", 3), ("val", 4)]


def test_a_scope_can_be_surrounded_every_so_often(plan: Plan, host: Any) -> None:
    seen: list[int] = []

    def trace(runner: Any) -> Iterator[None]:
        seen.append(runner.iter)
        yield

    plan.on("around_train_iter", trace, every=2)
    for number in range(4):
        host.iter = number
        with plan.around("train_iter", 0, None):
            pass
    assert seen == [1, 3]


# ------------------------------------------------------------------------------------ points, adding, removing


def test_points_of_ones_own_are_called_by_name(plan: Plan, host: Any) -> None:
    plan.add_point("after_render", ("image", "camera"))

    class Show(Log):
        def after_render(self, runner: Any, image: str) -> None:
            self.seen.append(image)

    hook = Show()
    plan.add(hook)
    plan.call("after_render", {"camera": 1, "image": "sky"})
    assert hook.seen == ["sky"]
    with pytest.raises(HookError, match=r"after_render\(runner, image, camera\) was called without camera$"):
        plan.call("after_render", {"image": "sky"})
    with pytest.raises(HookError, match="has no argument 'img'; did you mean 'image'\\?"):
        plan.call("after_render", {"img": "sky", "camera": 1})
    with pytest.raises(HookError, match="unknown point 'after_rendr'; did you mean 'after_render'\\?"):
        plan.call("after_rendr", {})
    with pytest.raises(HookError, match="the point 'after_render' already exists"):
        plan.add_point("after_render", ())


def test_a_hook_that_is_done_can_have_just_itself_asked_for_idle_points(plan: Plan) -> None:
    seen: list[str] = []

    class Counted(Hook):
        asked = 0

        def idle_points(self, runner: Any) -> list[str]:
            self.asked += 1
            return ["before_train"] if self.asked > 1 else []

        def before_train(self) -> None:
            seen.append(f"{type(self).__name__} {self.asked}")
            if self is done:
                plan.skip_idle_points(self)

    class Other(Counted):
        pass

    done, other = Counted(), Other()
    plan.add(done)
    plan.add(other)
    plan.skip_idle_points()
    plan.before_train()
    plan.before_train()
    assert seen == ["Counted 1", "Other 1", "Other 1"]


def test_hooks_can_be_added_and_removed_inside_a_point_and_it_ends_as_it_began(plan: Plan) -> None:
    seen: list[str] = []

    def late(runner: Any) -> None:
        seen.append("late")

    def first(runner: Any) -> None:
        seen.append("first")
        plan.remove(first)
        plan.remove(second)
        plan.on("before_train", late)

    def second(runner: Any) -> None:
        seen.append("second")

    plan.on("before_train", first)
    plan.on("before_train", second)
    plan.before_train()
    plan.before_train()
    assert seen == ["first", "second", "late"]


def test_a_hook_removed_inside_its_scope_is_still_left(plan: Plan, log: list[str]) -> None:
    hook = Surround("a")
    plan.add(hook)
    with plan.around("train_iter", 0, None):
        plan.remove(hook)
    with plan.around("train_iter", 0, None):
        pass
    assert log == ["enter a", "leave a"]


def test_removing_what_is_not_there_is_refused(plan: Plan) -> None:
    plan.add(Log())
    with pytest.raises(HookError, match="^Surround is not in the plan and cannot be removed; available: Log$"):
        plan.remove(Surround("a"))


def test_a_refused_hook_leaves_the_plan_as_it_was(plan: Plan) -> None:
    plan.add(named("A", 10))
    with pytest.raises(HookError):
        plan.add(named("B", 5, after=("A",)))
    assert [entry.name for entry in plan] == ["A"]


def test_a_point_without_hooks_is_false_and_can_be_called(plan: Plan) -> None:
    assert not plan.after_train_iter
    plan.after_train_iter(0, None, {})
    plan.on("after_train_iter", lambda runner: None)
    assert plan.after_train_iter


def test_an_attribute_that_is_no_point_gives_the_nearest(plan: Plan) -> None:
    with pytest.raises(AttributeError, match="unknown point 'after_trian'; did you mean 'after_train'\\?"):
        plan.after_trian()


# ------------------------------------------------------------------------------------------------------ texts


class Early(Hook):
    priority = "HIGH"

    def after_train_iter(self, runner: Any) -> None: ...


class Late(Hook):
    runs_after = ("Early",)

    @every(10)
    def after_train_iter(self, runner: Any) -> None: ...

    def around_train_iter(self, runner: Any) -> Iterator[None]:
        yield


def show(runner: Any) -> None: ...


def show_all(runner: Any, **arguments: Any) -> None: ...


def test_explain_says_who_runs_where_how_often_and_why(plan: Plan) -> None:
    plan.add(Late(), priority=45, priority_from="config")
    plan.add(Early())
    plan.on("after_val_epoch", show, every="2ep")
    plan.on("before_train", show)
    assert (
        plan.explain()
        == """\
before_train(runner)
   1  show  NORMAL (50)  each time  priority from the class

around_train_iter(runner, batch_idx, data_batch)   entered in this order, left in reverse
   1  Late  45  every iteration  priority from the config, after Early

after_train_iter(runner, batch_idx, data_batch, outputs)
   1  Early  HIGH (30)  every iteration      priority from the class
   2  Late   45         every 10 iterations  priority from the config, after Early

after_val_epoch(runner, metrics)
   1  show  NORMAL (50)  every 2 epochs  priority from the class"""
    )


def test_an_empty_plan_is_explained_too(plan: Plan) -> None:
    assert plan.explain() == "no hook runs at any point"


def test_the_tree_of_hooks_shows_each_method_with_its_place() -> None:
    runner = toy_runner(
        default_hooks=dict.fromkeys(
            ("runtime_info", "timer", "sampler_seed", "logger", "param_scheduler", "checkpoint", "report")
        )
    )
    assert str(runner.hooks) == "0 hooks"
    runner.register_hook(Late())
    runner.register_hook(Early())
    runner.on("after_val_epoch", every=2)(show)
    runner.on("before_train")(functools.partial(show_all))
    assert (
        str(runner.hooks)
        == f"""\
4 hooks
├── before_train
│   └── 0: partial  NORMAL (50)  tests/plan/test_plan.py:{show_all.__code__.co_firstlineno}
├── around_train_iter
│   └── 0: Late.around_train_iter  NORMAL (50)  {line_of(Late.around_train_iter)}
├── after_train_iter
│   ├── 0: Early.after_train_iter  HIGH (30)  {line_of(Early.after_train_iter)}
│   └── 1: Late.after_train_iter  NORMAL (50), every 10 iterations  {line_of(Late.after_train_iter)}
└── after_val_epoch
    └── 0: show  NORMAL (50), every 2 validations  {line_of(show)}"""
    )
    assert repr(runner.hooks) == "<4 hooks: Early, Late, show, partial>"


def test_a_function_made_to_call_another_one_is_blamed_at_the_place_of_that_one() -> None:
    def mine() -> None:
        raise ValueError("no")

    def around(host: Any) -> Iterator[None]:
        mine()
        yield

    cast("Any", around).__hookline_source__ = mine
    plan = Plan(SimpleNamespace(epoch=0, iter=0))
    plan.on("around_train", around)
    with pytest.raises(ValueError, match="^no") as caught, plan.around("train"):
        pass
    line = mine.__code__.co_firstlineno
    assert caught.value.__notes__[0].endswith(f"test_plan.py:{line})")


def test_an_observer_disabled_in_a_validation_is_not_called_again_in_it() -> None:
    calls: list[int] = []

    class Watch(Hook):
        role = "observer"
        on_error = "disable"

        def after_val_iter(self, runner: Any, batch_idx: int) -> None:
            calls.append(batch_idx)
            raise OSError("away")

    toy_runner(val_batches=4, custom_hooks=[Watch()]).val()
    assert calls == [0]


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        (
            {"runs_after": "LoggerHook"},
            "Odd: runs_after must be a tuple of names or classes, as in ('LoggerHook',), not 'LoggerHook'",
        ),
        (
            {"runs_after": ("LoggerHok",)},
            "Odd: runs_after names an unknown hook 'LoggerHok'; did you mean 'LoggerHook'?",
        ),
        ({"role": "obsrver"}, "Odd: the role must be 'actor' or 'observer', not 'obsrver'"),
    ],
)
def test_a_statement_that_cannot_be_right_is_refused(methods: dict[str, Any], message: str) -> None:
    with pytest.raises(HookError) as refused:
        toy_runner(custom_hooks=[type("Odd", (Hook,), methods)()])
    assert str(refused.value) == message


def test_on_without_the_name_of_a_point_is_refused() -> None:
    runner = toy_runner()

    def show(runner: Runner) -> None: ...

    with pytest.raises(HookError, match="^a function is registered with the name of a point"):
        runner.on(show)(show)  # type: ignore[arg-type]
