"""Config errors that are also of the standard type that users of the original catch."""

from __future__ import annotations

from hookline.errors import ConfigError


class ConfigValueError(ConfigError, ValueError):
    """A config has an invalid value."""


class ConfigTypeError(ConfigError, TypeError):
    """A config has a value of the wrong type."""


class ConfigAttributeError(ConfigError, AttributeError):
    """An attribute does not exist."""


class ConfigKeyError(ConfigError, KeyError):
    """A key or name does not exist."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # a plain KeyError would show the message in quotes
