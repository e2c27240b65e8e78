"""Budgets: the share of the training time that a hook may take, and what happens when it takes more.

    budget: 5%                  one warning, which names the hook, the point, its share, and what to change
    budget_action: throttle     an observer then also runs less often; each time, its interval is doubled

Only points that repeat count: a hook cannot do less often what it does once per run.
"""

from __future__ import annotations

import logging
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.checks import is_finite
from hookline.errors import ConfigError, HookError

if TYPE_CHECKING:
    from hookline.plan.calls import Call
    from hookline.plan.entry import Entry
    from hookline.plan.ledger import Ledger
    from hookline.plan.plan import Plan

log = logging.getLogger("hookline")

BudgetAction = Literal["warn", "throttle"]
ACTIONS = ("warn", "throttle")

#: A hook is judged after this many measured iterations, and slowed down by no more than this factor.
ENOUGH, SLOWEST = 4, 1024


def parse_budget(value: Any) -> float:
    """Return a budget as a share: of `5%`, `0.05` or `"0.05"`.

    >>> parse_budget("5%"), parse_budget(0.05), parse_budget("0.5 %")
    (0.05, 0.05, 0.005)
    """
    number = value
    if isinstance(value, str) and (match := re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(%?)\s*", value)):
        number = float(match[1]) / (100 if match[2] else 1)
    if not isinstance(number, str) and is_finite(number) and 0 < number <= 1:
        return float(number)
    raise HookError(f"a budget must be a share of the training time, such as 5% or 0.05, not {value!r}")


@dataclass(frozen=True)
class Budget:
    """The share of the training time that a hook may take, and whether it runs less often when it takes more."""

    share: float
    throttles: bool = False


def budget_of_observers(budget: Any, action: Any) -> Budget | None:
    """Return the budget that every observer of a run has."""
    if action not in (None, *ACTIONS):
        raise ConfigError(f"budget_action must be 'warn' or 'throttle', not {action!r}")
    if budget is None:
        if action is not None:
            raise ConfigError("budget_action needs a budget, such as budget='5%'")
        return None
    return Budget(parse_budget(budget), action == "throttle")


def budget_of(hook: Any, name: str, budget: Any, action: Any, default: Budget | None, alone: bool) -> Budget | None:
    """Return the budget of a hook, from its config or class. Without one, an observer has the budget of all observers.

    Args:
        hook: The hook.
        name: Its name, for messages.
        budget: The budget that was given at registration; None if there was none.
        action: The action that was given at registration; None if there was none.
        default: The budget of all observers.
        alone: True if there is one process.
    """
    observer = getattr(hook, "role", "actor") == "observer"
    can_wait = observer and (alone or not getattr(hook, "exchanges", False))
    wanted = budget if budget is not None else getattr(hook, "budget", None)
    action = action if action is not None else getattr(hook, "budget_action", None)
    if action is not None and action not in ACTIONS:
        raise HookError(f"{name}: budget_action must be 'warn' or 'throttle', not {action!r}")
    if action == "throttle" and not can_wait:
        raise HookError(f"{name}: {refusal_of_throttle(name, observer)}")
    if wanted is None:
        if default is None or not observer:
            if action is not None:
                raise HookError(f"{name}: budget_action needs a budget, such as budget: 5%")
            return None
        throttles = default.throttles if action is None else action == "throttle"
        return Budget(default.share, throttles and can_wait)
    try:
        share = parse_budget(wanted)
    except HookError as error:
        raise HookError(f"{name}: {error}") from None
    inherited = default is not None and default.throttles and can_wait
    return Budget(share, inherited if action is None else action == "throttle")


def refusal_of_throttle(name: str, observer: bool) -> str:
    """Return why a hook cannot be throttled."""
    if observer:
        return (
            f"budget_action 'throttle' is not possible with several processes, because {name} exchanges values with "
            "the others, which may not be throttled at the same time; use budget_action: warn"
        )
    return (
        f"budget_action 'throttle' is only for observers (role = 'observer'); {name} affects training, so calling it "
        "less often would change the result"
    )


def repeats(call: Call) -> bool:
    """Return whether a call happens again and again."""
    return call.point.counts is not None or call.point.name == "before_save_checkpoint"


@dataclass(eq=False)
class Window:
    """The time since a hook was last throttled."""

    sampled: int
    seconds: float
    spent: float


class Budgets:
    """Compares the hooks of a plan with their budgets during a session."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._windows: dict[Entry, Window] = {}
        self._warned: set[Entry] = set()

    def forget(self, entry: Entry) -> None:
        """Forget a hook that was removed."""
        self._windows.pop(entry, None)
        self._warned.discard(entry)

    def look(self, ledger: Ledger, final: bool = False) -> None:
        """Warn about every hook over its budget, and let it run less often if it may be throttled."""
        for entry in self._plan.entries:
            if entry.budget is None:
                continue
            calls = [call for call in entry.calls if repeats(call)]
            spent = sum(ledger.total_of(call).seconds for call in calls)
            now = Window(ledger.sampled_steps, ledger.seconds, spent)
            since = self._windows.setdefault(entry, Window(0, ledger.seconds_before_steps, 0.0))
            if now.seconds <= since.seconds or now.sampled - since.sampled < (1 if final else ENOUGH):
                continue
            share = (now.spent - since.spent) / (now.seconds - since.seconds)
            if share <= entry.budget.share:
                continue
            worst = max(calls, key=lambda call: ledger.total_of(call).seconds)
            throttles = entry.budget.throttles and not final and entry.throttled < SLOWEST
            if entry not in self._warned:
                self._warned.add(entry)
                log.warning("%s", describe(entry, worst, share, throttles))
            if throttles:
                self._plan.throttle(entry, worst)
                self._windows[entry] = now


def describe(entry: Entry, worst: Call, share: float, throttles: bool) -> str:
    """Return the warning about a hook over its budget, with what to change."""
    assert entry.budget is not None, "only a hook with a budget is judged"
    over = (
        f"{entry.name} takes {share:.1%} of the training time, most of it at {worst.point.name}; its budget is "
        f"{as_percent(entry.budget.share)}"
    )
    if throttles:
        return f"{over}. It now runs less often (budget_action: throttle). {advice(entry, worst, share)}."
    return f"{over}. {advice(entry, worst, share)}, or a larger budget."


def advice(entry: Entry, worst: Call, share: float) -> str:
    """Return advice on how to make a hook take less time."""
    assert entry.budget is not None, "only a hook with a budget is judged"
    factor = share / entry.budget.share
    interval = getattr(entry.hook, "interval", None)
    if worst.point.counts in ("iteration", "update") and isinstance(interval, int) and interval > 0:
        return f"Give it a larger interval, such as {math.ceil(interval * factor)} (now {interval})"
    if worst.point.counts is None:
        return f"Let it do less at {worst.point.name}"
    often = worst.every.n if worst.every is not None else 1
    return f"Give it a larger interval, such as @every({math.ceil(often * factor)}) at {worst.point.name}"


def as_percent(share: float) -> str:
    """Return a share as a text: `5%`, `0.5%`."""
    return f"{share * 100:.4g}%"
