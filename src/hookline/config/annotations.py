"""Reads from an annotation which values a parameter takes, as far as a config can write it.

kind_of(nn.Module)                  Kind.OBJECT     a mapping with `type` is built
kind_of(dict[str, int])             Kind.MAPPING    a mapping stays a mapping
kind_of(Callable[[int], int])       Kind.FUNCTION   `module:name`, or a mapping with `type`
checkable(float | Tensor)           float | Nested  the type that pydantic checks
"""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import inspect
import json
import re
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, PlainValidator, TypeAdapter, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

EMPTY = inspect.Parameter.empty
# The form in which a config names a function or a class.
NAMED = "^[^:]+:[^:]+$"
#: A placeholder for an object while pydantic checks and converts the values around it.
PLACEHOLDER = {"<object>": True}
NESTED_SCHEMA = {
    "type": "object",
    "properties": {"type": {"type": "string", "minLength": 1}},
    "required": ["type"],
    "description": "An object to build: type names it, and the other keys are its parameters.",
}

NESTED_OR_NAME_SCHEMA = {"anyOf": [NESTED_SCHEMA, {"type": "string", "minLength": 1}]}


def _require_placeholder(value: Any) -> Any:
    if value == PLACEHOLDER:
        return value
    raise PydanticCustomError("object", "a mapping with 'type'")


def _require_name(value: Any) -> Any:
    if isinstance(value, str) and re.search(NAMED, value):
        return value
    raise PydanticCustomError("string_pattern_mismatch", "a name such as 'module:name'")


#: The type of an object that a mapping with `type` describes.
Nested = Annotated[Any, PlainValidator(_require_placeholder), WithJsonSchema(NESTED_SCHEMA)]
#: The same, where a name alone is an object without parameters.
_NestedOrName = Annotated[Any, PlainValidator(_require_placeholder), WithJsonSchema(NESTED_OR_NAME_SCHEMA)]
_Name = Annotated[Any, PlainValidator(_require_name), WithJsonSchema({"type": "string", "pattern": NAMED})]
# Code that only type checkers run often imports these: the names still mean what they say.
_WELL_KNOWN = {
    name: getattr(module, name) for module in (typing, collections.abc) for name in module.__all__ if name[0].isupper()
}


class Kind(Enum):
    """The values that one alternative of an annotation takes."""

    ANY = "anything"
    SCALAR = "a number, a text, ..."
    MAPPING = "a dict"
    LIST = "a list, or anything else to iterate over"
    FUNCTION = "something to call"
    CLASS = "a class itself"
    OBJECT = "an instance of a class"


def resolve(factory: Callable[..., Any], annotation: Any) -> Any:
    """Return the annotation of a parameter with all names in it looked up; Any if that is not possible."""
    if annotation is EMPTY:
        return Any
    holder = types.SimpleNamespace(__annotations__={"hint": annotation})
    for function in (getattr(factory, "__init__", None), getattr(factory, "__new__", None), factory):
        names = getattr(inspect.unwrap(function), "__globals__", {}) if callable(function) else {}
        try:
            return typing.get_type_hints(holder, globalns=_WELL_KNOWN | names, include_extras=True)["hint"]
        except Exception:  # a name that only type checkers can resolve, so it cannot be checked
            continue
    return Any


def alternatives(annotation: Any) -> Iterator[Any]:
    """Yield the alternatives of a union, without aliases and `Annotated`; of anything else, yield it."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from alternatives(member)
    elif origin is Annotated:
        yield from alternatives(get_args(annotation)[0])
    elif isinstance(annotation, typing.NewType):
        yield from alternatives(annotation.__supertype__)
    elif type(annotation).__name__ == "TypeAliasType":  # the statement `type X = ...`
        yield from alternatives(annotation.__value__)
    elif isinstance(annotation, typing.TypeVar):
        yield from alternatives(Any if annotation.__bound__ is None else annotation.__bound__)
    else:
        yield annotation


def kind_of(alternative: Any) -> Kind:
    """Return the values that one alternative of an annotation takes."""
    if alternative in (Any, object, EMPTY) or isinstance(alternative, str):
        return Kind.ANY
    found = get_origin(alternative) or alternative
    if found is type:
        return Kind.CLASS
    if found is collections.abc.Callable or _is_call_protocol(found):
        return Kind.FUNCTION
    if not inspect.isclass(found):  # a Literal, for example
        return Kind.SCALAR if is_known(alternative) else Kind.ANY
    if _is_builtin(found, collections.abc.Mapping) or typing.is_typeddict(found) or _declares_type(found):
        return Kind.MAPPING
    if issubclass(found, (str, bytes, Enum)):
        return Kind.SCALAR
    if _is_builtin(found, collections.abc.Iterable):
        return Kind.LIST
    return Kind.SCALAR if is_known(alternative) and not _is_structure(found) else Kind.OBJECT


def kinds_of(annotation: Any) -> set[Kind]:
    """Return the values that an annotation takes. None stands for plain data, and takes nothing in particular."""
    return set() if annotation is None else {kind_of(alternative) for alternative in alternatives(annotation)}


def takes_text(annotation: Any, text: str | None = None) -> bool:
    """Return whether any text, or this one, is a valid value without conversion."""
    for alternative in alternatives(annotation):
        if alternative is str:
            return True
        if text is not None and kind_of(alternative) is Kind.SCALAR:
            try:
                TypeAdapter(alternative).validate_json(json.dumps(text), strict=True)
            except ValidationError:
                continue
            return True
    return False


def takes_name(annotation: Any) -> bool:
    """Return whether a text names a function or a class. Where any text is valid, a text with a colon is just text."""
    return bool({Kind.FUNCTION, Kind.CLASS} & kinds_of(annotation)) and not takes_text(annotation)


def classes_in(annotation: Any) -> tuple[type, ...]:
    """Return the classes of which an annotation takes instances."""
    if annotation is None:
        return ()
    objects = (alternative for alternative in alternatives(annotation) if kind_of(alternative) is Kind.OBJECT)
    return tuple(get_origin(alternative) or alternative for alternative in objects)


def item_annotation(annotation: Any, index: int) -> Any:
    """Return the annotation of an item of a list, or None if the annotation takes no list."""
    found = []
    for alternative in alternatives(annotation) if annotation is not None else ():
        arguments = get_args(alternative)
        kind = kind_of(alternative)
        if kind is Kind.ANY or (kind is Kind.LIST and not arguments):
            found.append(Any)
        elif kind is Kind.LIST and get_origin(alternative) is tuple and arguments[-1] is not ...:
            found += arguments[index : index + 1]
        elif kind is Kind.LIST:
            found.append(arguments[0])
    return Union[tuple(found)] if found else None  # noqa: UP007  # | does not accept a list


def value_annotation(annotation: Any) -> Any:
    """Return the annotation of a value in a mapping, or None if it is plain data, as in a dict of anything."""
    found = []
    for alternative in alternatives(annotation) if annotation is not None else ():
        arguments = get_args(alternative)
        kind = kind_of(alternative)
        if kind is Kind.ANY:
            found.append(Any)
        elif kind is Kind.MAPPING and len(arguments) == 2 and Kind.ANY not in kinds_of(arguments[1]):
            found.append(arguments[1])
    return Union[tuple(found)] if found else None  # noqa: UP007  # | does not accept a list


def keeps_mapping(annotation: Any) -> bool:
    """Return whether a mapping with a text as `type` is valid without conversion: a dict of ints cannot hold it."""
    for alternative in alternatives(annotation) if annotation is not None else ():
        arguments = get_args(alternative)
        if kind_of(alternative) is Kind.MAPPING and (
            len(arguments) != 2 or takes_text(arguments[1]) or Kind.ANY in kinds_of(arguments[1])
        ):
            return True
    return False


def arity_of(annotation: Any) -> int | None:
    """Return the number of arguments that a function is called with; None if the annotation does not say."""
    for alternative in alternatives(annotation):
        if get_origin(alternative) is collections.abc.Callable and get_args(alternative):
            arguments = get_args(alternative)[0]
            return len(arguments) if isinstance(arguments, list) else None
    return None


def checkable(annotation: Any, nominal: Callable[[type], bool] = lambda found: False) -> Any:
    """Return the type that pydantic checks; Any if there is nothing to check.

    An instance of a class can only be a nested object, if the class is `nominal`: nobody passes anything else for it.
    Other classes may take plain values as well, as `torch.device` takes a text.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return annotation if is_known(annotation) else checkable(arguments[0], nominal)
    if origin in (Union, types.UnionType):
        return _checkable_union(annotation, nominal)
    kind = kind_of(annotation)
    if kind in (Kind.FUNCTION, Kind.CLASS):
        return _Name | Nested if kind is Kind.FUNCTION else _Name
    if kind is Kind.OBJECT:
        if is_known(annotation):
            return annotation | Nested
        return _NestedOrName if nominal(get_origin(annotation) or annotation) else Any
    if origin in (collections.abc.Iterable, collections.abc.Iterator, collections.abc.Collection):
        return checkable(list[arguments[0]], nominal)  # type: ignore[valid-type]  # pydantic does not check iterators
    if origin in (list, tuple, dict, collections.abc.Sequence, collections.abc.Mapping) and arguments:
        annotation = origin[tuple(item if item is ... else checkable(item, nominal) for item in arguments)]
    return annotation if is_known(annotation) else Any


def _checkable_union(annotation: Any, nominal: Callable[[type], bool]) -> Any:
    members = get_args(annotation)
    if Kind.ANY in kinds_of(annotation):
        return Any
    text = takes_text(annotation)
    found = []
    for member in members:
        kinds = kinds_of(member)
        if text and kinds <= {Kind.FUNCTION, Kind.CLASS}:
            found += [Nested] if Kind.FUNCTION in kinds else []
        else:
            found.append(checkable(member, nominal))
    if all(new in (Any, type(None)) for new in found):
        return Any
    return Union[tuple(Nested if new is Any else new for new in found)]  # noqa: UP007  # | does not accept a list


def is_known(annotation: Any) -> bool:
    """Return whether pydantic understands a type."""
    try:
        return _is_known(annotation)
    except TypeError:  # not hashable
        return _is_known.__wrapped__(annotation)


@lru_cache(maxsize=1024)
def _is_known(annotation: Any) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            TypeAdapter(annotation).json_schema()
    except Exception:  # pydantic raises many kinds of errors for unknown types
        return False
    return True


def _is_builtin(found: type, base: type) -> bool:
    """Return whether this is one of Python's own classes of a kind. A config can write their contents down."""
    return issubclass(found, base) and found.__module__ in ("builtins", "collections", "collections.abc")


def _is_structure(found: type) -> bool:
    return dataclasses.is_dataclass(found) or issubclass(found, BaseModel) or hasattr(found, "_fields")


def _declares_type(found: type) -> bool:
    """Return whether a mapping for this structure may have its own key `type`."""
    if issubclass(found, BaseModel):
        names = {name for key, field in found.model_fields.items() for name in (key, field.alias)}
        return "type" in names or found.model_config.get("extra") == "allow"
    return dataclasses.is_dataclass(found) and any(field.name == "type" for field in dataclasses.fields(found))


def _is_call_protocol(found: Any) -> bool:
    return inspect.isclass(found) and getattr(found, "_is_protocol", False) and "__call__" in vars(found)
