"""Reads the parameters of a class or function from its signature, to check a config against them.

    signature = signature_of(EMAHook)
    signature.parameters["momentum"].doc       from the docstring's `Args:`
    signature.problems({"momentun": 0.1}, ("custom_hooks", 0))
    signature.json_schema()

Types are checked if pydantic understands them. Types that a config cannot express, such as a tensor, are not checked.
"""

from __future__ import annotations

import collections.abc
import inspect
import json
import re
import types
import typing
import warnings
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model

from hookline.common.marks import Keys, Problem
from hookline.config.messages import problems_of
from hookline.errors import HookError
from hookline.plan.hook import Priority

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_EMPTY = inspect.Parameter.empty
_NOT_BY_NAME = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)
HOOK_KEYS = ("priority", "on_error", "ranks")
# The form in which a config names a function or a class.
NAMED = "^[^:]+:[^:]+$"


@dataclass(frozen=True)
class Parameter:
    """One parameter: its type (Any if it cannot be checked), its default, and its description from the docstring."""

    name: str
    hint: Any
    #: True if it takes a function or a class, which a config names as `module:name`.
    takes_function: bool
    default: Any
    doc: str

    @property
    def required(self) -> bool:
        """Return whether it must be given."""
        return self.default is _EMPTY

    def is_name(self, value: Any) -> bool:
        """Return whether this value from a config names a function or a class."""
        return self.takes_function and isinstance(value, str) and ":" in value


@dataclass(frozen=True)
class Signature:
    """The parameters that a class or function takes by name."""

    name: str
    doc: str
    parameters: Mapping[str, Parameter]
    #: True if other names are accepted too (`**kwargs`).
    extras: bool

    @cached_property
    def model(self) -> type[BaseModel]:
        """Return the parameters as a pydantic model. Its fields have the parameters' names as aliases."""
        fields: dict[str, Any] = {}
        for number, parameter in enumerate(self.parameters.values()):
            # The fields get neutral names, because pydantic rejects or warns about names such as _x, copy or model_x.
            fields[f"p{number}"] = (parameter.hint, _field(parameter))
        config = ConfigDict(extra="allow" if self.extras else "forbid", title=self.name)
        return create_model("Parameters", __config__=config, **fields)

    def problems(self, values: Mapping[str, Any], keys: Keys, other_keys: tuple[str, ...] = ()) -> list[Problem]:
        """Return the problems with the parameters at `keys`. `other_keys` are allowed too, and checked elsewhere."""
        given = {name: value for name, value in values.items() if name not in other_keys}
        try:
            self._validate(given)
        except ValidationError as error:
            known = [*self.parameters, *other_keys]
            return problems_of(
                error,
                given,
                keys,
                lambda place: [] if place else known,
                unknown_text=f"{self.name} has no parameter '{{}}'",
                missing_text=f"{self.name} needs the parameter '{{}}'",
            )
        return []

    def convert(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters converted to their types: a list to a tuple, a text to a Path, an int to a float."""
        model = self._validate(dict(values))
        names = {field.alias: key for key, field in type(model).model_fields.items()}
        return {name: getattr(model, names[name]) if name in names else value for name, value in values.items()}

    def _validate(self, values: dict[str, Any]) -> BaseModel:
        # A config can express what JSON can, and pydantic's strict mode knows that JSON has no tuples and no paths.
        return self.model.model_validate_json(json.dumps(values), strict=True)

    def json_schema(self, ref_template: str = "#/$defs/{model}") -> dict[str, Any]:
        """Return the JSON Schema of the parameters as one object."""
        return self.model.model_json_schema(by_alias=True, ref_template=ref_template)


def signature_of(factory: Callable[..., Any], skip: tuple[str, ...] = ()) -> Signature:
    """Return the signature of a class or function, without the parameters in `skip`, which hookline itself fills in."""
    try:
        return _signature_of(factory, skip)
    except TypeError:  # a callable object that is not hashable
        return _signature_of.__wrapped__(factory, skip)


@lru_cache(maxsize=512)
def _signature_of(factory: Callable[..., Any], skip: tuple[str, ...]) -> Signature:
    name = getattr(factory, "__name__", type(factory).__name__)
    summary, docs = _documentation(factory)
    try:
        found = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # written in C, without a signature
        return Signature(name, summary, {}, extras=True)
    parameters = {
        key: Parameter(key, *_hint(factory, parameter), default=parameter.default, doc=docs.get(key, ""))
        for key, parameter in found.items()
        if parameter.kind not in _NOT_BY_NAME and key not in skip
    }
    extras = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in found.values())
    return Signature(name, summary, parameters, extras)


def filled_parameter(factory: Callable[..., Any], usual: str) -> tuple[str, ...]:
    """Return the parameter that hookline itself fills in: the one with the usual name, or else the first one."""
    names = tuple(signature_of(factory).parameters)
    return (usual,) if usual in names else names[:1]


def hook_problems(hook: Callable[..., Any], values: Mapping[str, Any], keys: Keys) -> list[Problem]:
    """Return the problems with the mapping of a hook: its parameters, `priority`, `on_error` and `ranks`."""
    signature = signature_of(hook)
    problems = signature.problems(values, keys, other_keys=("type", *HOOK_KEYS))
    if values.get("priority") is not None:
        try:
            Priority.parse(values["priority"])
        except HookError as error:
            problems.append(Problem((*keys, "priority"), str(error)))
    if (ranks := values.get("ranks", "all")) not in ("all", "main"):
        problems.append(Problem((*keys, "ranks"), f"expected 'all' or 'main', found {ranks!r}"))
    policy = values.get("on_error", "raise")
    if policy not in ("raise", "disable"):
        problems.append(Problem((*keys, "on_error"), f"expected 'raise' or 'disable', found {policy!r}"))
    elif policy == "disable" and getattr(hook, "role", "actor") != "observer":
        why = f"{signature.name} affects training, so a run cannot continue without it; only observers can be disabled"
        problems.append(Problem((*keys, "on_error"), why))
    return problems


def _field(parameter: Parameter) -> Any:
    described: dict[str, Any] = {"alias": parameter.name, "description": parameter.doc or None}
    if parameter.required:
        return Field(**described)
    if _is_plain(parameter.default):
        return Field(default=parameter.default, **described)
    return Field(default_factory=lambda: None, **described)  # a default that JSON Schema cannot express


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    return value is None or type(value) in (str, int, float, bool)


def _hint(factory: Callable[..., Any], parameter: inspect.Parameter) -> tuple[Any, bool]:
    """Return the part of the type that a config can express, and whether it accepts a function or a class."""
    if parameter.annotation is _EMPTY:
        return Any, False
    holder = types.SimpleNamespace(__annotations__={"hint": parameter.annotation})
    for function in (getattr(factory, "__init__", None), getattr(factory, "__new__", None), factory):
        names = getattr(inspect.unwrap(function), "__globals__", {}) if callable(function) else {}
        try:
            hint = typing.get_type_hints(holder, globalns=names)["hint"]
        except Exception:  # a name that only type checkers can resolve, so it cannot be checked
            continue
        # If the parameter also accepts any text, a text with a colon is just text.
        named, hint = _takes_function(hint) and not _takes_text(hint), _checkable(hint)
        if named:
            name = Annotated[str, Field(pattern=NAMED)]
            hint = name if hint is Any else hint | name
        return (hint | None if parameter.default is None and hint is not Any else hint), named
    return Any, False


def _takes_function(hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_takes_function(member) for member in get_args(hint))
    return hint in (type, collections.abc.Callable) or origin in (type, collections.abc.Callable)


def _takes_text(hint: Any) -> bool:
    return hint is str or (get_origin(hint) in (Union, types.UnionType) and any(map(_takes_text, get_args(hint))))


def _checkable(hint: Any) -> Any:
    """Return the part of a type that a config can express: float for `float | Tensor`, Any if nothing is left."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        members = [_checkable(member) for member in arguments]
        kept = [new for new, old in zip(members, arguments, strict=True) if new is not Any or old is Any]
        # Functions are dropped here; a config names them with a string. If only None is left, nothing can be checked.
        return Any if kept in ([], [type(None)]) else Union[tuple(kept)]  # noqa: UP007  # | does not accept a list
    if origin in (collections.abc.Iterable, collections.abc.Iterator, collections.abc.Collection):
        return _checkable(list[arguments[0]])  # type: ignore[valid-type]  # pydantic would leave an iterator unchecked
    if origin in (list, tuple, dict, collections.abc.Sequence, collections.abc.Mapping) and arguments:
        hint = origin[tuple(item if item is ... else _checkable(item) for item in arguments)]
    return hint if _is_known(hint) else Any


def _is_known(hint: Any) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            TypeAdapter(hint).json_schema()
    except Exception:  # pydantic raises many kinds of errors for unknown types
        return False
    return True


def _documentation(factory: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the first line of the docstring, and the descriptions of the parameters from its `Args:`."""
    text = inspect.getdoc(factory) or ""
    docs = _arguments(text)
    if inspect.isclass(factory):
        docs = _arguments(inspect.getdoc(factory.__init__) or "") | docs
    return text.partition("\n")[0], docs


def _arguments(text: str) -> dict[str, str]:
    section = re.search(r"^(Args|Arguments|Parameters):\s*\n((?:[ \t]+.*\n?|\s*\n)*)", text, re.MULTILINE)
    if section is None:
        return {}
    body = inspect.cleandoc("\n" + section[2])
    entries = re.findall(r"^\*{0,2}(\w+)[^:\n]*:(.*(?:\n(?:[ \t]+.*|[ \t]*$))*)", body, re.MULTILINE)
    return {name: " ".join(doc.split()) for name, doc in entries}
