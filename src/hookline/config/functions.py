"""Decides what a config means by a function with parameters: call it now, or later with more arguments.

transform: {type: "mynet:add_noise", scale: 0.1}      def add_noise(image, scale): ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any

from hookline.config.annotations import Kind, classes_in, kinds_of, resolve
from hookline.config.signature import signature_of
from hookline.errors import ConfigError


class Use(Enum):
    """The way in which a class or function that a config names is used."""

    #: It is called with its parameters, and the result is used.
    CALL = "call"
    #: It is used itself, with its parameters bound.
    BIND = "bind"


def use_of(function: Callable[..., Any], given: Collection[str], arity: int | None) -> Use:
    """Return how to use a function where something to call is expected. Refuse it if that is not clear.

    A function that returns something to call, according to its annotation, is called now. A function that returns
    anything else is bound. Without the annotation, the parameters decide: they must leave an argument free for a call
    later, or else there must be enough for a call now. `arity` is the number of arguments of a later call, if known.
    """
    name = getattr(function, "__name__", repr(function))
    now, later = accepts(function, 0, given), accepts(function, arity, given)
    returns = _creates_function(function)
    if returns is None and now and later:
        raise ConfigError(
            f"{name} can be called now with these parameters, or later with more; annotate what it returns: "
            "'-> Callable' if it creates the function to use, anything else if it is that function"
        )
    if returns or (returns is None and now):
        return Use.CALL
    if not later:
        count = "at least 1 argument" if arity is None else "1 argument" if arity == 1 else f"{arity} arguments"
        raise ConfigError(f"{name} is called with {count} here, which it does not accept besides these parameters")
    return Use.BIND


def call(factory: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
    """Call a class or function with named parameters. Parameters before `*layers` are passed by position."""
    variadic = next((one.name for one in signature_of(factory).parameters.values() if one.variadic), None)
    if variadic is None or variadic not in parameters:
        return factory(**parameters)
    named = dict(parameters)
    items = named.pop(variadic)
    known = inspect.signature(factory).parameters.values()
    first = [one for one in known if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    return factory(*(named.pop(one.name, one.default) for one in first), *items, **named)


def is_callable_class(found: type) -> bool:
    """Return whether instances of a class can be called."""
    return any("__call__" in vars(base) for base in found.__mro__)


def _creates_function(function: Callable[..., Any]) -> bool | None:
    """Return whether a function returns something to call; None if it does not say."""
    try:
        annotation = resolve(function, inspect.signature(function).return_annotation)
    except (TypeError, ValueError):  # written in C, without a signature
        return None
    kinds = kinds_of(annotation)
    if Kind.ANY in kinds:
        return None
    return Kind.FUNCTION in kinds or any(is_callable_class(cls) for cls in classes_in(annotation))


def accepts(function: Callable[..., Any], count: int | None, given: Collection[str]) -> bool:
    """Return whether a call with this many arguments and the given parameters works; None stands for one or more."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    bind = signature.bind_partial if count is None else signature.bind
    try:
        bind(*[None] * (1 if count is None else count), **dict.fromkeys(given))
    except TypeError:
        return False
    return True
