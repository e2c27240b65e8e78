"""Hooks and writers, created from what the user passes: objects, names, or dicts with `type`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hookline.errors import ConfigError, HookError, did_you_mean
from hookline.plan.hook import BaseHook
from hookline.plan.registry import DEFAULT_HOOKS, HOOKS, WRITERS, Registry, construct
from hookline.writers.base import Writer

if TYPE_CHECKING:
    from hookline.plan.plan import Plan


def register_all(plan: Plan, default_hooks: Mapping[str, Any] | None, custom_hooks: Iterable[Any]) -> None:
    """Register the default hooks with the user's changes, and then the custom hooks."""
    changes = dict(default_hooks or {})
    for key in changes:
        if key not in DEFAULT_HOOKS:
            raise HookError(f"unknown default hook '{key}'; {did_you_mean(key, DEFAULT_HOOKS)}")
    for key, name in DEFAULT_HOOKS.items():
        value = changes.get(key, {})
        if value is not None:
            register(plan, {"type": name, **value} if isinstance(value, Mapping) else value)
    if isinstance(custom_hooks, (str, Mapping, BaseHook)) or not isinstance(custom_hooks, Iterable):
        raise HookError(f"hooks must be a list, also with one: [EMAHook()], not {_shown(custom_hooks)}")
    for hook in custom_hooks:
        register(plan, hook)


def _shown(given: Any) -> str:
    return repr(given) if isinstance(given, str) else f"a {type(given).__name__}"


def register(plan: Plan, given: Any, priority: Any = None, on_error: Any = None, budget: Any = None) -> None:
    """Register a hook given as an object, a name, or a dict with `type`. The dict is not changed."""
    if isinstance(given, BaseHook):
        plan.add(given, priority, on_error, budget=budget)
        return
    factory, parameters, who = _described(HOOKS, given)
    placed = parameters.pop("priority", None)
    tolerance = parameters.pop("on_error", None)
    ranks = parameters.pop("ranks", None)
    given_budget = parameters.pop("budget", None)
    hook = construct(factory, parameters, who)
    if not isinstance(hook, BaseHook):
        raise HookError(
            f"{who} is not a hook: it creates a {type(hook).__name__}, which does not inherit from hookline.Hook"
        )
    where = "argument" if priority is not None else "config"
    tolerance = tolerance if on_error is None else on_error
    plan.add(
        hook,
        placed if priority is None else priority,
        tolerance,
        where,
        ranks=ranks,
        budget=given_budget if budget is None else budget,
    )
    # A config passes a function that knows the parameters, so that errors name their position.
    plan.entry_of(hook).given = getattr(factory, "parameters", parameters)


def writer(given: Any) -> Writer:
    """Return a writer given as an object, a name, or a dict with `type`."""
    if isinstance(given, Writer):
        return given
    factory, parameters, who = _described(WRITERS, given)
    if lacking := sorted(getattr(factory, "__abstractmethods__", ())):
        raise ConfigError(f"{who} cannot be used as a writer: it does not implement {', '.join(lacking)}")
    made = construct(factory, parameters, who)
    if not isinstance(made, Writer):
        raise ConfigError(
            f"{who} is not a writer: it creates a {type(made).__name__}, which does not inherit from hookline.Writer"
        )
    return made


def _described(registry: Registry, given: Any) -> tuple[Callable[..., Any], dict[str, Any], str]:
    """Return the class, the parameters and the name from `"EMAHook"` or `{"type": "EMAHook", ...}`."""
    if isinstance(given, str):
        given = {"type": given}
    if not isinstance(given, Mapping):
        raise ConfigError(f"a {registry.kind} must be an object, a name or a dict with 'type', not {given!r}")
    if "type" not in given:
        raise ConfigError(f"a {registry.kind} given as a dict needs a 'type'; this one has {sorted(given)}")
    parameters = {name: value for name, value in given.items() if name != "type"}
    kind = given["type"]
    if isinstance(kind, str):
        return registry.get(kind), parameters, kind
    if not callable(kind):
        raise ConfigError(f"the 'type' of a {registry.kind} must be a name or a class, not {kind!r}")
    return kind, parameters, getattr(kind, "__name__", repr(kind))
