"""What hooks remember, on its way into a checkpoint and back; a plan gives them with their names, and others may."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from hookline.common.plain import check_plain
from hookline.errors import HookError, blame
from hookline.plan.hook import Hook

log = logging.getLogger("hookline")


class Named(Protocol):
    """A hook, and the name under which it is saved; an entry of a plan is one."""

    @property
    def name(self) -> str:
        """No other hook has it."""

    @property
    def hook(self) -> Any:
        """Whatever has a `state_dict` and a `load_state_dict`, or has not."""


def collect(hooks: Iterable[Named]) -> dict[str, Any]:
    """The states of all hooks that have one, by name."""
    states = {}
    for entry in hooks:
        try:
            state = entry.hook.state_dict() if hasattr(entry.hook, "state_dict") else None
        except Exception as error:
            blame(error, f"in hook {entry.name}, when its state was saved")
            raise
        if state:
            check_plain(state, f"the state of {entry.name}")
            states[entry.name] = state
    return states


def check_states_can_be_saved(hooks: Iterable[Named]) -> None:
    """Refuse a hook's state that no checkpoint can hold before the first step, and not at the first save."""
    for entry in hooks:
        if hasattr(entry.hook, "state_dict") and not hasattr(entry.hook, "load_state_dict"):
            raise HookError(f"{entry.name} has a state_dict and no load_state_dict, so its state could not come back")
        try:
            collect([entry])
        except HookError:
            raise
        except Exception:  # a hook may know its state only in training
            log.debug("%s has no state before training", entry.name, exc_info=True)


def restore(
    hooks: Iterable[Named], states: Mapping[str, Any], saved: Collection[str], say: Callable[[str], None]
) -> None:
    """Give every hook its state, and say what is left over, and which hooks were not among those `saved`."""
    left, fresh = dict(states), []
    for entry in hooks:
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
