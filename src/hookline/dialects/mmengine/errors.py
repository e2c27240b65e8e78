"""Refusals that are also of the standard type which users of the original catch."""

from __future__ import annotations

from hookline.errors import ConfigError


class ConfigValueError(ConfigError, ValueError):
    """A value that cannot be meant."""


class ConfigTypeError(ConfigError, TypeError):
    """A value of another kind than expected."""


class ConfigAttributeError(ConfigError, AttributeError):
    """An attribute that is not there."""


class ConfigKeyError(ConfigError, KeyError):
    """A name that is not there."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # a plain KeyError would show the message in quotes
