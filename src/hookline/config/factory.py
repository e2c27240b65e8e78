"""Making what a config names; a constructor that fails is reported with its place in the config."""

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
    """Names of a checked config -> objects."""

    def __init__(self, loaded: LoadedConfig, resolver: Resolver) -> None:
        self.loaded = loaded
        self.resolver = resolver

    def refusal(self, keys: Keys, message: str) -> ConfigError:
        """The error about the value at these keys."""
        return refusal(self.loaded.mark(keys), keys, message)

    def function(self, slot: str, name: str | None) -> Callable[..., Any] | None:
        """What is named, as it is; None for no name."""
        return None if name is None else self.resolver.resolve(slot, name)

    def part(self, slot: str, keys: Keys, value: Any, **built: Any) -> Any:
        """The object of a mapping with `type` (or of a bare name); `built` are parameters that are objects already."""
        values = value if isinstance(value, Mapping) else {"type": value}
        factory = self.resolver.resolve(slot, values["type"])
        given = {name: item for name, item in values.items() if name != "type" and name not in built}
        parameters = self._parameters(signature_of(factory, tuple(built)), given)
        return self.call(keys, factory, **parameters, **built)

    def call(self, keys: Keys, factory: Callable[..., Any], /, **parameters: Any) -> Any:
        """Call a constructor for the value at these keys."""
        try:
            return factory(**parameters)
        except HooklineError as error:
            raise self.refusal(keys, str(error)) from error
        except Exception as error:
            name = getattr(factory, "__name__", repr(factory))
            # The first line is enough: the error itself, with its traceback, stays attached.
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise self.refusal(keys, f"{name}(...) could not be made: {reason}") from error

    def hook(self, keys: Keys, value: Any, default: str | None = None) -> dict[str, Any] | None:
        """A hook as a dict for the Runner: `type` makes it, and what it refuses is told with its place."""
        if value is None:
            return None
        values = dict(value) if isinstance(value, Mapping) else {"type": value}
        factory = self.resolver.resolve("hook", values.pop("type", default))
        placing = {key: values.pop(key) for key in HOOK_KEYS if key in values}
        parameters = self._parameters(signature_of(factory), values)

        def make() -> Any:
            try:
                return factory(**parameters)
            except HooklineError as error:
                raise self.refusal(keys, str(error)) from error

        make.__name__ = getattr(factory, "__name__", repr(factory))
        return {"type": make, **placing}

    def _parameters(self, signature: Signature, values: dict[str, Any]) -> dict[str, Any]:
        """The parameters as their types say; where one takes a function or a class, what it names."""
        given = signature.converted(values)
        for name, parameter in signature.parameters.items():
            if parameter.is_name(given.get(name)):
                given[name] = self.resolver.resolve("function", given[name])
        return given
