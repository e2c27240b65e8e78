"""Budgets: the share of the training time that a hook may take, such as `budget: 5%`.

A hook that takes more is named in one warning, with the point, its share, and what to change. Only points that repeat
count: a hook cannot do less often what it does once per run.
"""

from __future__ import annotations

import logging
import math
import re
from typing import TYPE_CHECKING, Any

from hookline.common.checks import is_finite
from hookline.errors import HookError

if TYPE_CHECKING:
    from hookline.plan.calls import Call
    from hookline.plan.entry import Entry
    from hookline.plan.ledger import Ledger
    from hookline.plan.plan import Plan

log = logging.getLogger("hookline")

#: A hook is judged after this many measured iterations.
ENOUGH = 4


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


def budget_of(hook: Any, name: str, budget: Any, default: float | None) -> float | None:
    """Return the budget of a hook: given, or of its class. Without one, an observer has the budget of all observers."""
    wanted = budget if budget is not None else getattr(hook, "budget", None)
    if wanted is None:
        return default if getattr(hook, "role", "actor") == "observer" else None
    try:
        return parse_budget(wanted)
    except HookError as error:
        raise HookError(f"{name}: {error}") from None


def repeats(call: Call) -> bool:
    """Return whether a call happens again and again."""
    return call.point.counts is not None or call.point.name == "before_save_checkpoint"


class Budgets:
    """Compares the hooks of a plan with their budgets during a session."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._warned: set[Entry] = set()

    def forget(self, entry: Entry) -> None:
        """Forget a hook that was removed."""
        self._warned.discard(entry)

    def look(self, ledger: Ledger, final: bool = False) -> None:
        """Warn once about every hook over its budget."""
        seconds = ledger.seconds - ledger.seconds_before_steps
        if seconds <= 0 or ledger.sampled_steps < (1 if final else ENOUGH):
            return
        for entry in self._plan.entries:
            if entry.budget is None or entry in self._warned:
                continue
            spent = {call: ledger.total_of(call).seconds for call in entry.all_calls() if repeats(call)}
            share = sum(spent.values()) / seconds
            if share > entry.budget:
                self._warned.add(entry)
                worst = max(spent, key=spent.__getitem__)
                log.warning("%s", describe(entry.name, entry.hook, entry.budget, worst, share))


def describe(name: str, hook: Any, budget: float, worst: Call, share: float) -> str:
    """Return the warning about a hook over its budget, with what to change."""
    return (
        f"{name} takes {share:.1%} of the training time, most of it at {worst.point.name}; its budget is "
        f"{budget * 100:.4g}%. {advice(hook, worst, share / budget)}, or a larger budget."
    )


def advice(hook: Any, worst: Call, factor: float) -> str:
    """Return advice on how to make a hook take less time by a factor."""
    interval = getattr(hook, "interval", None)
    if worst.point.counts in ("iteration", "update") and isinstance(interval, int) and interval > 0:
        return f"Give it a larger interval, such as {math.ceil(interval * factor)} (now {interval})"
    if worst.point.counts is None:
        return f"Let it do less at {worst.point.name}"
    often = worst.every.n if worst.every is not None else 1
    return f"Give it a larger interval, such as @every({math.ceil(often * factor)}) at {worst.point.name}"
