"""Errors of hookline that are also of the standard type that code written for another system catches."""

from __future__ import annotations

from hookline.errors import ConfigError, HookError


class HookTypeError(HookError, TypeError):
    """Raised when a hook, or an argument of one, has the wrong type."""


class HookValueError(HookError, ValueError):
    """Raised when a hook, a channel or a priority cannot be used where it is registered."""


class HookKeyError(HookError, KeyError):
    """Raised for a channel or a priority that does not exist."""

    __str__ = Exception.__str__  # a KeyError would show its message in quotes


class HookAttributeError(HookError, AttributeError):
    """Raised for a hook argument that does not exist."""


class SettingKeyError(ConfigError, KeyError):
    """Raised for a name or an entry that does not exist."""

    __str__ = Exception.__str__


class SettingAttributeError(ConfigError, AttributeError):
    """Raised for a key of a config, read as an attribute, that does not exist."""


class SettingTypeError(ConfigError, TypeError):
    """Raised for a parameter of the wrong type."""


class SettingValueError(ConfigError, ValueError):
    """Raised for a parameter with an invalid value."""
