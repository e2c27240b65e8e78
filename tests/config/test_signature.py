"""A config is checked against constructor signatures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
import torch
from torch import Tensor

from hookline.config.annotations import Nested
from hookline.config.blueprints import Around, Drafter
from hookline.config.names import Resolver
from hookline.config.signature import hook_key_problems, signature_of
from hookline.config.slots import HOOK_KEYS
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from somewhere import Unknown  # type: ignore[import-not-found]  # only a type checker would look for it


class Mode(Enum):
    LESS = "less"
    MORE = "more"


class Everything:
    """Takes it all.

    Args:
        number: A number
            on two lines.
        size (tuple): Two of them.
        **rest: Not a parameter.

    More text: not a parameter either.
    """

    def __init__(  # type: ignore[no-untyped-def]  # as in much old code
        self,
        number: float,
        size: tuple[int, int] = (1, 2),
        mode: Mode = Mode.LESS,
        kind: Literal["a", "b"] = "a",
        where: Path | None = None,
        lr: float | Tensor = 0.1,
        items: Iterable[int] = (),
        call: Callable[[], int] = lambda: 1,
        unknown: Unknown | None = None,
        implicit: int = None,  # type: ignore[assignment]  # noqa: RUF013  # as in much old code
        copy: bool = False,
        untyped=None,
    ) -> None:
        self.args = (number, size, mode)


def messages(values: dict[str, Any], factory: Callable[..., Any] = Everything) -> list[str]:
    return [f"{problem.keys}: {problem.message}" for problem in signature_of(factory).problems(values, ("x",))]


def test_parameters_have_types_defaults_and_docs() -> None:
    parameters = signature_of(Everything).parameters
    assert {name: parameter.doc for name, parameter in parameters.items() if parameter.doc} == {
        "number": "A number on two lines.",
        "size": "Two of them.",
    }
    assert [name for name, parameter in parameters.items() if parameter.required] == ["number"]
    assert parameters["size"].default == (1, 2)
    assert parameters["lr"].hint == float | Nested
    assert [name for name, parameter in parameters.items() if parameter.takes_function] == ["call"]
    assert parameters["unknown"].hint is Any
    assert signature_of(Everything).doc == "Takes it all."
    assert signature_of(Everything) is signature_of(Everything)


def test_valid_values_pass_and_are_converted_to_their_types() -> None:
    values = {
        "number": 1,
        "size": [3, 4],
        "mode": "more",
        "where": "/x",
        "items": [1],
        "call": "mynet:loss_of",
        "untyped": [1],
    }
    assert messages(values) == []
    converted = signature_of(Everything).convert(values)
    assert converted == {**values, "size": (3, 4), "mode": Mode.MORE, "where": Path("/x")}
    assert type(converted["number"]) is float
    assert type(converted["items"]) is list


def test_a_default_of_none_can_be_given() -> None:
    assert messages({"number": 1, "implicit": None, "where": None, "untyped": None}) == []


def test_wrong_values_are_explained() -> None:
    values = {
        "size": [3, "4"],
        "mode": "less_",
        "kind": "c",
        "where": 3,
        "lr": "fast",
        "items": [1.5],
        "implicit": "5",
        "copy": 1,
        "numbr": 3,
    }
    assert messages(values) == [
        "('x', 'size', 1): expected an int, found '4'",
        "('x', 'mode'): expected 'less' or 'more', found 'less_'",
        "('x', 'kind'): expected 'a' or 'b', found 'c'",
        "('x', 'where'): expected a string, found 3",
        "('x', 'lr'): expected a number, found 'fast'",
        "('x', 'items', 0): expected an int, found 1.5",
        "('x', 'implicit'): expected an int, found '5'",
        "('x', 'copy'): expected true or false, found 1",
        "('x', 'numbr'): Everything has no parameter 'numbr'; did you mean 'number'?",
    ]


def test_missing_parameters_are_named_unless_misspelled() -> None:
    assert messages({}) == ["('x',): Everything needs the parameter 'number'"]
    assert messages({"nmber": 1}) == ["('x', 'nmber'): Everything has no parameter 'nmber'; did you mean 'number'?"]
    assert messages({"number": 1, "q": 1}, lambda number: number) == [
        "('x', 'q'): <lambda> has no parameter 'q'; available: number"
    ]


def test_the_message_about_a_union_lists_all_alternatives() -> None:
    def f(x: int | bool | list[int] | None = None) -> None: ...

    assert messages({"x": "a"}, f) == ["('x', 'x'): expected an int, true or false or a list, found 'a'"]
    assert messages({"x": [1, "a"]}, f) == ["('x', 'x', 1): expected an int, found 'a'"]


def test_keywords_take_anything() -> None:
    def f(a: int, **rest: Any) -> None: ...

    assert messages({"a": 1, "b": 2}, f) == []
    assert signature_of(f).convert({"a": 1, "b": [2]}) == {"a": 1, "b": [2]}


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Adam", "RMSprop", "Adagrad", "LBFGS", "Muon"])
def test_torch_optimizers_can_be_checked(name: str) -> None:
    factory = getattr(torch.optim, name)
    problems = signature_of(factory, ("params",)).problems({"lr": "x"}, ())
    assert [problem.message for problem in problems] == ["expected a number, found 'x'"]


def test_something_without_a_signature_takes_anything() -> None:
    assert messages({"anything": 1}, dict) == []


class Watcher(Hook):
    role = "observer"

    def __init__(self, interval: int = 1) -> None: ...


class Actor(Hook):
    pass


@pytest.mark.parametrize(
    ("hook", "values", "expected"),
    [
        (Watcher, {"type": "Watcher", "interval": 2, "priority": "low", "on_error": "disable"}, []),
        (Watcher, {"priority": None}, []),
        (Watcher, {"priority": "LOWW"}, ["priority: unknown priority 'LOWW'; did you mean 'LOW'?"]),
        (
            Watcher,
            {"priority": 101},
            ["priority: the priority 101 is outside 0..100; 0 runs first, NORMAL is 50, LOWEST is 100"],
        ),
        (Watcher, {"ranks": "second"}, ["ranks: expected 'all' or 'main', found 'second'"]),
        (Watcher, {"on_error": "ignore"}, ["on_error: expected 'raise' or 'disable', found 'ignore'"]),
        (
            Actor,
            {"on_error": "disable"},
            ["on_error: Actor affects training, so a run cannot continue without it; only observers can be disabled"],
        ),
        (Watcher, {"budget": "5%"}, []),
        (
            Watcher,
            {"budget": 5},
            ["budget: a budget must be a share of the training time, such as 5% or 0.05, not 5"],
        ),
        (Watcher, {"prioritty": 3}, ["prioritty: Watcher has no parameter 'prioritty'; did you mean 'priority'?"]),
        (
            Actor,
            {"x": 3},
            ["x: Actor has no parameter 'x'; available: type, priority, on_error, ranks, budget"],
        ),
    ],
)
def test_hooks_have_a_priority_and_a_policy(hook: type[Hook], values: dict[str, Any], expected: list[str]) -> None:
    drafter = Drafter(Resolver())
    drafter.parameters(Around("hook"), hook, ("h",), values, other_keys=("type", *HOOK_KEYS))
    found = [*drafter.problems.all(), *hook_key_problems(hook, values, ("h",))]
    assert [f"{problem.keys[-1]}: {problem.message}" for problem in found] == expected
