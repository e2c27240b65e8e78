"""Merge one config into another."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from hookline.dialects.mmengine.config.config_dict import DELETE_KEY, ConfigDict, to_config_dicts
from hookline.dialects.mmengine.errors import ConfigKeyError, ConfigTypeError


def merge(over: Mapping[Any, Any], under: Any, allow_list_keys: bool = False, path: str = "") -> Any:
    """Return `under` with `over` merged into it: dicts merge, everything else is replaced.

    A dict with `_delete_=True` replaces the whole value. With `allow_list_keys`, a dict with the keys "0", "1", ...
    changes entries of a list.
    """
    result: Any = copy.copy(under)
    for name, value in over.items():
        if name == DELETE_KEY and path:
            continue
        here = f"{path}.{name}" if path else str(name)
        place: Any = name
        if allow_list_keys and isinstance(result, list):
            place = _position(name, result, here)
        elif not isinstance(result, dict):
            raise ConfigTypeError(f"{path} is a {type(result).__name__}, so '{name}' cannot be set in it")
        exists = isinstance(result, list) or place in result
        if isinstance(value, Mapping) and exists and not value.get(DELETE_KEY, False):
            allowed = (dict, list) if allow_list_keys else dict
            if not isinstance(result[place], allowed):
                raise ConfigTypeError(
                    f"{here} is a dict here, but the value to merge it into is a {type(result[place]).__name__}; "
                    "put _delete_=True into the dict to replace that value"
                )
            result[place] = merge(value, result[place], allow_list_keys, here)
        elif isinstance(value, Mapping) and exists:
            result[place] = ConfigDict({key: each for key, each in value.items() if key != DELETE_KEY})
        else:
            result[place] = to_config_dicts(value)  # a marker stays if there is nothing to replace, as in MMEngine
    return result


def _position(name: Any, items: list[Any], here: str) -> int:
    if not str(name).isdecimal():
        raise ConfigTypeError(f"{here}: list entries are numbered 0, 1, ..., so '{name}' is not one of them")
    if int(name) >= len(items):
        raise ConfigKeyError(f"{here}: the list has only {len(items)} entries")
    return int(name)


def join_bases(bases: list[tuple[str, dict[str, Any]]]) -> ConfigDict:
    """Join several base configs into one; refuse a name that two of them define."""
    result = ConfigDict()
    origin: dict[str, str] = {}
    for where, base in bases:
        for name, value in base.items():
            if name in result:
                raise ConfigKeyError(
                    f"two bases, {origin[name]} and {where}, both define '{name}'; only one of them may define it"
                )
            result[name], origin[name] = to_config_dicts(value), where
    return result


def unfold(options: Mapping[str, Any]) -> dict[str, Any]:
    """Turn options with dotted names (`model.depth`) into nested dicts."""
    result: dict[str, Any] = {}
    for full, value in options.items():
        *parents, last = str(full).split(".")
        place = result
        for name in parents:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise ConfigTypeError(f"the options set both '{name}' and an entry inside it: '{full}'")
        place[last] = value
    return result
