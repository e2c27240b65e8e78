from __future__ import annotations

from typing import Any

import pytest

from hookline import Hook
from hookline.errors import HookError
from hookline.plan import order
from hookline.plan.plan import Plan
from tests.performance.counting import count_calls


class First(Hook):
    def before_run(self, runner: Any) -> None: ...


class After(Hook):
    runs_after = ("First",)

    def before_run(self, runner: Any) -> None: ...


class Before(Hook):
    runs_before = (First,)

    def before_run(self, runner: Any) -> None: ...


def names(plan: Plan) -> list[str]:
    return [entry.name for entry in plan]


def test_a_declaration_holds_whichever_hook_is_registered_first() -> None:
    for hooks in ([After(), First(), Before()], [Before(), First(), After()], [First(), After(), Before()]):
        plan = Plan(object())
        for hook in hooks:
            plan.add(hook)
        assert names(plan) == ["Before", "First", "After"]


def test_a_declaration_about_a_class_covers_its_subclasses_and_all_of_its_hooks() -> None:
    class Second(First): ...

    plan = Plan(object())
    for hook in (Second(), First(), First(), Before()):
        plan.add(hook)
    assert names(plan) == ["Before", "Second", "First", "First#2"]


def test_a_refused_hook_leaves_the_plan_as_it_was() -> None:
    class Both(Hook):
        runs_after = ("After",)
        runs_before = ("First",)

        def before_run(self, runner: Any) -> None: ...

    plan = Plan(object())
    plan.add(First())
    plan.add(After())
    with pytest.raises(HookError, match="the order of the hooks is circular: "):
        plan.add(Both())
    with pytest.raises(HookError, match="the order of the hooks is contradictory: After#2 declares runs_after First"):
        plan.add(After(), priority=0)
    assert names(plan) == ["First", "After"]
    assert [call.who for call in plan.calls_at("before_run")] == ["First", "After"]
    plan.add(After())
    assert names(plan) == ["First", "After", "After#2"]


def test_names_are_free_again_when_a_hook_is_removed() -> None:
    plan, hooks = Plan(object()), [First(), First(), First()]
    for hook in hooks:
        plan.add(hook)
    plan.remove(hooks[1])
    assert names(plan) == ["First", "First#3"]
    plan.add(First())
    assert names(plan) == ["First", "First#3", "First#2"]


@pytest.mark.parametrize("kind", [First, After, Before])
def test_registering_a_hook_takes_the_same_work_however_many_there_are(kind: type[Hook]) -> None:
    plan = Plan(object())
    plan.add(First())

    def add(number: int) -> None:
        for _ in range(number):
            plan.add(kind())

    add(10)
    few = count_calls(lambda: add(10))
    add(300)
    many = count_calls(lambda: add(10))
    assert many <= few + 20


def test_sorting_happens_once_after_many_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    sorts, sort = [], order._sort

    def note_and_sort(entries: Any, before: Any) -> Any:
        sorts.append(len(entries))
        return sort(entries, before)

    monkeypatch.setattr(order, "_sort", note_and_sort)
    plan = Plan(object())
    for _ in range(50):
        plan.add(First())
    assert len(names(plan)) == 50
    assert sorts == [50]
