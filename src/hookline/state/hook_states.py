"""The states of hooks: collecting them for a checkpoint, and restoring them from one."""

from __future__ import annotations

import copy
import logging
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
)
from typing import Any, Protocol

from torch import Tensor

from hookline.checkpoint.shards import has_shards
from hookline.common import rng
from hookline.common.escape import escaped
from hookline.common.plain import check_plain, is_simple, refuse_unlike
from hookline.errors import HookError, HooklineError, StorageError, blame
from hookline.plan.entry import is_custom
from hookline.plan.hook import BaseHook

log = logging.getLogger("hookline")

#: The most bytes of tensors that are copied to try out whether a hook can load its state.
SMALL = 1 << 24


class Named(Protocol):
    """A hook, and the name under which its state is saved. An entry of a plan is one."""

    @property
    def name(self) -> str:
        """Return a name that no other hook has."""

    @property
    def hook(self) -> Any:
        """Return the hook. It may have a `state_dict` and a `load_state_dict`."""


def collect(hooks: Iterable[Named]) -> dict[str, Any]:
    """Return the states of all hooks that have one, by name."""
    states = {}
    for entry in hooks:
        try:
            state = entry.hook.state_dict() if hasattr(entry.hook, "state_dict") else None
        except Exception as error:
            blame(error, f"in hook {entry.name}, while saving its state")
            raise
        if state:
            states[entry.name] = state
    return states


def refuse_shards_per_rank(hooks: Iterable[Named], states: Mapping[str, Any]) -> None:
    """Refuse a hook with a state per process whose state has sharded tensors."""
    for entry in hooks:
        if getattr(entry.hook, "state_per_rank", False) and has_shards(states.get(entry.name)):
            raise HookError(
                f"{entry.name} has state_per_rank = True, but its state has sharded tensors, so the other values of "
                "all processes but the main one would be lost; move the tensors into another hook, or leave out "
                "state_per_rank if all processes have the same values"
            )


def check_states_can_be_saved(hooks: Iterable[Named]) -> None:
    """Refuse a hook whose state cannot be saved or restored. This runs before the first step, not at the first save."""
    for entry in hooks:
        try:
            for state in collect([entry]).values():
                check_plain(state, f"the state of {entry.name}")
        except HookError:
            raise
        except Exception:  # some hooks have their state only during training
            log.debug("%s has no state before training", entry.name, exc_info=True)
        if _has_state(entry.hook) and not _has_loading(entry.hook):
            raise HookError(f"{entry.name} has a state_dict but no load_state_dict, so its state could not be restored")


def check_states_can_be_loaded(hooks: Iterable[Named]) -> None:
    """Refuse a hook that cannot load the state that it returns, at the place where a resumed run would load it.

    A copy of the hook loads a copy of the state, so the hook itself stays as it is.
    """
    for entry in hooks:
        if not (_has_state(entry.hook) and is_custom(entry.hook)):
            continue
        with rng.preserved():
            states = collect([entry])
            refuse_shards_per_rank([entry], states)
            state = states.get(entry.name)
            if state is None or not is_simple(state) or _bytes_in(state) > SMALL:
                continue
            try:
                twin = _separate_copy(entry.hook)
            except Exception:  # some objects cannot be copied
                continue
            try:
                twin.load_state_dict(copy.deepcopy(state))
            except Exception as error:
                raise HookError(
                    f"{entry.name} cannot load the state that its state_dict returns, so no run could resume: "
                    f"{type(error).__name__}: {error}; correct its load_state_dict"
                ) from error


def _separate_copy(hook: Any) -> Any:
    """Return a copy of a hook that has its own tensors, lists and dicts, and shares objects such as the runner."""
    twin = copy.copy(hook)
    for name, value in vars(twin).items():
        if is_simple(value) and _bytes_in(value) <= SMALL:
            vars(twin)[name] = copy.deepcopy(value)
        elif isinstance(value, (MutableSequence, MutableMapping, MutableSet)):
            vars(twin)[name] = copy.copy(value)
    return twin


def _bytes_in(value: Any) -> int:
    """Return the bytes of the tensors in plain data."""
    if isinstance(value, Tensor):
        return value.nbytes
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return sum(map(_bytes_in, inner))


def restore(
    hooks: Iterable[Named],
    states: Mapping[str, Any],
    saved: Collection[str],
    say: Callable[[str], None],
    is_reported: Callable[[str], bool] = lambda name: False,
) -> None:
    """Restore the state of every hook. Report the states without a hook, and the hooks that are not in `saved`.

    What was reported before training began is not repeated. A hook that was reported as dropped may have joined since.
    """
    left, fresh = dict(states), []
    for entry in hooks:
        if entry.name in left:
            try:
                _restore_one(entry, left.pop(entry.name))
                if is_reported(entry.name):
                    say(f"hook {entry.name} has joined this run, so its state was restored after all")
            except Exception as error:
                blame(error, f"in hook {entry.name}, while restoring its state from a checkpoint")
                raise
        elif _has_state(entry.hook) and entry.name not in saved:
            fresh.append(entry.name)
    left = {name: state for name, state in left.items() if not is_reported(name)}
    fresh = [name for name in fresh if not is_reported(name)]
    if left:
        say(f"not used from the checkpoint, because this run has no such hook: {', '.join(map(escaped, left))}")
    if fresh:
        say(f"not in the checkpoint, so starting from scratch: {', '.join(fresh)}")


def _restore_one(entry: Named, state: Any) -> None:
    """Restore the state of one hook. For one of hookline's own, a state that it cannot use is an error in the file."""
    hook = entry.hook
    if is_custom(hook):
        hook.load_state_dict(state)
        return
    try:
        refuse_unlike(state, hook.state_dict(), f"the state of {entry.name}", optional=False)
        hook.load_state_dict(state)
    except HooklineError:
        raise
    except Exception as error:  # depends on what is in the file
        raise StorageError(
            f"the state of {entry.name} in the checkpoint cannot be restored: {type(error).__name__}: {error}"
        ) from error


def _has_state(hook: Any) -> bool:
    return hasattr(hook, "state_dict") and getattr(type(hook), "state_dict", None) is not BaseHook.state_dict


def _has_loading(hook: Any) -> bool:
    return (
        hasattr(hook, "load_state_dict")
        and getattr(type(hook), "load_state_dict", None) is not BaseHook.load_state_dict
    )
