"""Hooks of one class that have changed places: their states follow their parameters, not their order.

Two hooks of a class are named by their order: `EMAHook` and `EMAHook#2`. If the order has changed, or the first one is
gone, the names in a checkpoint belong to other hooks than the names of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The entries of a saved position that name a hook.
BY = ("stopped_by", "stop_later_by")


def follow_parameters(checkpoint: dict[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Rename the hooks in a checkpoint as this run names them. Return the new names of those with other names.

    `now` has the parameters of the hooks of this run, by name.
    """
    meta = checkpoint["meta"]
    asked = meta.get("asked", {})
    then = asked.get("hooks") if isinstance(asked, Mapping) else None
    if not isinstance(then, Mapping):  # of an earlier version
        return {}
    names = {old: new for old, new in _match(then, now).items() if old != new}
    if names:
        meta["asked"] = {**asked, "hooks": _renamed(then, names)}
        meta["hooks"] = [names.get(name, name) for name in meta.get("hooks", ())]
        for states in (checkpoint, *checkpoint.get("ranks", ())):
            if isinstance(states.get("hooks"), Mapping):
                states["hooks"] = _renamed(states["hooks"], names)
        position = checkpoint["position"]
        checkpoint["position"] = position | {
            key: names.get(position[key], position[key]) for key in BY if key in position
        }
    return {old: new for old, new in names.items() if new in now}


def _renamed(entries: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in entries.items()}


def _match(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Return the new name of each hook of the checkpoint whose class has several hooks, then or now."""
    found: dict[str, str] = {}
    for kind in dict.fromkeys(map(_class_of, then)):
        old, new = ({name: side[name] for name in side if _class_of(name) == kind} for side in (then, now))
        if len(old) > 1 or len(new) > 1:
            found |= _match_class(old, new)
    return found


def _match_class(old: dict[str, Any], new: dict[str, Any]) -> dict[str, str]:
    """Match hooks of one class: by name and parameters, then by parameters alone, then by name, then what is left."""
    found: dict[str, str] = {}
    rules = (
        lambda a, b: a == b and old[a] == new[b],
        lambda a, b: old[a] == new[b],
        lambda a, b: a == b,
        lambda a, b: len(old) == len(new),
    )
    for fits in rules:
        for a in old:
            free = [b for b in new if b not in found.values() and fits(a, b)]
            if a not in found and free:
                found[a] = free[0]
    # A hook that this run does not have keeps its name, or gets one that no hook of this run has.
    gone = [a for a in old if a not in found]
    unused = [name for name in old if name not in new and name not in found.values()]
    unused.sort(key=lambda name: name not in gone)
    return found | dict(zip(gone, unused, strict=False))


def _class_of(name: str) -> str:
    return name.partition("#")[0]
