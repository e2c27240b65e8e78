"""ConfigDict: a dict whose entries are also attributes."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Self

from hookline.dialects.mmengine.errors import ConfigAttributeError, ConfigKeyError
from hookline.errors import did_you_mean

#: The key that makes a dict replace the one that it would be merged into.
DELETE_KEY = "_delete_"


class ConfigDict(dict[Any, Any]):
    """A dict with `cfg.model.depth` for `cfg["model"]["depth"]`. Dicts that are put into it become ConfigDicts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.update(*args, **kwargs)

    def __setitem__(self, name: Any, value: Any) -> None:
        super().__setitem__(name, to_config_dicts(value))

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add entries: a dict is merged into an earlier dict of the same name, anything else replaces the entry."""
        for name, value in dict(*args, **kwargs).items():
            earlier = self.get(name)
            if isinstance(earlier, ConfigDict) and isinstance(value, dict):
                earlier.update(value)
            else:
                self[name] = value

    def merge(self, other: Mapping[Any, Any]) -> None:
        """Merge entries like a config into its base: a dict with `_delete_=True` replaces an earlier one."""
        merged = _merged(other, copy.deepcopy(self))
        self.clear()
        self.update(merged)

    def pop(self, name: Any, default: Any = None) -> Any:
        """Remove an entry and return it; if it is missing, return the default."""
        return super().pop(name, default)

    def setdefault(self, name: Any, default: Any = None) -> Any:
        """Return the entry; if it is missing, add the default."""
        if name not in self:
            self[name] = default
        return self[name]

    def __missing__(self, name: Any) -> Any:
        raise ConfigKeyError(f"the config has no '{name}' here; {did_you_mean(str(name), map(str, self))}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self:
            raise ConfigAttributeError(
                f"'{type(self).__name__}' object has no attribute '{name}'; {did_you_mean(name, map(str, self))}"
            )
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(type(self), name):
            raise ConfigAttributeError(
                f"'{name}' is a method of '{type(self).__name__}', so it cannot be set as an attribute; "
                f"set the entry as ['{name}']"
            )
        self[name] = value

    def __delattr__(self, name: str) -> None:
        if name not in self:
            raise ConfigAttributeError(
                f"'{type(self).__name__}' object has no attribute '{name}'; {did_you_mean(name, map(str, self))}"
            )
        del self[name]

    @classmethod
    def fromkeys(cls, names: Iterable[Any], value: Any = None) -> Self:
        """Create a ConfigDict with the same value under every name."""
        return cls(dict.fromkeys(names, value))

    def __or__(self, other: Mapping[Any, Any]) -> Self:
        merged = copy.deepcopy(self)
        merged.update(other)
        return merged

    def __ror__(self, other: Mapping[Any, Any]) -> Self:
        return type(self)(other) | self

    def __ior__(self, other: Any) -> Self:  # type: ignore[misc]  # dict has several forms of it
        self.update(other)
        return self

    def copy(self) -> Self:
        """Return a shallow copy."""
        other = type(self)()
        for name, value in self.items():
            dict.__setitem__(other, name, value)
        return other

    __copy__ = copy

    def deepcopy(self) -> Self:
        """Return a copy that shares nothing with this one."""
        return copy.deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        other = type(self)()
        memo[id(self)] = other
        for name, value in self.items():
            dict.__setitem__(other, name, copy.deepcopy(value, memo))
        return other

    def __reduce__(self) -> Any:
        return type(self), (), None, None, iter(self.items())

    def to_dict(self) -> dict[Any, Any]:
        """Return the same content as plain dicts."""
        plain: dict[Any, Any] = to_plain_dicts(self)
        return plain


def _merged(over: Any, under: Any) -> Any:
    if not isinstance(over, Mapping):
        return over
    kept = {} if over.get(DELETE_KEY, False) or not isinstance(under, Mapping) else under
    return {**kept, **{name: _merged(value, kept.get(name)) for name, value in over.items() if name != DELETE_KEY}}


def to_config_dicts(value: Any) -> Any:
    """Return a value with all plain dicts in it converted to ConfigDicts."""
    if isinstance(value, dict) and not isinstance(value, ConfigDict):
        return ConfigDict(value)
    if type(value) in (list, tuple):
        return type(value)(to_config_dicts(each) for each in value)
    return value


def to_plain_dicts(value: Any) -> Any:
    """Return a value with all ConfigDicts in it converted to plain dicts."""
    if isinstance(value, dict):
        return {name: to_plain_dicts(inner) for name, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(to_plain_dicts(each) for each in value)
    return value
