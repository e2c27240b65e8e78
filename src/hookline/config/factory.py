"""Builds the objects that a config names. If a constructor fails, the error names its position in the config."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hookline.common.environment import FromEnvironment
from hookline.common.import_rules import import_rules
from hookline.common.marks import Keys, refusal, refuse_all
from hookline.config.blueprints import Around, Blueprint, Drafter, Provided
from hookline.config.functions import Use, call
from hookline.config.slots import HOOK_KEYS
from hookline.errors import ConfigError, HooklineError

if TYPE_CHECKING:
    from hookline.config.loading import LoadedConfig
    from hookline.config.names import Resolver


class Maker:
    """Turns the names in a checked config into objects: it drafts blueprints, as the check did, and builds them."""

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
        names = tuple(built)
        blueprint = self.draft(lambda drafter: drafter.part(slot, keys, value, other_keys=names, provides=names))
        return self.build(blueprint, built, **built)

    def build_parameters(
        self, slot: str, keys: Keys, factory: Callable[..., Any], values: Mapping[str, Any], **options: Any
    ) -> dict[str, Any]:
        """Build the parameters of a class or function. `options` are the options of `Drafter.parameters`."""
        found = self.draft(lambda drafter: drafter.parameters(Around(slot), factory, keys, values, **options))
        return {name: self._build_value(value, {}) for name, value in found.items()}

    def draft(self, read: Callable[[Drafter], Any]) -> Any:
        """Return what the function reads with a new drafter. Refuse its problems; a checked config has none."""
        drafter = Drafter(self.resolver)
        result = read(drafter)
        problems = drafter.problems.all()
        refuse_all(self.loaded.title, [(self.loaded.mark(problem.keys), problem) for problem in problems])
        return result

    def build(self, blueprint: Blueprint, provided: Mapping[str, Any] | None = None, **built: Any) -> Any:
        """Build an object, its parameters first. `built` are further parameters; nested objects may use `provided`."""
        inner = {name: self._build_value(value, provided or {}) for name, value in blueprint.parameters.items()}
        inner |= built
        if blueprint.use is Use.BIND:
            return functools.partial(blueprint.factory, **inner) if inner else blueprint.factory
        made = self.call(blueprint.keys, blueprint.factory, **inner)
        if blueprint.classes and not isinstance(made, blueprint.classes):
            names = " or ".join(found.__name__ for found in blueprint.classes)
            raise self.refusal(blueprint.keys, f"expected a {names}, but this creates a {type(made).__name__}")
        return made

    def _build_value(self, value: Any, provided: Mapping[str, Any]) -> Any:
        if isinstance(value, Blueprint):
            return self.build(value, provided)
        if isinstance(value, Provided):
            return provided[value.name]
        if isinstance(value, dict):
            return {key: self._build_value(item, provided) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._build_value(item, provided) for item in value)
        return str(value) if isinstance(value, FromEnvironment) else value

    def call(self, keys: Keys, factory: Callable[..., Any], /, *values: Any, **parameters: Any) -> Any:
        """Call a constructor for the value at these keys, and report a failure with its position."""
        try:
            return factory(*values, **parameters) if values else call(factory, parameters)
        except HooklineError as error:
            raise self.refusal(keys, str(error)) from error
        except Exception as error:
            name = getattr(factory, "__name__", repr(factory))
            # The first line is enough: the original error stays attached, with its traceback.
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            overrides = "".join(f" ({each})" for each in self.loaded.overrides_inside(keys))
            raise self.refusal(keys, f"{name}(...) failed: {reason}{overrides}") from error

    def hook_spec(self, keys: Keys, value: Any, default: str | None = None) -> dict[str, Any] | None:
        """Return a hook as a dict for the Runner. Its `type` builds the hook and reports errors with their position."""
        if value is None:
            return None
        values = dict(value) if isinstance(value, Mapping) else {"type": value}
        factory = self.resolver.resolve("hook", values.pop("type", default))
        hook_keys = {key: values.pop(key) for key in HOOK_KEYS if key in values}
        parameters = self.draft(lambda drafter: drafter.parameters(Around("hook"), factory, keys, values))

        def make() -> Any:
            try:
                with import_rules(self.resolver.modules.judge):
                    return call(factory, {name: self._build_value(item, {}) for name, item in parameters.items()})
            except HooklineError as error:
                raise self.refusal(keys, str(error)) from error

        make.__name__ = getattr(factory, "__name__", repr(factory))
        make.parameters = parameters  # type: ignore[attr-defined]  # a function accepts new attributes
        return {"type": make, **hook_keys}
