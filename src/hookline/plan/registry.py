"""Registries of names and their classes, so that YAML can say `type: EMAHook`.

A registry has three sources of names: classes registered by a decorator, hookline's own classes (imported when they
are first needed), and classes that installed packages provide through an entry point group.

    @HOOKS.register()
    class MyHook(Hook): ...

    HOOKS.get("MyHook")
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar, overload

from hookline.errors import ConfigError, did_you_mean
from hookline.plan.known_elsewhere import HOOKS_ELSEWHERE, WRITERS_ELSEWHERE

T = TypeVar("T", bound=Callable[..., Any])


class Registry:
    """The names that are valid in one place of a config."""

    def __init__(
        self,
        kind: str,
        *,
        builtin: Mapping[str, str] | Callable[[], Mapping[str, str]] | None = None,
        group: str | None = None,
        elsewhere: Mapping[str, str] | None = None,
    ) -> None:
        """Create a registry.

        Args:
            kind: The word for an item in messages, such as `hook`.
            builtin: Name -> `module:attribute`, or a function that returns this mapping when it is first needed.
            group: The entry point group of installed packages.
            elsewhere: Names that people know from other libraries -> what to use here, for messages.
        """
        self.kind = kind
        self._find_builtin = builtin if callable(builtin) else lambda: builtin or {}
        self._group = group
        self.elsewhere = elsewhere or {}
        self._registered: dict[str, Callable[..., Any]] = {}

    @cached_property
    def builtin(self) -> dict[str, str]:
        """Return hookline's own items: name -> `module:attribute`."""
        return dict(self._find_builtin())

    @cached_property
    def _plugins(self) -> dict[str, EntryPoint]:
        if self._group is None:
            return {}
        return {entry.name: entry for entry in entry_points(group=self._group)}

    @overload
    def register(self, item: T, /) -> T: ...
    @overload
    def register(self, name: str | None = None, *, force: bool = False) -> Callable[[T], T]: ...

    def register(self, name: Any = None, *, force: bool = False) -> Any:
        """Register a class or function: `@R.register`, `@R.register()` or `@R.register("name")`.

        A name that is already taken is refused, unless `force=True` replaces it. Registering the same definition
        again is fine: this happens when a notebook cell or a module runs twice.
        """
        if name is not None and not isinstance(name, str):
            return self._add(name.__name__, name, force)

        def decorate(item: T) -> T:
            return self._add(name or item.__name__, item, force)

        return decorate

    register_module = register

    def _add(self, name: str, item: T, force: bool) -> T:
        if self._holds(name) and not force and not self._same_definition(name, item):
            raise ConfigError(
                f"the {self.kind} name '{name}' is taken by {self.origin(name)}; "
                f"choose another name, or replace it with register('{name}', force=True)"
            )
        self._registered[name] = item
        return item

    def _same_definition(self, name: str, item: Callable[..., Any]) -> bool:
        where = (item.__module__, item.__qualname__)
        old = self._registered.get(name)
        if old is not None:
            return (old.__module__, old.__qualname__) == where
        return self.builtin.get(name) == f"{where[0]}:{where[1]}"

    def get(self, name: str) -> Callable[..., Any]:
        """Return the item with this name. For an unknown name, the error suggests the closest one."""
        if name in self._registered:
            return self._registered[name]
        if name in self.builtin:
            module, _, attribute = self.builtin[name].partition(":")
            item: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
            return item
        if name in self._plugins:
            return self._load_plugin(name)
        raise ConfigError(f"unknown {self.kind} '{name}'; {self.elsewhere.get(name) or did_you_mean(name, self)}")

    def _load_plugin(self, name: str) -> Callable[..., Any]:
        entry = self._plugins[name]
        try:
            item = entry.load()
        except Exception as error:
            raise ConfigError(f"the {self.kind} '{name}' from {self.origin(name)} cannot be loaded: {error}") from error
        if not inspect.isclass(item):
            raise ConfigError(f"the {self.kind} '{name}' from {self.origin(name)} must be a class, not {item!r}")
        self._registered[name] = item
        return item

    def origin(self, name: str) -> str:
        """Return where a name comes from, for people: `hookline`, a module, or a package and its entry point."""
        if name in self._registered and name not in self._plugins:
            module: str = self._registered[name].__module__
            return module
        if name in self.builtin:
            return "hookline"
        entry = self._plugins[name]
        package = entry.dist.name if entry.dist is not None else "an installed package"
        return f"{package} ({entry.value})"

    def _holds(self, name: object) -> bool:
        return name in self._registered or name in self.builtin or name in self._plugins

    def __contains__(self, name: object) -> bool:
        return self._holds(name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._registered, *self.builtin, *self._plugins}))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _built_in_hooks() -> dict[str, str]:
    """Find the hooks in `hooks/` by reading its files, so that a new hook is one new file."""
    return {name: f"hookline.hooks.{module}:{name}" for module, name in _classes_in("hooks", "Hook")}


def _built_in_writers() -> dict[str, str]:
    """Find the writers in `writers/`: `jsonl` is the class JsonlWriter in `jsonl.py`."""
    return {
        module: f"hookline.writers.{module}:{name}"
        for module, name in _classes_in("writers", "Writer")
        if name.lower() == f"{module}writer"
    }


def _classes_in(package: str, ending: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of each public class with this ending, without importing anything."""
    for path in sorted((Path(__file__).parents[1] / package).glob("[a-z]*.py")):
        for name in re.findall(rf"^class ([A-Za-z]\w*{ending})\b", path.read_text(encoding="utf-8"), re.MULTILINE):
            yield path.stem, name


HOOKS = Registry("hook", builtin=_built_in_hooks, group="hookline.hooks", elsewhere=HOOKS_ELSEWHERE)
# The hooks that every run has, by their key in `default_hooks`.
DEFAULT_HOOKS = {
    "runtime_info": "RuntimeInfoHook",
    "timer": "IterTimerHook",
    "sampler_seed": "DistSamplerSeedHook",
    "logger": "LoggerHook",
    "param_scheduler": "ParamSchedulerHook",
    "checkpoint": "CheckpointHook",
    "report": "ReportHook",
}
WRITERS = Registry("writer", builtin=_built_in_writers, group="hookline.writers", elsewhere=WRITERS_ELSEWHERE)
MODELS = Registry("model", builtin={"DigitsNet": "hookline.data.digits:DigitsNet"})
DATASETS = Registry("dataset", builtin={"Digits": "hookline.data.digits:Digits"})
METRICS = Registry("metric", builtin={"accuracy": "hookline.engine.metrics:accuracy"})
STEPS = Registry(
    "step",
    builtin={"cross_entropy": "hookline.engine.steps:cross_entropy", "predict": "hookline.engine.steps:predict"},
)
SCHEDULERS = Registry(
    "scheduler",
    builtin={
        "constant": "hookline.optim.schedules:Constant",
        "cosine": "hookline.optim.schedules:Cosine",
        "linear": "hookline.optim.schedules:Linear",
        "wsd": "hookline.optim.schedules:WarmupStableDecay",
    },
)


def construct(factory: Callable[..., Any], parameters: Mapping[str, Any], who: str) -> Any:
    """Create an object from named parameters. Refuse an unknown or a missing parameter with a hint."""
    try:
        known = inspect.signature(factory).parameters
    except ValueError:  # a class written in C, without a signature
        return factory(**parameters)
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known.values()):
        for name in parameters:
            if name not in known:
                raise ConfigError(f"{who} has no parameter '{name}'; {did_you_mean(name, known)}")
    for name, parameter in known.items():
        variable = parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        if parameter.default is inspect.Parameter.empty and not variable and name not in parameters:
            raise ConfigError(f"{who} needs the parameter '{name}'")
    return factory(**parameters)
