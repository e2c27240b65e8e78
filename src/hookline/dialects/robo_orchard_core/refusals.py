"""Refusals that are also of the standard type which code written for the original catches."""

from __future__ import annotations

from hookline.errors import ConfigError, HookError


class HookTypeError(HookError, TypeError):
    """Something of the wrong kind where a hook belongs."""


class HookValueError(HookError, ValueError):
    """A hook that cannot be used where it is put."""


class HookKeyError(HookError, KeyError):
    """A channel that there is not."""

    __str__ = Exception.__str__  # a KeyError would put its message into quotes


class HookAttributeError(HookError, AttributeError):
    """An argument of hooks that there is not."""


class SettingTypeError(ConfigError, TypeError):
    """A parameter of the wrong kind."""


class SettingValueError(ConfigError, ValueError):
    """A parameter with a value that cannot be right."""
