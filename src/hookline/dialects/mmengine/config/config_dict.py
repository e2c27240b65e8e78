"""ConfigDict: a dict whose entries are also attributes."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Self

from hookline.dialects.mmengine.errors import ConfigAttributeError, ConfigKeyError
from hookline.errors import did_you_mean


class ConfigDict(dict[Any, Any]):
    """A dict with `cfg.model.depth` for `cfg["model"]["depth"]`. Dicts that are put into it become ConfigDicts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.update(*args, **kwargs)

    def __setitem__(self, name: Any, value: Any) -> None:
        super().__setitem__(name, to_config_dicts(value))

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add entries; an entry replaces an earlier one of the same name."""
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

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
        self[name] = value

    def __delattr__(self, name: str) -> None:
        if name not in self:
            raise ConfigAttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        del self[name]

    @classmethod
    def fromkeys(cls, names: Iterable[Any], value: Any = None) -> Self:
        """Create a ConfigDict with the same value under every name."""
        return cls(dict.fromkeys(names, value))

    def __or__(self, other: Mapping[Any, Any]) -> Self:
        return type(self)({**self, **other})

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
