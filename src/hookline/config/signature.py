"""Reads the parameters of a class or function from its signature, to check a config against them.

    signature = signature_of(EMAHook)
    signature.parameters["momentum"].doc       from the docstring's `Args:`
    signature.problems({"momentun": 0.1}, ("custom_hooks", 0))
    signature.json_schema()

Types are checked if pydantic understands them. Types that a config cannot express, such as a tensor, are not checked.
"""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from hookline.common.marks import Keys, Problem
from hookline.config.annotations import EMPTY, checkable, resolve, takes_name
from hookline.config.messages import problems_of
from hookline.config.slots import is_nominal
from hookline.errors import HookError
from hookline.plan.budgets import parse_budget
from hookline.plan.hook import Priority

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_UNNAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class Parameter:
    """One parameter: its annotation, its default, and its description from the docstring."""

    name: str
    #: The annotation, with all names looked up; Any if there is none.
    annotation: Any
    #: The part of the annotation that can be checked; Any if there is none.
    hint: Any
    default: Any
    doc: str
    #: True if a config gives it as a list, although it is written as `*layers`.
    variadic: bool = False

    @property
    def required(self) -> bool:
        """Return whether it must be given."""
        return self.default is EMPTY

    @property
    def takes_function(self) -> bool:
        """Return whether it takes a function or a class, which a config names as `module:name`."""
        return takes_name(self.annotation)


@dataclass(frozen=True)
class Signature:
    """The parameters that a class or function takes by name."""

    name: str
    doc: str
    parameters: Mapping[str, Parameter]
    #: True if other names are accepted too (`**kwargs`).
    extras: bool
    #: The annotation of these.
    extras_annotation: Any = Any

    def annotation_of(self, name: str) -> Any:
        """Return the annotation of a parameter."""
        return self.parameters[name].annotation if name in self.parameters else self.extras_annotation

    @cached_property
    def model(self) -> type[BaseModel]:
        """Return the parameters as a pydantic model. Its fields have the parameters' names as aliases."""
        fields: dict[str, Any] = {}
        for number, parameter in enumerate(self.parameters.values()):
            # The fields get neutral names, because pydantic rejects or warns about names such as _x, copy or model_x.
            fields[f"p{number}"] = (parameter.hint, _field(parameter))
        config = ConfigDict(extra="allow" if self.extras else "forbid", title=self.name)
        return create_model("Parameters", __config__=config, **fields)

    def problems(self, values: Mapping[str, Any], keys: Keys, known: Iterable[str] | None = None) -> list[Problem]:
        """Return the problems with the parameters at `keys`. `known` are the names to suggest for an unknown one."""
        names = list(self.parameters if known is None else known)
        try:
            self._validate(dict(values))
        except ValidationError as error:
            return problems_of(
                error,
                values,
                keys,
                lambda place: [] if place else names,
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
    extras = next((one for one in found.values() if one.kind is inspect.Parameter.VAR_KEYWORD), None)
    # `f(*args, **kwargs)` passes its arguments on, so that `args` may be one of them.
    unnamed = (*_UNNAMED, inspect.Parameter.VAR_POSITIONAL) if extras else _UNNAMED
    parameters = {
        key: _parameter(factory, parameter, docs.get(key, ""))
        for key, parameter in found.items()
        if parameter.kind not in unnamed and key not in skip
    }
    if extras is None:
        return Signature(name, summary, parameters, extras=False)
    return Signature(name, summary, parameters, True, resolve(factory, extras.annotation))


def _parameter(factory: Callable[..., Any], parameter: inspect.Parameter, doc: str) -> Parameter:
    annotation = resolve(factory, parameter.annotation)
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        items = list[annotation]  # type: ignore[valid-type]  # a type that is known only now
        return Parameter(parameter.name, items, checkable(items, is_nominal), (), doc, variadic=True)
    hint = checkable(annotation, is_nominal)
    if parameter.default is None and hint is not Any:
        hint = hint | None
    return Parameter(parameter.name, annotation, hint, parameter.default, doc)


def filled_parameter(factory: Callable[..., Any], usual: str) -> tuple[str, ...]:
    """Return the parameter that hookline itself fills in: the one with the usual name, or else the first one."""
    names = tuple(signature_of(factory).parameters)
    return (usual,) if usual in names else names[:1]


def hook_key_problems(hook: Callable[..., Any], values: Mapping[str, Any], keys: Keys) -> list[Problem]:
    """Return the problems with the keys that every hook has: `priority`, `on_error`, `ranks` and `budget`."""
    problems = []
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
        name = signature_of(hook).name
        why = f"{name} affects training, so a run cannot continue without it; only observers can be disabled"
        problems.append(Problem((*keys, "on_error"), why))
    if values.get("budget") is not None:
        try:
            parse_budget(values["budget"])
        except HookError as error:
            problems.append(Problem((*keys, "budget"), str(error)))
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
