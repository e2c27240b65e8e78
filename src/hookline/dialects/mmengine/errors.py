"""Config errors that are also of the standard type that users of the original catch."""

from __future__ import annotations

from hookline.errors import ConfigError


class RefusedError(ConfigError, AssertionError):
    """Something is refused. The original often uses `assert` for this, so callers may catch an AssertionError."""


class ConfigValueError(RefusedError, ValueError):
    """A config has an invalid value."""


class ConfigTypeError(RefusedError, TypeError):
    """A config has a value of the wrong type."""


class NotDescribedError(ConfigValueError, RuntimeError):
    """The config does not describe what is started or built, or describes it twice: the original's RuntimeError."""


class WrongParameterError(ConfigValueError, ConfigTypeError):
    """A parameter of a native part is refused, because of its value or its type: the native error does not tell."""


class ConfigAttributeError(ConfigError, AttributeError):
    """An attribute does not exist."""


class ConfigKeyError(RefusedError, KeyError):
    """A key or name does not exist."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # a plain KeyError would show the message in quotes
