"""Functions that users pass to hooks. Their arguments are chosen once, by the names of their parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hookline.errors import ConfigError
from hookline.plan.sources import source_of

VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, even inside a `partial`; empty if it has none.

    >>> name_of(partial(sorted, reverse=True)), name_of(lambda: 0)
    ('sorted', '')
    """
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__name__", "")
    return name if name.isidentifier() else ""


def short_name(function: Callable[..., Any]) -> str:
    """Return the name of a function or of the class of a callable, for a repr."""
    while isinstance(function, partial):
        function = function.func
    return name_of(function) or str(getattr(function, "__name__", type(function).__name__))


def label_of(function: Callable[..., Any]) -> str:
    """Return the name of a function and where it is defined, for messages."""
    while isinstance(function, partial):
        function = function.func
    return f"{name_of(function) or getattr(function, '__name__', type(function).__name__)} ({source_of(function)})"


def asked_for(
    function: Callable[..., Any], offered: Sequence[str], who: str, first: str | None = None
) -> Callable[..., Any]:
    """Return a function that takes everything on offer by name, and passes the user's function what it asks for.

    A parameter asks for the value of the same name. With `first`, the first parameter receives that value, whatever it
    is called, unless it has a default. Other parameters need defaults.

    >>> asked_for(lambda net, runner: (net, runner), ("model", "runner"), "mine", first="model")(model=1, runner=2)
    (1, 2)
    """
    if not callable(function):
        raise ConfigError(f"{who} must be a function, not {function!r}")
    choice = f"it can take {' and '.join(offered)}, by name"
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C, without a signature
        raise ConfigError(f"{who}: the parameters of {label_of(function)} cannot be read; wrap it in a def") from None
    positional: list[str] = []
    named: dict[str, str] = {}
    for number, parameter in enumerate(parameters):
        if parameter.kind in VARIABLE:
            continue
        wanted = parameter.name
        if number == 0 and first is not None and wanted not in offered and parameter.default is parameter.empty:
            wanted = first
        if wanted not in offered or wanted in named.values():
            if parameter.default is parameter.empty:
                raise ConfigError(
                    f"{who}: there is no value for the parameter '{wanted}' of {label_of(function)}; {choice}"
                )
        elif parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
            named[parameter.name] = wanted
        elif number == len(positional):
            positional.append(wanted)
    if not positional and not named and any(parameter.kind in VARIABLE for parameter in parameters):
        raise ConfigError(f"{who}: {label_of(function)} does not name its parameters; {choice}")
    return lambda **given: function(
        *(given[wanted] for wanted in positional), **{name: given[wanted] for name, wanted in named.items()}
    )
