"""The parameters of a class or function, read from its signature, as something to check a config against.

    signature = signature_of(EMAHook)
    signature.parameters["momentum"].doc       from the docstring's `Args:`
    signature.problems({"momentun": 0.1}, ("custom_hooks", 0))
    signature.json_schema()

Types are checked where pydantic understands them. What a config cannot hold (a tensor, a function) is not checked.
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
HOOK_KEYS = ("priority", "on_error")
# How a config names a function or a class.
NAMED = "^[^:]+:[^:]+$"


@dataclass(frozen=True)
class Parameter:
    """One parameter: its type (Any where it cannot be checked), its default, and what the docstring says."""

    name: str
    hint: Any
    #: Whether it takes a function or a class, which a config names as `module:name`.
    takes_function: bool
    default: Any
    doc: str

    @property
    def required(self) -> bool:
        """Whether it has to be given."""
        return self.default is _EMPTY

    def is_name(self, value: Any) -> bool:
        """Whether this value in a config names a function or class."""
        return self.takes_function and isinstance(value, str) and ":" in value


@dataclass(frozen=True)
class Signature:
    """What can be given to a class or function by name."""

    name: str
    doc: str
    parameters: Mapping[str, Parameter]
    #: Whether names besides these are taken (`**kwargs`).
    extras: bool

    @cached_property
    def model(self) -> type[BaseModel]:
        """The parameters as a pydantic model; its fields have the parameters' names as aliases."""
        fields: dict[str, Any] = {}
        for number, parameter in enumerate(self.parameters.values()):
            # Names of our own, since pydantic has opinions on fields called _x, copy or model_x.
            fields[f"p{number}"] = (parameter.hint, _field(parameter))
        config = ConfigDict(extra="allow" if self.extras else "forbid", title=self.name)
        return create_model("Parameters", __config__=config, **fields)

    def problems(self, values: Mapping[str, Any], keys: Keys, besides: tuple[str, ...] = ()) -> list[Problem]:
        """What is wrong with these parameters, standing at `keys`; `besides` are keys that others look after."""
        given = {name: value for name, value in values.items() if name not in besides}
        try:
            self._validated(given)
        except ValidationError as error:
            known = [*self.parameters, *besides]
            return problems_of(
                error,
                given,
                keys,
                lambda place: [] if place else known,
                no_such=f"{self.name} has no parameter '{{}}'",
                needs=f"{self.name} needs the parameter '{{}}'",
            )
        return []

    def converted(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters as their types say: a tuple for a list, a Path for a text, a float for an int."""
        model = self._validated(dict(values))
        names = {field.alias: key for key, field in type(model).model_fields.items()}
        return {name: getattr(model, names[name]) if name in names else value for name, value in values.items()}

    def _validated(self, values: dict[str, Any]) -> BaseModel:
        # JSON is what a config can hold, and pydantic's strict mode knows that JSON has no tuples and no paths.
        return self.model.model_validate_json(json.dumps(values), strict=True)

    def json_schema(self, ref_template: str = "#/$defs/{model}") -> dict[str, Any]:
        """The JSON Schema of the parameters as one object."""
        return self.model.model_json_schema(by_alias=True, ref_template=ref_template)


def signature_of(factory: Callable[..., Any], skip: tuple[str, ...] = ()) -> Signature:
    """The signature of a class or function, without the parameters that hookline itself fills in."""
    try:
        return _signature_of(factory, skip)
    except TypeError:  # a callable object that cannot be hashed
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
    """The parameter that hookline itself fills in: the one with the usual name, or else the first."""
    names = tuple(signature_of(factory).parameters)
    return (usual,) if usual in names else names[:1]


def hook_problems(hook: Callable[..., Any], values: Mapping[str, Any], keys: Keys) -> list[Problem]:
    """What is wrong with the mapping of a hook: its parameters, `priority` and `on_error`."""
    signature = signature_of(hook)
    problems = signature.problems(values, keys, besides=("type", *HOOK_KEYS))
    if values.get("priority") is not None:
        try:
            Priority.parse(values["priority"])
        except HookError as error:
            problems.append(Problem((*keys, "priority"), str(error)))
    policy = values.get("on_error", "raise")
    if policy not in ("raise", "disable"):
        problems.append(Problem((*keys, "on_error"), f"expected 'raise' or 'disable', found {policy!r}"))
    elif policy == "disable" and getattr(hook, "role", "actor") != "observer":
        why = f"{signature.name} acts on the training, so a run cannot go on without it; only observers can be disabled"
        problems.append(Problem((*keys, "on_error"), why))
    return problems


def _field(parameter: Parameter) -> Any:
    described: dict[str, Any] = {"alias": parameter.name, "description": parameter.doc or None}
    if parameter.required:
        return Field(**described)
    if _is_plain(parameter.default):
        return Field(default=parameter.default, **described)
    return Field(default_factory=lambda: None, **described)  # a default that no JSON Schema can show


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    return value is None or type(value) in (str, int, float, bool)


def _hint(factory: Callable[..., Any], parameter: inspect.Parameter) -> tuple[Any, bool]:
    """The type as far as a config can hold it, and whether it is also, or only, that of a function or class."""
    if parameter.annotation is _EMPTY:
        return Any, False
    holder = types.SimpleNamespace(__annotations__={"hint": parameter.annotation})
    for function in (getattr(factory, "__init__", None), getattr(factory, "__new__", None), factory):
        names = getattr(inspect.unwrap(function), "__globals__", {}) if callable(function) else {}
        try:
            hint = typing.get_type_hints(holder, globalns=names)["hint"]
        except Exception:  # a name that is only there for type checkers; whatever it is, it cannot be checked
            continue
        # Where any text will do, one with a colon in it is just that.
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
    """The part of a type that a config can hold: of `float | Tensor`, float; Any where nothing is left."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        members = [_checkable(member) for member in arguments]
        kept = [new for new, old in zip(members, arguments, strict=True) if new is not Any or old is Any]
        # A function is left out here and named by a string there, so a None that remains says nothing.
        return Any if kept in ([], [type(None)]) else Union[tuple(kept)]  # noqa: UP007  # | cannot take a list
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
    except Exception:  # pydantic has many ways to say that it does not know a type
        return False
    return True


def _documentation(factory: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The first line of the docstring, and what its `Args:` says about each parameter."""
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
