"""Builds the objects that a config names. If a constructor fails, the error names its position in the config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hookline.common.marks import Keys, refusal
from hookline.config.signature import HOOK_KEYS, Signature, signature_of
from hookline.errors import ConfigError, HooklineError

if TYPE_CHECKING:
    from hookline.config.loading import LoadedConfig
    from hookline.config.names import Resolver


class Maker:
    """Turns the names in a checked config into objects."""

    def __init__(self, loaded: LoadedConfig, resolver: Resolver) -> None:
        self.loaded = loaded
        self.resolver = resolver

    def refusal(self, keys: Keys, message: str) -> ConfigError:
        """Return the error about the value at these keys."""
        return refusal(self.loaded.mark(keys), keys, message)

    def resolve(self, slot: str, name: str | None) -> Callable[..., Any] | None:
        """Return the function or class with this name, or None if there is no name."""
        return None if name is None else self.resolver.resolve(slot, name)

    def build_part(self, slot: str, keys: Keys, value: Any, **built: Any) -> Any:
        """Build the object that a mapping with `type`, or a name alone, describes. `built` are finished parameters."""
        values = value if isinstance(value, Mapping) else {"type": value}
        factory = self.resolver.resolve(slot, values["type"])
        given = {name: item for name, item in values.items() if name != "type" and name not in built}
        parameters = self._convert_parameters(signature_of(factory, tuple(built)), given)
        return self.call(keys, factory, **parameters, **built)

    def call(self, keys: Keys, factory: Callable[..., Any], /, *values: Any, **parameters: Any) -> Any:
        """Call a constructor for the value at these keys, and report a failure with its position."""
        try:
            return factory(*values, **parameters)
        except HooklineError as error:
            raise self.refusal(keys, str(error)) from error
        except Exception as error:
            name = getattr(factory, "__name__", repr(factory))
            # The first line is enough: the original error stays attached, with its traceback.
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise self.refusal(keys, f"{name}(...) failed: {reason}") from error

    def hook_spec(self, keys: Keys, value: Any, default: str | None = None) -> dict[str, Any] | None:
        """Return a hook as a dict for the Runner. Its `type` builds the hook and reports errors with their position."""
        if value is None:
            return None
        values = dict(value) if isinstance(value, Mapping) else {"type": value}
        factory = self.resolver.resolve("hook", values.pop("type", default))
        hook_keys = {key: values.pop(key) for key in HOOK_KEYS if key in values}
        parameters = self._convert_parameters(signature_of(factory), values)

        def make() -> Any:
            try:
                return factory(**parameters)
            except HooklineError as error:
                raise self.refusal(keys, str(error)) from error

        make.__name__ = getattr(factory, "__name__", repr(factory))
        return {"type": make, **hook_keys}

    def _convert_parameters(self, signature: Signature, values: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters, converted to their types. Names of functions and classes are resolved."""
        given = signature.convert(values)
        for name, parameter in signature.parameters.items():
            if parameter.is_name(given.get(name)):
                given[name] = self.resolver.resolve("function", given[name])
        return given
