"""Plans for loops that are not hookline's own: open points, custom tables and custom scopes."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hookline.errors import HookError
from hookline.plan.callers import failing_call
from hookline.plan.calls import blame_step
from hookline.plan.hook import every
from hookline.plan.plan import Plan
from hookline.plan.points import POINTS, Point, near_miss
from hookline.runner.hook import Hook


@pytest.fixture
def host() -> Any:
    return SimpleNamespace(epoch=2, iter=7)


class Renders(Hook):
    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def before_train(self) -> None:
        self.seen.append(("before_train",))

    def after_render(self, trainer: Any, image: str, scale: int = 1) -> None:
        self.seen.append(("after_render", trainer.iter, image, scale))

    def densify(self) -> None:
        self.seen.append(("densify",))


def test_methods_for_points_that_nobody_declared_run_when_a_call_names_them(host: Any) -> None:
    plan, hook = Plan(host, open=True), Renders()
    plan.add(hook)
    plan.before_train()
    plan.call("after_render", {"image": "a"})
    plan.call("after_render", {"image": "b", "scale": 3})
    plan.call("densify", {})
    plan.call("nobody_has_this", {"x": 1})
    assert hook.seen == [("before_train",), ("after_render", 7, "a", 1), ("after_render", 7, "b", 3), ("densify",)]


@pytest.mark.parametrize(
    ("more", "noted"),
    [({}, "epoch=2 iter=7 rank=0"), ({"noted_counters": ("step", "iter"), "step": 8}, "step=8 iter=7")],
)
def test_a_host_says_which_counters_notes_on_errors_have(host: Any, more: dict[str, Any], noted: str) -> None:
    class Fails(Hook):
        def before_train(self) -> None:
            raise ValueError("no")

    vars(host).update(more)
    plan = Plan(host)
    plan.add(Fails())
    with pytest.raises(ValueError, match="^no") as failed:
        plan.before_train()
    assert failed.value.__notes__[0].startswith(f"in hook Fails, at before_train, {noted} (")
    alone = OSError()
    blame_step(alone, host)
    assert alone.__notes__ == [f"in the step, {noted}"]


def test_a_method_for_a_point_that_nobody_declared_may_take_its_arguments_without_the_runner(host: Any) -> None:
    class Shares(Hook):
        def __init__(self) -> None:
            self.seen: list[tuple[Any, ...]] = []

        def after_share(self, n: int, more: int = 2) -> None:
            self.seen.append((n, more))

        def after_all(self, n: int, **rest: int) -> None:
            self.seen.append((n, rest))

    plan, hook = Plan(host, open=True), Shares()
    plan.add(hook)
    plan.call("after_share", {"n": 1})
    plan.call("after_share", {"more": 5, "n": 4})
    plan.call("after_all", {"n": 1, "m": 2})
    assert hook.seen == [(1, 2), (4, 5), (1, {"m": 2})]


def test_a_hook_added_later_answers_too_and_one_removed_no_more(host: Any) -> None:
    plan, one, other = Plan(host, open=True), Renders(), Renders()
    plan.add(one)
    plan.call("densify", {})
    plan.add(other)
    plan.call("densify", {})
    plan.remove(one)
    plan.call("densify", {})
    assert (len(one.seen), len(other.seen)) == (2, 2)


def test_an_undeclared_method_that_fails_is_named(host: Any) -> None:
    class Fails(Hook):
        def after_render(self) -> None:
            raise ValueError("no image")

    plan = Plan(host, open=True)
    plan.add(Fails())
    with pytest.raises(ValueError, match="^no image") as caught:
        plan.call("after_render", {})
    (note,) = caught.value.__notes__
    assert note.startswith("in hook Fails, at after_render, epoch=2 iter=7 rank=0 (")


def test_an_argument_that_the_call_does_not_give_is_refused(host: Any) -> None:
    plan = Plan(host, open=True)
    plan.add(Renders())
    with pytest.raises(HookError, match=r"Renders\.after_render \(.*\): after_render\(runner, picture\) has no argum"):
        plan.call("after_render", {"picture": 1})


def test_a_near_miss_of_a_point_is_refused_in_an_open_plan_too(host: Any) -> None:
    class Misspelt(Hook):
        def before_trian(self) -> None: ...

    plan = Plan(host, open=True)
    with pytest.raises(HookError, match=r"Misspelt\.before_trian \(.*\): unknown point 'before_trian'; did"):
        plan.add(Misspelt())
    with pytest.raises(HookError, match=r"^unknown point 'after_trian'; did you mean 'after_train'\?$"):
        plan.call("after_trian", {})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("before_trian", "before_train"),
        ("after_train_itr", "after_train_iter"),
        ("after_training_iter", "after_train_iter"),
        ("beforeTrainEpoch", "before_train_epoch"),
        ("after_trainepoch", "after_train_epoch"),
        ("before_run_", "before_run"),
        ("after_train_step", None),
        ("before_render", None),
        ("after_save_checkpoint", None),
        ("densify", None),
        ("after_step", None),
    ],
)
def test_near_misses_are_told_apart_from_custom_names(name: str, meant: str | None) -> None:
    assert near_miss(name, POINTS) == meant


def test_an_open_plan_explains_what_it_keeps_for_calls(host: Any) -> None:
    plan = Plan(host, open=True)
    plan.add(Renders())
    assert plan.explain() == (
        "before_train(runner)\n"
        "   1  Renders  NORMAL (50)  each time  priority from the class\n"
        "\n"
        "Renders has methods that run only when call_hook names them: after_render"
    )


def test_a_loop_may_have_its_own_table_of_points(host: Any) -> None:
    seen = []

    class Own(Hook):
        def before_train_iter(self, trainer: Any, step: int) -> None:
            seen.append(step)

        def after_val(self, trainer: Any) -> None:
            seen.append(-1)

    table = {
        name: Point(name, arguments) for name, arguments in {"before_train_iter": ("step",), "after_val": ()}.items()
    }
    plan = Plan(host, table=table, scopes={})
    plan.add(Own())
    plan.call("before_train_iter", {"step": 3})
    plan.call("after_val", {})
    assert seen == [3, -1]
    assert list(plan.points) == ["before_train_iter", "after_val"]
    with pytest.raises(HookError, match=r"^unknown point 'before_run'; "):
        plan.call("before_run", {})


def surround(name: str, seen: list[str]) -> Any:
    def around(host: Any, args: list[str]) -> Iterator[None]:
        seen.append(f"enter {name}")
        try:
            yield
        except ValueError as error:
            seen.append(f"{name} sees {error}")
            raise
        seen.append(f"leave {name}")

    return around


@pytest.mark.parametrize(("in_order", "left"), [(False, ["leave b", "leave a"]), (True, ["leave a", "leave b"])])
def test_a_scope_of_ones_own_is_left_in_reverse_or_in_order(host: Any, in_order: bool, left: list[str]) -> None:
    plan, seen = Plan(host), list[str]()
    plan.add_scope("on_step", ("args",), left_in_order=in_order)
    for name in "ab":
        plan.on("around_on_step", surround(name, seen))
    with plan.around("on_step", []):
        seen.append("work")
    assert seen == ["enter a", "enter b", "work", *left]
    assert f"left in {'the same order' if in_order else 'reverse'}" in plan.explain()


def test_left_in_order_everyone_who_was_entered_sees_the_failure(host: Any) -> None:
    plan, seen = Plan(host), list[str]()
    plan.add_scope("on_step", ("args",), left_in_order=True)
    for name in "ab":
        plan.on("around_on_step", surround(name, seen))

    def fails(host: Any) -> Iterator[None]:
        raise ValueError("no entry")
        yield

    plan.on("around_on_step", fails)
    plan.on("around_on_step", surround("c", seen))
    with pytest.raises(ValueError, match="^no entry"), plan.around("on_step", []):
        seen.append("work")
    assert seen == ["enter a", "enter b", "a sees no entry", "b sees no entry"]


def test_notes_call_a_scope_as_its_users_know_it(host: Any) -> None:
    plan = Plan(host)
    plan.add_scope("on_step", ("args",), known_as="on-step")

    def fails(host: Any) -> Iterator[None]:
        raise ValueError("no entry")
        yield

    plan.on("around_on_step", fails)
    with pytest.raises(ValueError, match="^no entry") as caught, plan.around("on_step", []):
        pass
    assert caught.value.__notes__[0].startswith("in hook fails, at on-step, epoch=")


def test_a_scope_cannot_be_declared_twice(host: Any) -> None:
    plan = Plan(host)
    plan.add_scope("on_step", ("args",))
    with pytest.raises(HookError, match=r"^the scope 'on_step' already exists: around_on_step\(runner, args\)$"):
        plan.add_scope("on_step")
    with pytest.raises(HookError, match=r"^the scope 'train_iter' already exists: "):
        plan.add_scope("train_iter")


def test_methods_that_are_said_to_do_nothing_are_left_out_and_others_are_checked(host: Any) -> None:
    class HasAll:
        def before_train(self, host: Any) -> None:
            raise AssertionError("nobody calls it")

        def after_train(self, host: Any) -> None: ...

    plan, hook = Plan(host), HasAll()
    plan.add(hook, unused={"before_train"})
    assert [call.point.name for entry in plan for call in entry.calls] == ["after_train"]
    plan.before_train()

    class Misspelt(HasAll):
        def before_trian(self) -> None: ...

    with pytest.raises(HookError, match="unknown point 'before_trian'; did you mean 'before_train'"):
        plan.add(Misspelt(), unused={"before_train"})


def test_an_error_tells_which_call_at_a_point_it_came_out_of(host: Any) -> None:
    class Fails(Hook):
        def before_train(self) -> None:
            raise ValueError("no")

    plan, fails = Plan(host, open=True), Fails()
    plan.add(Renders())
    plan.add(fails)
    with pytest.raises(ValueError, match="^no") as caught:
        plan.before_train()
    call = failing_call(caught.value, "before_train")
    assert call is not None
    assert (call.who, call.method) == ("Fails", fails.before_train)
    assert failing_call(caught.value, "after_train") is None
    assert failing_call(ValueError(), "before_train") is None


def test_an_observer_that_fails_at_an_undeclared_point_is_disabled_with_one_warning(
    host: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Looks(Hook):
        role = "observer"
        calls = 0

        def after_render(self) -> None:
            self.calls += 1
            raise ValueError("no image")

    plan, looks = Plan(host, open=True), Looks()
    plan.add(looks, on_error="disable")
    plan.call("after_render", {})
    plan.call("after_render", {})
    assert (looks.calls, list(plan)) == (1, [])
    assert caplog.messages == ["Looks failed; the run continues without it:"]


def test_every_also_counts_at_an_undeclared_point(host: Any) -> None:
    class Seldom(Hook):
        calls = 0

        @every(3)
        def after_render(self) -> None:
            self.calls += 1

    plan, seldom = Plan(host, open=True), Seldom()
    plan.add(seldom)
    for host.iter in range(6):
        plan.call("after_render", {})
    assert seldom.calls == 2
