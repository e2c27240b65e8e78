"""Fields that hold classes and functions, alone or in lists and dicts: their names become what they name."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from hookline.dialects.robo_orchard_core.utils.class_names import find_allowed, find_class


def found_in(value: Any, annotation: Any, allow: Iterable[str]) -> Any:
    """The value with classes and functions in the place of their names, where the annotation asks for such.

    One without such names stays the object that it is.
    """
    parts = list(_parts(annotation))
    if isinstance(value, str):
        return value if str in parts else _named(value, parts, allow)
    for part in parts:
        inner, origin = typing.get_args(part), typing.get_origin(part)
        if not isinstance(origin, type) or not inner:
            continue
        if isinstance(value, Mapping) and issubclass(origin, Mapping) and len(inner) == 2:
            found = {key: found_in(one, inner[1], allow) for key, one in value.items()}
            return value if all(found[key] is one for key, one in value.items()) else found
        if isinstance(value, (list, tuple)) and issubclass(origin, Iterable) and not issubclass(origin, Mapping):
            kinds = inner if issubclass(origin, tuple) and ... not in inner else (inner[0],) * len(value)
            if len(kinds) == len(value):
                items = [found_in(one, kind, allow) for one, kind in zip(value, kinds, strict=True)]
                return value if all(one is given for one, given in zip(items, value, strict=True)) else items
    return value


def _named(value: str, parts: list[Any], allow: Iterable[str]) -> Any:
    for part in parts:
        if part is type or typing.get_origin(part) is type:
            return find_class(value, _expected(part), allow)
        if typing.get_origin(part) is Callable or part is Callable:
            return find_allowed(value, allow)
    return value


def _parts(annotation: Any) -> Iterator[Any]:
    """The annotation, or the parts of a union."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        yield from _parts(typing.get_args(annotation)[0])
    elif isinstance(annotation, types.UnionType) or origin is typing.Union:
        for part in typing.get_args(annotation):
            yield from _parts(part)
    else:
        yield annotation


def _expected(annotation: Any) -> type:
    """What `type[...]` asks for; without anything in it, any class would do."""
    arguments = typing.get_args(annotation)
    expected = arguments[0] if arguments else object
    if isinstance(expected, TypeVar):
        expected = expected.__bound__ or object
    return expected if isinstance(expected, type) else object
