"""Functions of users: their arguments are chosen by the names of their parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from hookline.errors import ConfigError
from hookline.plan.functions import asked_for, label_of, name_of


def nothing() -> Any:
    return ()


def of_model(model: Any) -> Any:
    return (model,)


def of_net(net: Any) -> Any:
    return (net,)


def of_both(net: Any, runner: Any) -> Any:
    return (net, runner)


def of_runner(runner: Any) -> Any:
    return (runner,)


def reversed_order(runner: Any, model: Any) -> Any:
    return (runner, model)


def with_defaults(samples: int = 3, model: Any = None, *, runner: Any = None, top: int = 1) -> Any:
    return (samples, model, runner, top)


def by_place(net: Any, /, runner: Any) -> Any:
    return (net, runner)


def by_place_with_defaults(samples: int = 3, model: Any = 4, /) -> Any:
    return (samples, model)


def with_more(model: Any, *more: Any, **options: Any) -> Any:
    return (model, more, options)


class Scorer:
    def __call__(self, net: Any) -> Any:
        return (net,)

    def score(self, runner: Any) -> Any:
        return (runner,)


def with_option(model: Any, beta: float) -> Any:
    return (model, beta)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (nothing, ()),
        (of_model, ("m",)),
        (of_net, ("m",)),
        (of_both, ("m", "r")),
        (of_runner, ("r",)),
        (reversed_order, ("r", "m")),
        (with_defaults, (3, "m", "r", 1)),
        (by_place, ("m", "r")),
        (by_place_with_defaults, (3, 4)),
        (with_more, ("m", (), {})),
        (Scorer(), ("m",)),
        (Scorer().score, ("r",)),
        (partial(with_option, beta=2.0), ("m", 2.0)),
        (lambda net: net, "m"),
    ],
)
def test_a_function_gets_what_its_parameters_ask_for(function: Callable[..., Any], expected: Any) -> None:
    assert asked_for(function, ("model", "runner"), "mine", first="model")(model="m", runner="r") == expected


def test_without_a_first_only_names_count() -> None:
    assert asked_for(lambda b, a: (a, b), ("a", "b"), "mine")(a=1, b=2) == (1, 2)
    with pytest.raises(
        ConfigError, match="^mine: there is no value for the parameter 'x' of <lambda> .*; it can take a and b, by"
    ):
        asked_for(lambda x: x, ("a", "b"), "mine")


def anything(*args: Any, **kwargs: Any) -> None: ...
def twice(net: Any, model: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("mynet:score", "mine must be a function, not 'mynet:score'"),
        (with_option, f"mine: there is no value for the parameter 'beta' of {label_of(with_option)}; {{}}"),
        (twice, f"mine: there is no value for the parameter 'model' of {label_of(twice)}; {{}}"),
        (anything, f"mine: {label_of(anything)} does not name its parameters; {{}}"),
        (max, "mine: the parameters of max (builtins.builtin_function_or_method, no source) cannot be read; wrap it in "
         "a def"),
    ],
)  # fmt: skip
def test_other_functions_are_refused(function: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        asked_for(function, ("model", "runner"), "mine", first="model")
    assert str(refused.value) == message.format("it can take model and runner, by name")


def test_names_and_labels() -> None:
    assert name_of(partial(partial(of_net), 1)) == "of_net"
    assert (name_of(Scorer()), name_of(lambda: 0)) == ("", "")
    line = of_net.__code__.co_firstlineno
    assert label_of(partial(of_net)).startswith("of_net (")
    assert label_of(partial(of_net)).endswith(f"test_functions.py:{line})")
    assert label_of(Scorer()).startswith("Scorer (")
