"""Drafts blueprints of the objects that a config describes: what to call, and with which parameters.

A mapping with `type` is an object wherever its parameter takes one, at any depth. The annotation of the parameter
decides, or else `_plain_`. `validation` drafts a config to find its problems, and `factory` drafts it to build it, so
both always agree on what is at a place.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hookline.common.environment import FromEnvironment
from hookline.common.marks import Keys, show
from hookline.config import annotations as notes
from hookline.config.annotations import Kind
from hookline.config.functions import Use, is_callable_class, use_of
from hookline.config.problems import Problems
from hookline.config.signature import signature_of
from hookline.config.slots import is_nominal, slots_of
from hookline.errors import ConfigError

if TYPE_CHECKING:
    from hookline.config.names import Resolver

PLAIN = "_plain_"
#: More objects inside one another than any real config has.
MAX_NESTED = 30
#: The parameters of a sampler that get the dataset of its loader.
_DATASET = ("data_source", "dataset")
_FULL_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class Blueprint:
    """An object to build, or a function to use. The parameters have their types, and may contain blueprints."""

    keys: Keys
    factory: Callable[..., Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    use: Use = Use.CALL
    #: The object must be an instance of one of these, if there are any.
    classes: tuple[type, ...] = ()


@dataclass(frozen=True)
class Provided:
    """Stands for an object that is built elsewhere: the dataset of a loader, for its samplers."""

    name: str


@dataclass(frozen=True)
class Around:
    """The surroundings of a place: the slot of the part that it belongs to, and the values that this part provides."""

    slot: str
    provides: tuple[str, ...] = ()
    depth: int = 0


# Stands for an object with problems, so that the mapping around it is checked as if it were fine.
_FAILED = Blueprint((), dict)


class Drafter:
    """Reads the parts of a config. Problems are collected, and nothing is built."""

    def __init__(self, resolver: Resolver, problems: Problems | None = None) -> None:
        self.resolver = resolver
        self.problems = Problems() if problems is None else problems

    # -- the parts that have their own place in a config

    def part(
        self, slot: str, keys: Keys, value: Any, *, other_keys: tuple[str, ...] = (), provides: tuple[str, ...] = ()
    ) -> Blueprint | None:
        """Draft a mapping with `type`, or a name alone: the name must exist and accept these parameters.

        `other_keys` are parameters that are drafted elsewhere.
        """
        values = value if isinstance(value, dict) else {"type": value}
        factory = self.resolve(slot, keys, value)
        if factory is None:
            return None
        parameters = self.parameters(Around(slot, provides), factory, keys, values, other_keys=("type", *other_keys))
        return Blueprint(keys, factory, parameters)

    def metric(self, keys: Keys, value: Any) -> Blueprint | None:
        """Draft a metric: an object of a class, or a function with some of its parameters."""
        values = value if isinstance(value, dict) else {"type": value}
        factory = self.resolve("metric", keys, value)
        if factory is None:
            return None
        bound = not inspect.isclass(factory)
        around = Around("metric")
        parameters = self.parameters(around, factory, keys, values, other_keys=("type",), partial=bound)
        return Blueprint(keys, factory, parameters, Use.BIND if bound else Use.CALL)

    def function(self, slot: str, keys: Keys, value: Any, annotation: Any) -> Blueprint | None:
        """Draft something to call: the name of a function, or a mapping with `type`."""
        if isinstance(value, dict):
            found = self._mapping(annotation, Around(slot), keys, value)
            if isinstance(found, Blueprint):
                return found
            if PLAIN in value:
                self.problems.note((*keys, PLAIN), f"a {slot} must be something to call, not a mapping")
            return None
        factory = self.resolve(slot, keys, value)
        return None if factory is None else Blueprint(keys, factory, use=Use.BIND)

    def loader_parts(self, keys: Keys, value: Mapping[str, Any]) -> dict[str, Blueprint | None]:
        """Draft the dataset and the collate function of a loader."""
        parts: dict[str, Blueprint | None] = {}
        if isinstance(value.get("dataset"), dict) and "type" in value["dataset"]:
            parts["dataset"] = self.part("dataset", (*keys, "dataset"), value["dataset"])
        collate = value.get("collate_fn")
        if isinstance(collate, (str, dict)):
            takes = Callable[[list[Any]], Any]
            parts["collate_fn"] = self.function("collate_fn", (*keys, "collate_fn"), collate, takes)
        return parts

    def resolve(self, slot: str, keys: Keys, value: Any) -> Callable[..., Any] | None:
        """Return the callable that a mapping with `type` or a name means in a slot. Skip values of wrong types."""
        values = value if isinstance(value, dict) else {}
        name = values.get("type") if values else value
        if not isinstance(name, str) or not name:
            return None
        return self._resolved(
            (*keys, "type") if values else keys, partial(self.resolver.resolve, slot, name, [*values])
        )

    def _resolved(self, keys: Keys, find: Callable[[], Callable[..., Any]]) -> Callable[..., Any] | None:
        try:
            return find()
        except ConfigError as error:
            self.problems.refuse(keys, error)
            return None

    # -- parameters

    def parameters(
        self,
        around: Around,
        factory: Callable[..., Any],
        keys: Keys,
        values: Mapping[str, Any],
        *,
        filled: tuple[str, ...] = (),
        other_keys: tuple[str, ...] = (),
        partial: bool = False,
    ) -> dict[str, Any]:
        """Check parameters, and return them with their types, and with blueprints where they are objects.

        hookline itself provides those in `filled`. `other_keys` are checked elsewhere. A `partial` call gets the rest
        of its parameters later.
        """
        # A parameter that is itself called `type` cannot be given, so it must not be required.
        skipped = (*filled, *(name for name in other_keys if name != "type"))
        signature = signature_of(factory, skipped)
        if PLAIN in values and PLAIN not in other_keys:
            self.problems.note((*keys, PLAIN), f"{PLAIN} has no effect here: {signature.name} is always built")
            other_keys = (*other_keys, PLAIN)
        given = {
            name: self._value(signature.annotation_of(name), around, (*keys, name), value)
            if name in signature.parameters or signature.extras
            else value
            for name, value in values.items()
            if name not in other_keys
        }
        objects = {name: value for name, value in given.items() if isinstance(value, Blueprint)}
        absent = [name for name in signature.parameters if name not in given] if partial else []
        checked = signature_of(factory, (*skipped, *objects, *absent))
        plain = {name: _hidden(value) for name, value in given.items() if name not in objects}
        known = [*signature.parameters, *(name for name in other_keys if name != PLAIN)]
        problems = checked.problems(plain, keys, known)
        self.problems.found += problems
        converted = {} if problems else checked.convert(plain)
        return {name: _revealed(converted.get(name), value) for name, value in given.items()}

    def _value(self, annotation: Any, around: Around, keys: Keys, value: Any) -> Any:
        """Return a value with blueprints in place of the objects in it. The annotation None stands for plain data."""
        if isinstance(value, dict):
            return self._mapping(annotation, around, keys, value)
        if isinstance(value, list):
            return [
                self._value(notes.item_annotation(annotation, index), around, (*keys, index), item)
                for index, item in enumerate(value)
            ]
        if isinstance(value, str) and annotation is not None:
            return self._text(annotation, around, keys, value)
        return value

    def _mapping(self, annotation: Any, around: Around, keys: Keys, value: dict[str, Any]) -> Any:
        marker = value.get(PLAIN)
        inner = {key: item for key, item in value.items() if key != PLAIN}
        named = isinstance(inner.get("type"), str)
        if PLAIN in value and not isinstance(marker, bool):
            self.problems.note((*keys, PLAIN), f"expected true or false, found {show(marker)}")
            return _FAILED
        if marker is False and not named:
            self.problems.note((*keys, PLAIN), f"{PLAIN}: false builds an object, but the mapping has no 'type'")
            return _FAILED
        if marker:
            return _without_markers(inner)
        if named and (marker is False or _takes_objects(annotation)):
            return self._object(annotation, around, keys, inner, (*keys, "type"))
        values = notes.value_annotation(annotation)
        return {key: self._value(values, around, (*keys, key), item) for key, item in inner.items()}

    def _text(self, annotation: Any, around: Around, keys: Keys, value: str) -> Any:
        """Return the meaning of a text: a function or class, an object of a class without parameters, or a text."""
        if notes.takes_name(annotation):
            if ":" not in value:
                return value
            factory = self._resolved(keys, lambda: self.resolver.resolve("function", value))
            return _FAILED if factory is None else Blueprint(keys, factory, use=Use.BIND)
        classes = notes.classes_in(annotation)
        if not classes or notes.takes_text(annotation, value):
            return value
        if any(map(slots_of, classes)) or _FULL_NAME.fullmatch(value):
            return self._object(annotation, around, keys, {"type": value}, keys)
        return value

    # -- nested objects

    def _object(self, annotation: Any, around: Around, keys: Keys, values: dict[str, Any], named_at: Keys) -> Blueprint:
        """Draft an object that is a parameter of another one."""
        if around.depth >= MAX_NESTED:
            self.problems.note(keys, f"more than {MAX_NESTED} objects inside one another; this is not a config")
            return _FAILED
        classes = notes.classes_in(annotation)
        slots = tuple(dict.fromkeys(slot for found in classes for slot in slots_of(found)))
        given = [key for key in values if key != "type"]
        find = partial(self.resolver.resolve_object, slots, around.slot, values["type"], given)
        factory = self._resolved(named_at, find)
        if factory is None:
            return _FAILED
        own = slots_of(factory) if inspect.isclass(factory) else ()
        inside = Around((*own, *slots, around.slot)[0], around.provides, around.depth + 1)
        before = len(self.problems.found)
        use = self._use(annotation, factory, given, named_at)
        if use is None:
            return _FAILED
        filled = self._provided(inside, factory, given)
        parameters = self.parameters(
            inside, factory, keys, values, filled=tuple(filled), other_keys=("type",), partial=use is Use.BIND
        )
        if len(self.problems.found) > before:
            self._explain_call(factory, use, keys, before)
            return _FAILED
        return Blueprint(keys, factory, parameters | filled, use, tuple(filter(is_nominal, classes)))

    def _explain_call(self, factory: Callable[..., Any], use: Use, keys: Keys, since: int) -> None:
        """Say that a function is called, in the problems about parameters that it lacks."""
        if inspect.isclass(factory) or use is Use.BIND:
            return
        hint = "; a function is called now, unless the parameter that takes it is annotated as a Callable"
        for index, problem in enumerate(self.problems.found[since:], since):
            if problem.keys == keys and "needs the parameter" in problem.message:
                self.problems.found[index] = replace(problem, message=problem.message + hint)

    def _use(self, annotation: Any, factory: Callable[..., Any], given: list[str], keys: Keys) -> Use | None:
        """Return whether to call or to bind a class or function. Refuse one that does not fit the annotation."""
        kinds = notes.kinds_of(annotation)
        if not inspect.isclass(factory):
            if Kind.FUNCTION not in kinds:
                return Use.CALL
            known = signature_of(factory)
            if not known.extras and any(name not in known.parameters for name in given):
                return Use.BIND  # it cannot be used at all: `parameters` reports the names that it does not have
            try:
                return use_of(factory, given, notes.arity_of(annotation))
            except ConfigError as error:
                self.problems.refuse(keys, error)
                return None
        elif kinds <= {Kind.OBJECT, Kind.SCALAR, Kind.MAPPING, Kind.CLASS}:
            self._require_instance(factory, notes.classes_in(annotation), keys)
        elif kinds <= {Kind.FUNCTION, Kind.SCALAR, Kind.CLASS} and not is_callable_class(factory):
            self.problems.note(keys, f"expected something to call, but this creates a {factory.__name__}")
        elif kinds <= {Kind.LIST, Kind.SCALAR, Kind.MAPPING, Kind.CLASS} and not _is_iterable(factory):
            self.problems.note(keys, f"expected a list, but this creates a {factory.__name__}; put it into a list")
        return Use.CALL

    def _require_instance(self, factory: type, classes: tuple[type, ...], keys: Keys) -> None:
        try:
            fits = not classes or issubclass(factory, classes)
        except TypeError:  # a protocol cannot always be checked
            return
        if not fits:
            names = " or ".join(cls.__name__ for cls in classes)
            self.problems.note(keys, f"expected a {names}, but this creates a {factory.__name__}")

    def _provided(self, inside: Around, factory: Callable[..., Any], given: list[str]) -> dict[str, Any]:
        """Return the parameters of a sampler that get the dataset of its loader."""
        if inside.slot != "sampler" or "dataset" not in inside.provides:
            return {}
        known = signature_of(factory).parameters
        return {name: Provided("dataset") for name in _DATASET if name in known and name not in given}


def _takes_objects(annotation: Any) -> bool:
    """Return whether a mapping with `type` is an object for this annotation."""
    if notes.keeps_mapping(annotation):
        return False
    # An object can be iterated over as well as a list.
    return bool(notes.kinds_of(annotation) & {Kind.ANY, Kind.OBJECT, Kind.FUNCTION, Kind.LIST})


def _is_iterable(factory: type) -> bool:
    return hasattr(factory, "__iter__") or hasattr(factory, "__getitem__")


def _without_markers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_markers(item) for key, item in value.items() if key != PLAIN}
    return [_without_markers(item) for item in value] if isinstance(value, list) else value


def _hidden(value: Any) -> Any:
    """Return a value with placeholders for its blueprints, so that it can be checked."""
    if isinstance(value, Blueprint):
        return notes.PLACEHOLDER
    if isinstance(value, dict):
        return {key: _hidden(item) for key, item in value.items()}
    return [_hidden(item) for item in value] if isinstance(value, list) else value


def _revealed(converted: Any, value: Any) -> Any:
    """Return a converted value with the blueprints and the references of the original value."""
    if isinstance(value, Blueprint) or (isinstance(value, FromEnvironment) and isinstance(converted, str)):
        return value
    if isinstance(value, dict) and isinstance(converted, dict):
        return {key: _revealed(converted[key], item) for key, item in value.items()}
    if isinstance(value, list) and isinstance(converted, (list, tuple)) and len(value) == len(converted):
        return type(converted)(map(_revealed, converted, value))
    return converted
