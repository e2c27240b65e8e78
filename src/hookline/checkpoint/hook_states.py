"""What the hooks of a plan remember, on its way into a checkpoint and back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from hookline.checkpoint.plain import refuse_odd
from hookline.errors import blame
from hookline.hook import Hook

if TYPE_CHECKING:
    from hookline.plan import Plan


def take(plan: Plan) -> dict[str, Any]:
    """The states of all hooks that have one, by name."""
    states = {}
    for entry in plan:
        try:
            state = entry.hook.state_dict() if hasattr(entry.hook, "state_dict") else None
        except Exception as error:
            blame(error, f"in hook {entry.name}, when its state was saved")
            raise
        if state:
            refuse_odd(state, f"the state of {entry.name}")
            states[entry.name] = state
    return states


def give_back(plan: Plan, states: Mapping[str, Any], saved: Collection[str], say: Callable[[str], None]) -> None:
    """Give every hook its state, and say what is left over, and which hooks were not among those `saved`."""
    left, fresh = dict(states), []
    for entry in plan:
        if entry.name in left:
            try:
                entry.hook.load_state_dict(left.pop(entry.name))
            except Exception as error:
                blame(error, f"in hook {entry.name}, when its state was taken back from a checkpoint")
                raise
        elif _remembers(entry.hook) and entry.name not in saved:
            fresh.append(entry.name)
    if left:
        say(f"not used from the checkpoint, because no such hook is here: {', '.join(left)}")
    if fresh:
        say(f"not in the checkpoint, so starting fresh: {', '.join(fresh)}")


def _remembers(hook: Any) -> bool:
    return hasattr(hook, "state_dict") and getattr(type(hook), "state_dict", None) is not Hook.state_dict
