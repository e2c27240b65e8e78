"""Fields that contain classes and functions, even in lists and dicts: resolving names to the objects."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from hookline.dialects.robo_orchard_core.utils.class_names import find_allowed, find_class


def resolve_names(value: Any, annotation: Any, allow: Iterable[str]) -> Any:
    """Return the value with names replaced by classes and functions, where the annotation expects these.

    A value without such names is returned as the same object.
    """
    parts = list(_parts(annotation))
    if isinstance(value, str):
        return value if str in parts else _resolve(value, parts, allow)
    for part in parts:
        inner, origin = typing.get_args(part), typing.get_origin(part)
        if not isinstance(origin, type) or not inner:
            continue
        if isinstance(value, Mapping) and issubclass(origin, Mapping) and len(inner) == 2:
            found = {key: resolve_names(one, inner[1], allow) for key, one in value.items()}
            return value if all(found[key] is one for key, one in value.items()) else found
        if isinstance(value, (list, tuple)) and issubclass(origin, Iterable) and not issubclass(origin, Mapping):
            kinds = inner if issubclass(origin, tuple) and ... not in inner else (inner[0],) * len(value)
            if len(kinds) == len(value):
                items = [resolve_names(one, kind, allow) for one, kind in zip(value, kinds, strict=True)]
                return value if all(one is given for one, given in zip(items, value, strict=True)) else items
    return value


def _resolve(value: str, parts: list[Any], allow: Iterable[str]) -> Any:
    for part in parts:
        if part is type or typing.get_origin(part) is type:
            return find_class(value, _expected(part), allow)
        if typing.get_origin(part) is Callable or part is Callable:
            return find_allowed(value, allow)
    return value


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield the annotation, or the parts of a union."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        yield from _parts(typing.get_args(annotation)[0])
    elif isinstance(annotation, types.UnionType) or origin is typing.Union:
        for part in typing.get_args(annotation):
            yield from _parts(part)
    else:
        yield annotation


def _expected(annotation: Any) -> type:
    """Return the class that `type[...]` expects; a bare `type` accepts any class."""
    arguments = typing.get_args(annotation)
    expected = arguments[0] if arguments else object
    if isinstance(expected, TypeVar):
        expected = expected.__bound__ or object
    return expected if isinstance(expected, type) else object
