"""How one config goes over another."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from hookline.dialects.mmengine.config.config_dict import ConfigDict, converted
from hookline.dialects.mmengine.errors import ConfigKeyError, ConfigTypeError

DELETE = "_delete_"


def merged(over: Mapping[Any, Any], under: Any, allow_list_keys: bool = False, path: str = "") -> Any:
    """`over` on top of `under`: dicts merge, everything else is replaced; `_delete_=True` in a dict replaces it.

    With `allow_list_keys`, a dict with the keys "0", "1", ... changes entries of a list.
    """
    result: Any = copy.copy(under)
    for name, value in over.items():
        if name == DELETE:
            continue
        here = f"{path}.{name}" if path else str(name)
        place: Any = name
        if allow_list_keys and isinstance(result, list):
            place = _position(name, result, here)
        elif not isinstance(result, dict):
            raise ConfigTypeError(f"{path} is a {type(result).__name__}, so '{name}' cannot be set in it")
        has = isinstance(result, list) or place in result
        if isinstance(value, Mapping) and has and not value.get(DELETE, False):
            allowed = (dict, list) if allow_list_keys else dict
            if not isinstance(result[place], allowed):
                raise ConfigTypeError(
                    f"{here} is a dict here and a {type(result[place]).__name__} in what it goes over; "
                    "put _delete_=True into the dict to replace it"
                )
            result[place] = merged(value, result[place], allow_list_keys, here)
        else:
            result[place] = without_markers(value)
    return result


def _position(name: Any, items: list[Any], here: str) -> int:
    if not str(name).isdecimal():
        raise ConfigTypeError(f"{here}: the entries of a list are called 0, 1, ..., not '{name}'")
    if int(name) >= len(items):
        raise ConfigKeyError(f"{here}: the list has only {len(items)} entries")
    return int(name)


def without_markers(value: Any) -> Any:
    """A value without the `_delete_` in it."""
    if isinstance(value, Mapping):
        return ConfigDict({name: without_markers(inner) for name, inner in value.items() if name != DELETE})
    if type(value) in (list, tuple):
        return type(value)(without_markers(each) for each in value)
    return value


def joined(bases: list[tuple[str, dict[str, Any]]]) -> ConfigDict:
    """Several bases as one; a name that two of them have is refused."""
    result = ConfigDict()
    origin: dict[str, str] = {}
    for where, base in bases:
        for name, value in base.items():
            if name in result:
                raise ConfigKeyError(f"'{name}' stands in two bases, {origin[name]} and {where}; only one may have it")
            result[name], origin[name] = converted(value), where
    return result


def unfolded(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with dotted names (`model.depth`) as dicts in dicts."""
    result: dict[str, Any] = {}
    for full, value in options.items():
        *parents, last = str(full).split(".")
        place = result
        for name in parents:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise ConfigTypeError(f"the options set both '{name}' and something in it: '{full}'")
        place[last] = value
    return result
