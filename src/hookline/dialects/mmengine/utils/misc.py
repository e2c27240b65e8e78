"""Small helper functions that hooks and models use."""

from __future__ import annotations

import functools
import importlib
import itertools
import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Any, TypeVar, cast

from hookline.common.import_rules import check_import
from hookline.dialects.exports import export_defined
from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("hookline")


class MissingModuleError(ConfigError, ImportError):
    """A module that a config names cannot be imported."""


def to_ntuple(n: int) -> Callable[[Any], Any]:
    """Return a function that repeats a value into a tuple of length n, and returns an iterable unchanged."""

    def parse(x: Any) -> Any:
        return x if isinstance(x, Iterable) else tuple(itertools.repeat(x, n))

    return parse


to_1tuple = to_ntuple(1)
to_2tuple = to_ntuple(2)
to_3tuple = to_ntuple(3)
to_4tuple = to_ntuple(4)


def is_str(x: Any) -> bool:
    """Return whether it is a string."""
    return isinstance(x, str)


def is_seq_of(seq: Any, expected_type: Any, seq_type: Any = None) -> bool:
    """Return whether it is a sequence whose items all have a type."""
    return isinstance(seq, Sequence if seq_type is None else seq_type) and all(
        isinstance(item, expected_type) for item in seq
    )


def is_list_of(seq: Any, expected_type: Any) -> bool:
    """Return whether it is a list whose items all have a type."""
    return is_seq_of(seq, expected_type, list)


def is_tuple_of(seq: Any, expected_type: Any) -> bool:
    """Return whether it is a tuple whose items all have a type."""
    return is_seq_of(seq, expected_type, tuple)


def iter_cast(inputs: Iterable[Any], dst_type: Any, return_type: Any = None) -> Any:
    """Convert the items to another type; collect them in a `return_type`, if one is given."""
    if not isinstance(inputs, Iterable) or not isinstance(dst_type, type):
        raise ConfigTypeError(f"iter_cast takes an iterable and a type, not {inputs!r} and {dst_type!r}")
    cast_items = map(dst_type, inputs)
    return cast_items if return_type is None else return_type(cast_items)


def list_cast(inputs: Iterable[Any], dst_type: Any) -> list[Any]:
    """Return a list of the items, converted to another type."""
    return list(iter_cast(inputs, dst_type))


def tuple_cast(inputs: Iterable[Any], dst_type: Any) -> tuple[Any, ...]:
    """Return a tuple of the items, converted to another type."""
    return tuple(iter_cast(inputs, dst_type))


def slice_list(in_list: list[Any], lens: int | list[int]) -> list[list[Any]]:
    """Split a list into parts of the given lengths."""
    if isinstance(lens, int):
        lens = [lens] * (len(in_list) // lens)
    if not isinstance(lens, list):
        raise ConfigTypeError(f"lens must be a number or a list of numbers, not {lens!r}")
    if sum(lens) != len(in_list):
        raise ConfigValueError(f"the parts must have {len(in_list)} items in total, as the list has, not {sum(lens)}")
    items = iter(in_list)
    return [list(itertools.islice(items, length)) for length in lens]


def concat_list(in_list: list[list[Any]]) -> list[Any]:
    """Join several lists into one."""
    return list(itertools.chain(*in_list))


def apply_to(data: Any, expr: Callable[[Any], bool], apply_func: Callable[[Any], Any]) -> Any:
    """Return the data with a function applied to every value that `expr` selects, at any depth of dicts and lists."""
    if isinstance(data, dict):
        return type(data)({key: apply_to(value, expr, apply_func) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(apply_to(value, expr, apply_func) for value in data))
    if isinstance(data, (tuple, list)):
        return type(data)(apply_to(value, expr, apply_func) for value in data)
    return apply_func(data) if expr(data) else data


def import_modules_from_strings(imports: str | Sequence[str], allow_failed_imports: bool = False) -> Any:
    """Import one or several modules; with `allow_failed_imports`, a module that fails becomes None."""
    if not imports:
        return None
    if isinstance(imports, str):
        return _import(imports, allow_failed_imports)
    if not is_seq_of(imports, str):
        raise ConfigTypeError(f"imports must be names of modules, not {imports!r}")
    return [_import(name, allow_failed_imports) for name in imports]


def _import(name: str, may_fail: bool) -> Any:
    check_import(name)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if not may_fail:
            raise MissingModuleError(f"the module '{name}' cannot be imported: {error}") from error
        log.warning("the module '%s' cannot be imported and is skipped: %s", name, error)
        return None


def get_object_from_string(obj_name: str) -> Any:
    """Return the object of a dotted name: a module, or something in one. None if there is no such module."""
    parts = obj_name.split(".")
    check_import(parts[0])
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = getattr(found, name)
        return found
    return None


def is_method_overridden(method: str, base_class: type[Any], derived_class: Any) -> bool:
    """Return whether a class, or the class of an object, overrides a method of the base class."""
    if not isinstance(base_class, type):
        raise ConfigTypeError(f"base_class must be a class, not {base_class!r}")
    derived = derived_class if isinstance(derived_class, type) else type(derived_class)
    return getattr(derived, method) is not getattr(base_class, method)


def has_method(obj: object, method: str) -> bool:
    """Return whether an object has a method of this name."""
    return callable(getattr(obj, method, None))


def check_prerequisites(
    prerequisites: str | Sequence[str],
    checker: Callable[[str], bool],
    msg_tmpl: str = "{} is required by {}, but is not installed",
) -> Callable[[F], F]:
    """Return a decorator that makes a function raise an error while something it needs is missing."""
    needed = [prerequisites] if isinstance(prerequisites, str) else list(prerequisites)

    def wrap(function: F) -> F:
        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            missing = [name for name in needed if not checker(name)]
            if missing:
                raise ConfigError(msg_tmpl.format(", ".join(missing), function.__name__))
            return function(*args, **kwargs)

        return cast("F", checked)

    return wrap


def requires_package(prerequisites: str | Sequence[str]) -> Callable[[F], F]:
    """Return a decorator that makes a function raise an error while packages it needs are missing."""
    return check_prerequisites(prerequisites, lambda name: find_spec(name.partition(".")[0]) is not None)


def requires_executable(prerequisites: str | Sequence[str]) -> Callable[[F], F]:
    """Return a decorator that makes a function raise an error while programs it needs are missing."""
    return check_prerequisites(prerequisites, lambda name: shutil.which(name) is not None)


def deprecated_api_warning(name_dict: dict[str, str], cls_name: str | None = None) -> Callable[[F], F]:
    """Return a decorator that lets a function take old names of its parameters, with a warning."""

    def wrap(function: F) -> F:
        who = f"{cls_name}.{function.__name__}" if cls_name else function.__name__

        @functools.wraps(function)
        def renamed(*args: Any, **kwargs: Any) -> Any:
            for old, new in name_dict.items():
                if old in kwargs:
                    if new in kwargs:
                        raise ConfigValueError(f"{who}: '{old}' is the old name of '{new}'; pass only one of them")
                    log.warning("%s: '%s' is the old name of '%s'; use the new one", who, old, new)
                    kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return cast("F", renamed)

    return wrap


def deprecated_function(since: str, removed_in: str, instructions: str) -> Callable[[F], F]:
    """Return a decorator that makes a function warn, when called, that it will be removed."""

    def wrap(function: F) -> F:
        @functools.wraps(function)
        def deprecated(*args: Any, **kwargs: Any) -> Any:
            log.warning(
                "%s is deprecated since %s and will be removed in %s: %s",
                function.__name__,
                since,
                removed_in,
                instructions,
            )
            return function(*args, **kwargs)

        return cast("F", deprecated)

    return wrap


export_defined(globals())
