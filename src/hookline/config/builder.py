"""Checks a config and builds a Runner, or only its hooks, from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hookline.common.collector import paused
from hookline.common.import_rules import import_rules
from hookline.config.factory import Maker
from hookline.config.names import Resolver
from hookline.config.validation import check, check_hooks
from hookline.plan.registry import DEFAULT_HOOKS

if TYPE_CHECKING:
    from hookline.config.loading import LoadedConfig
    from hookline.runner.runner import Runner

Hooks = tuple[dict[str, dict[str, Any] | None], list[dict[str, Any]]]


def build_runner(loaded: LoadedConfig, *, allow: Sequence[str] = (), **changes: Any) -> Runner:
    """Check a config, then build everything that it names and put it together.

    The random generators are seeded from `seed` before the model is built, so a config always yields the same weights.
    `allow` lists further modules that the config may name, besides modules next to it. `changes` are parameters of the
    Runner that replace parameters of the config: `resume`, `load_from`, `work_dir`, `quiet`.
    """
    resolver = Resolver(loaded.file, allow, loaded.modules)
    with paused():  # both import, the user's modules and torch, which an invalid config need not wait for
        check(loaded, resolver)

        from hookline.config.assembly import Assembly

        import_module("hookline.runner.host")  # the engine

    maker = Maker(loaded, resolver)
    rules = partial(import_rules, resolver.modules.judge)
    with rules():
        runner = Assembly(maker).build_runner(*_hook_specs(maker, loaded.data), **changes)
    runner._host.import_rules = rules
    return runner


def build_hooks(loaded: LoadedConfig, allow: Sequence[str] = ()) -> Hooks:
    """Return the default and custom hooks of a config as the Runner takes them, without building model or data."""
    resolver = Resolver(loaded.file, allow, loaded.modules)
    check_hooks(loaded, resolver)
    return _hook_specs(Maker(loaded, resolver), loaded.data)


def _hook_specs(maker: Maker, data: Mapping[str, Any]) -> Hooks:
    defaults = data.get("default_hooks") or {}
    custom = [maker.hook_spec(("custom_hooks", i), value) for i, value in enumerate(data.get("custom_hooks") or ())]
    return (
        {key: maker.hook_spec(("default_hooks", key), value, DEFAULT_HOOKS[key]) for key, value in defaults.items()},
        [hook for hook in custom if hook is not None],
    )
