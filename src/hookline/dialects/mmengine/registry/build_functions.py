"""Build objects from `dict(type=..., ...)`, without changing the dict."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hookline.dialects.mmengine.errors import ConfigKeyError, ConfigTypeError
from hookline.dialects.mmengine.instances import ManagerMixin
from hookline.errors import ConfigError, did_you_mean
from hookline.plan.registry import construct

if TYPE_CHECKING:
    from hookline.dialects.mmengine.registry.registry import Registry

__all__ = ["build_from_cfg", "build_model_from_cfg", "build_runner_from_cfg", "build_scheduler_from_cfg"]


def build_from_cfg(cfg: Any, registry: Registry, default_args: Mapping[str, Any] | None = None) -> Any:
    """Build the object that a dict with `type` describes; `default_args` fill in the arguments it leaves out."""
    if not isinstance(cfg, Mapping):
        raise ConfigTypeError(f"a {registry.name} must be described by a dict with a 'type', not by {cfg!r}")
    parameters = {**(default_args or {}), **cfg}
    scope = parameters.pop("_scope_", None)
    parameters.pop("_delete_", None)  # a marker for merging that had nothing to replace
    if "type" not in parameters:
        raise ConfigKeyError(f"a {registry.name} given as a dict needs a 'type'; this one has {sorted(parameters)}")
    with registry.switch_scope_and_registry(scope) as of_scope:  # also for what the constructor builds
        factory, who = _factory(parameters.pop("type"), of_scope, registry)
        return _build(factory, parameters, who, registry)


def _build(factory: Callable[..., Any], parameters: dict[str, Any], who: str, registry: Registry) -> Any:
    if inspect.isclass(factory) and issubclass(factory, ManagerMixin):  # its class looks up instances by name
        parameters.setdefault("name", who.lower())
        return factory.get_instance(**parameters)
    try:
        return construct(factory, parameters, who)
    except ConfigError as error:
        if type(error) is ConfigError:
            raise ConfigTypeError(f"{registry.name}: {error}") from error
        raise


def _factory(kind: Any, registry: Registry, other: Registry | None = None) -> tuple[Callable[..., Any], str]:
    if isinstance(kind, str):
        found = registry.get(kind)
        if found is None and other is not None:
            found = other.get(kind)
        if found is None:
            raise ConfigKeyError(f"unknown {registry.name} '{kind}'; {did_you_mean(kind, registry)}")
        return found, kind
    if not callable(kind):
        raise ConfigTypeError(f"the 'type' of a {registry.name} must be a name or a class, not {kind!r}")
    return kind, getattr(kind, "__name__", repr(kind))


def build_model_from_cfg(cfg: Any, registry: Registry, default_args: Mapping[str, Any] | None = None) -> Any:
    """Build a model; a list of configs becomes a Sequential."""
    if isinstance(cfg, (list, tuple)):
        from hookline.dialects.mmengine.model import Sequential

        return Sequential(*(build_from_cfg(each, registry, default_args) for each in cfg))
    return build_from_cfg(cfg, registry, default_args)


def build_runner_from_cfg(cfg: Any, registry: Registry) -> Any:
    """Build the runner that a config describes; `runner_type` can name a class other than `Runner`."""
    factory, _ = _factory(cfg.get("runner_type", "Runner"), registry)
    return factory.from_cfg(cfg)  # type: ignore[attr-defined]  # every registered runner has it


def build_scheduler_from_cfg(cfg: Any, registry: Registry, default_args: Mapping[str, Any] | None = None) -> Any:
    """Build a scheduler; with `convert_to_iter_based`, a scheduler described in epochs steps every iteration."""
    if not isinstance(cfg, Mapping):
        raise ConfigTypeError(f"a {registry.name} must be described by a dict with a 'type', not by {cfg!r}")
    parameters, more = dict(cfg), dict(default_args or {})
    epoch_length = parameters.pop("epoch_length", more.pop("epoch_length", None))
    if not parameters.pop("convert_to_iter_based", False):
        return build_from_cfg(parameters, registry, more)
    factory, _ = _factory(parameters.pop("type"), registry)
    return factory.build_iter_from_epoch(epoch_length=epoch_length, **{**more, **parameters})  # type: ignore[attr-defined]


build_optimizer_from_cfg = build_from_cfg
