"""Errors of hookline that are also of the standard type that code written for the original catches."""

from __future__ import annotations

from hookline.errors import ConfigError, HookError


class HookTypeError(HookError, TypeError):
    """Raised when a hook is expected and an object of another type is given."""


class HookValueError(HookError, ValueError):
    """Raised when a hook or a channel cannot be used where it is registered."""


class HookKeyError(HookError, KeyError):
    """Raised for a channel that does not exist."""

    __str__ = Exception.__str__  # a KeyError would show its message in quotes


class HookAttributeError(HookError, AttributeError):
    """Raised for a hook argument that does not exist."""


class SettingTypeError(ConfigError, TypeError):
    """Raised for a parameter of the wrong type."""


class SettingValueError(ConfigError, ValueError):
    """Raised for a parameter with an invalid value."""
