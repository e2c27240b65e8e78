"""Small functions that hooks and models use."""

from __future__ import annotations

import functools
import importlib
import itertools
import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Any, TypeVar, cast

from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("hookline")


class MissingModuleError(ConfigError, ImportError):
    """A module that a config names cannot be imported."""


def to_ntuple(n: int) -> Callable[[Any], Any]:
    """A function that makes a tuple of n out of one value, and leaves an iterable as it is."""

    def parse(x: Any) -> Any:
        return x if isinstance(x, Iterable) else tuple(itertools.repeat(x, n))

    return parse


to_1tuple = to_ntuple(1)
to_2tuple = to_ntuple(2)
to_3tuple = to_ntuple(3)
to_4tuple = to_ntuple(4)


def is_str(x: Any) -> bool:
    """Whether it is a string."""
    return isinstance(x, str)


def is_seq_of(seq: Any, expected_type: Any, seq_type: Any = None) -> bool:
    """Whether it is a sequence whose items are all of a type."""
    return isinstance(seq, Sequence if seq_type is None else seq_type) and all(
        isinstance(item, expected_type) for item in seq
    )


def is_list_of(seq: Any, expected_type: Any) -> bool:
    """Whether it is a list whose items are all of a type."""
    return is_seq_of(seq, expected_type, list)


def is_tuple_of(seq: Any, expected_type: Any) -> bool:
    """Whether it is a tuple whose items are all of a type."""
    return is_seq_of(seq, expected_type, tuple)


def iter_cast(inputs: Iterable[Any], dst_type: Any, return_type: Any = None) -> Any:
    """The items as another type; all of them in a `return_type`, if that is given."""
    if not isinstance(inputs, Iterable) or not isinstance(dst_type, type):
        raise ConfigTypeError(f"iter_cast takes an iterable and a type, not {inputs!r} and {dst_type!r}")
    cast_items = map(dst_type, inputs)
    return cast_items if return_type is None else return_type(cast_items)


def list_cast(inputs: Iterable[Any], dst_type: Any) -> list[Any]:
    """A list of the items as another type."""
    return list(iter_cast(inputs, dst_type))


def tuple_cast(inputs: Iterable[Any], dst_type: Any) -> tuple[Any, ...]:
    """A tuple of the items as another type."""
    return tuple(iter_cast(inputs, dst_type))


def slice_list(in_list: list[Any], lens: int | list[int]) -> list[list[Any]]:
    """A list in parts of the given lengths."""
    if isinstance(lens, int):
        lens = [lens] * (len(in_list) // lens)
    if not isinstance(lens, list):
        raise ConfigTypeError(f"lens is a number or a list of numbers, not {lens!r}")
    if sum(lens) != len(in_list):
        raise ConfigValueError(f"the parts have {sum(lens)} items together, and the list has {len(in_list)}")
    items = iter(in_list)
    return [list(itertools.islice(items, length)) for length in lens]


def concat_list(in_list: list[list[Any]]) -> list[Any]:
    """One list out of several."""
    return list(itertools.chain(*in_list))


def apply_to(data: Any, expr: Callable[[Any], bool], apply_func: Callable[[Any], Any]) -> Any:
    """The same data with a function applied to what an expression chooses, however deep in dicts and lists."""
    if isinstance(data, dict):
        return type(data)({key: apply_to(value, expr, apply_func) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(apply_to(value, expr, apply_func) for value in data))
    if isinstance(data, (tuple, list)):
        return type(data)(apply_to(value, expr, apply_func) for value in data)
    return apply_func(data) if expr(data) else data


def import_modules_from_strings(imports: str | Sequence[str], allow_failed_imports: bool = False) -> Any:
    """Import a module, or several; one that fails gives None where that is allowed."""
    if not imports:
        return None
    if isinstance(imports, str):
        return _imported(imports, allow_failed_imports)
    if not is_seq_of(imports, str):
        raise ConfigTypeError(f"imports are names of modules, not {imports!r}")
    return [_imported(name, allow_failed_imports) for name in imports]


def _imported(name: str, may_fail: bool) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if not may_fail:
            raise MissingModuleError(f"the module '{name}' cannot be imported: {error}") from error
        log.warning("the module '%s' cannot be imported, and is left out: %s", name, error)
        return None


def get_object_from_string(obj_name: str) -> Any:
    """What a dotted name means: a module, or something in one."""
    parts = obj_name.split(".")
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
    """Whether a class, or the class of an object, has a method of its own instead of the base's."""
    if not isinstance(base_class, type):
        raise ConfigTypeError(f"base_class is a class, not {base_class!r}")
    derived = derived_class if isinstance(derived_class, type) else type(derived_class)
    return getattr(derived, method) is not getattr(base_class, method)


def has_method(obj: object, method: str) -> bool:
    """Whether an object has a method of this name."""
    return callable(getattr(obj, method, None))


def check_prerequisites(
    prerequisites: str | Sequence[str],
    checker: Callable[[str], bool],
    msg_tmpl: str = "{} is needed for {}, and is not installed",
) -> Callable[[F], F]:
    """Makes a function refuse to work while something that it needs is not there."""
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
    """Makes a function refuse to work without some packages."""
    return check_prerequisites(prerequisites, lambda name: find_spec(name.partition(".")[0]) is not None)


def requires_executable(prerequisites: str | Sequence[str]) -> Callable[[F], F]:
    """Makes a function refuse to work without some programs."""
    return check_prerequisites(prerequisites, lambda name: shutil.which(name) is not None)


def deprecated_api_warning(name_dict: dict[str, str], cls_name: str | None = None) -> Callable[[F], F]:
    """Makes a function take old names of its parameters, which is said."""

    def wrap(function: F) -> F:
        who = f"{cls_name}.{function.__name__}" if cls_name else function.__name__

        @functools.wraps(function)
        def renamed(*args: Any, **kwargs: Any) -> Any:
            for old, new in name_dict.items():
                if old in kwargs:
                    if new in kwargs:
                        raise ConfigValueError(f"{who}: '{old}' is an older name of '{new}'; give just one of them")
                    log.warning("%s: '%s' is an older name of '%s'", who, old, new)
                    kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return cast("F", renamed)

    return wrap


def deprecated_function(since: str, removed_in: str, instructions: str) -> Callable[[F], F]:
    """Makes a function say, when it is called, that it is going to be removed."""

    def wrap(function: F) -> F:
        @functools.wraps(function)
        def said(*args: Any, **kwargs: Any) -> Any:
            log.warning("%s was given up in %s and goes in %s: %s", function.__name__, since, removed_in, instructions)
            return function(*args, **kwargs)

        return cast("F", said)

    return wrap
