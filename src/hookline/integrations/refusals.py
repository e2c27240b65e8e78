"""Which hooks may be guests: those that look, record, save and stop. All others are refused, with the reason."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hookline.errors import HookError
from hookline.plan.entry import is_custom
from hookline.plan.plan import Plan
from hookline.runner import registration

if TYPE_CHECKING:
    from collections.abc import Iterable

log = logging.getLogger("hookline")

#: The default hooks of a guest: the engine schedules, shuffles and saves.
NOT_BY_DEFAULT: dict[str, Any] = {"sampler_seed": None, "param_scheduler": None, "checkpoint": None}

#: Built-in hooks that are actors, because they stop, save or record, but that leave training as it is.
HARMLESS = frozenset(
    {
        "AutogradAnomalyHook",
        "CheckpointHook",
        "EarlyStoppingHook",
        "IterTimerHook",
        "PruningHook",
        "RankTimesHook",
        "RuntimeInfoHook",
        "TimeLimitHook",
    }
)

#: Why a built-in hook cannot be a guest of any engine.
REASONS = {
    "DistSamplerSeedHook": "it sets the order of the data, which {engine} does",
    "EMAHook": "it replaces the weights during validations",
    "FreezeHook": "it changes which parameters are trained",
    "GradClipHook": "it clips the gradients",
    "ParamSchedulerHook": "it steps schedulers, which {engine} does",
    "ProgressHook": "it draws on the screen, as {engine} does",
    "SyncBuffersHook": "it changes the buffers of the model",
}


@dataclass(frozen=True)
class Engine:
    """An engine, and what it does not allow.

    Args:
        name: The name, for messages.
        tested: The version that hookline is tested with.
        reasons: Why hooks cannot be used in it, by name, besides those that no engine allows.
        instead: What to use instead of a hook, by its name.
        unreached: Why points are never called, by name.
    """

    name: str
    tested: str
    reasons: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)
    unreached: Mapping[str, str] = field(default_factory=dict)


def find_reason(hook: Any, engine: Engine) -> str:
    """Return why a hook cannot be a guest of an engine; empty if it can."""
    name = type(hook).__name__
    if is_custom(hook):
        if getattr(hook, "role", "actor") == "observer":
            return ""
        return f"it may change training. If it only looks, declare role = 'observer' in the class {name}"
    if reason := REASONS.get(name, engine.reasons.get(name, "")):
        return reason.format(engine=engine.name)
    if name == "CheckInvalidLossHook":
        return "" if hook.policy == "raise" else f"policy: {hook.policy} skips a step, which {engine.name} makes"
    if getattr(hook, "role", "actor") == "observer" or name in HARMLESS:
        return ""
    return "it may change training"


def refuse_actors(engine: Engine, hooks: Iterable[Any], default_hooks: Mapping[str, Any]) -> set[str]:
    """Refuse hooks that would act where the engine does not let them, when they are given to the callback.

    A method of a user's hook that is never called is named in a warning. Return the names of the classes of all hooks.

    Args:
        engine: The engine.
        hooks: The hooks of the user.
        default_hooks: Changes to the default hooks.
    """
    plan = Plan(None)
    registration.register_all(plan, default_hooks, hooks)
    for entry in plan:
        name = type(entry.hook).__name__
        if reason := find_reason(entry.hook, engine):
            hint = f"; use {engine.instead[name]}" if name in engine.instead else ""
            raise HookError(f"{entry.name} cannot be used inside {engine.name}: {reason}{hint}")
        for call in entry.calls if is_custom(entry.hook) else ():
            if why := engine.unreached.get(call.point.name):
                log.warning("%s.%s is never called inside %s: %s", entry.name, call.place, engine.name, why)
    return {type(entry.hook).__name__ for entry in plan}
