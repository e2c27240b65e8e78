"""What a record shows of a name: its newest value, or the mean, least or greatest over a window.

    rules = [{"match": "*loss*", "window_size": "epoch"}, {"match": "train/lr", "method": "current"}]
    Smoothing(rules).take(hub, "train/")

The first rule whose pattern matches decides. A rule with a `log_name` adds a number under that name, and the rules
after it decide about the name itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.checks import check_choice, check_int
from hookline.errors import ConfigError, did_you_mean
from hookline.record.hub import belongs

if TYPE_CHECKING:
    from hookline.record.hub import History, MessageHub

Method = Literal["mean", "min", "max", "current"]
METHODS: tuple[Method, ...] = ("mean", "min", "max", "current")
KEYS = ("match", "method", "window_size", "log_name")


@dataclass(frozen=True)
class Rule:
    """What is shown of the names that match: a method, over the newest so many values, the epoch, the whole run, or,
    without a window, what came since the last record.
    """

    match: str
    method: Method = "mean"
    window_size: int | Literal["epoch", "global"] | None = None
    log_name: str | None = None

    @property
    def is_long(self) -> bool:
        """Whether its window is longer than what the hub keeps."""
        return isinstance(self.window_size, str) and self.method != "current"


# What is noisy from step to step is shown as a mean; anything else (a learning rate, a metric) as it is now.
USUAL = (Rule("*loss*"), Rule("*time*"), Rule("*grad_norm*"), Rule("*", "current"))


def rules_of(given: Iterable[Mapping[str, Any]], who: str) -> tuple[Rule, ...]:
    """Rules as a config has them, checked, and the usual ones behind them."""
    return (*(_rule(each, f"{who}: smoothing[{number}]") for number, each in enumerate(given)), *USUAL)


def _rule(given: Mapping[str, Any], who: str) -> Rule:
    if not isinstance(given, Mapping) or not isinstance(given.get("match"), str) or not given["match"]:
        raise ConfigError(f"{who} is a mapping with a pattern of names as 'match', not {given!r}")
    for key in given:
        if key not in KEYS:
            raise ConfigError(f"{who} has no '{key}'; {did_you_mean(str(key), KEYS)}")
    rule = Rule(**given)
    check_choice(f"{who}: method", rule.method, METHODS)
    if isinstance(rule.window_size, str):
        check_choice(f"{who}: window_size", rule.window_size, ("epoch", "global"))
    elif rule.window_size is not None:
        check_int(f"{who}: window_size", rule.window_size, least=1)
    if rule.log_name is not None and (not isinstance(rule.log_name, str) or not rule.log_name):
        raise ConfigError(f"{who}: log_name must be a name, not {rule.log_name!r}")
    return rule


@dataclass
class ExponentialMean:
    """A running mean in which the newest value counts so much (`factor`), and the others the rest together.

    The first one counts whole, so that the mean does not begin too low.

    >>> mean = ExponentialMean(0.4)
    >>> mean.take(5.0), mean.take(10.0)
    (5.0, 7.0)
    """

    factor: float
    #: None before the first.
    value: float | None = None

    def take(self, value: float) -> float:
        """Take one in; gives the mean."""
        self.value = value if self.value is None else (1 - self.factor) * self.value + self.factor * value
        return self.value


@dataclass
class Total:
    """All values of a long window, as far as they were read."""

    count: int = 0
    sum: float = 0.0
    min: float = float("inf")
    max: float = float("-inf")

    def add(self, values: Iterable[float]) -> None:
        """Take more in."""
        for value in values:
            self.count += 1
            self.sum += value
            self.min = min(self.min, value)
            self.max = max(self.max, value)

    def value(self, method: Method) -> float:
        """The mean, least or greatest."""
        return self.sum / self.count if method == "mean" else self.min if method == "min" else self.max


class Smoothing:
    """The rules of a run, and what long windows have added up."""

    def __init__(self, rules: tuple[Rule, ...] = USUAL) -> None:
        self.rules = rules
        self._decided: dict[str, tuple[tuple[str, Rule], ...]] = {}
        #: The name behind each log_name.
        self._shown_as: dict[str, str] = {}
        #: By name and window.
        self._totals: dict[tuple[str, str], Total] = {}
        #: How many values that are new to a name belong to the epoch before.
        self._old: dict[str, int] = {}

    @property
    def longest(self) -> int:
        """The largest window that is a number."""
        return max((rule.window_size for rule in self.rules if isinstance(rule.window_size, int)), default=1)

    @property
    def by_epoch(self) -> bool:
        """Whether any window is the epoch."""
        return any(rule.is_long and rule.window_size == "epoch" for rule in self.rules)

    def take(self, hub: MessageHub, prefix: str, fewer_than: int | None = None) -> dict[str, float]:
        """What is new under a prefix since it was last taken, as the rules show it; see `MessageHub.take`."""
        shown: dict[str, float] = {}
        for name, (history, fresh) in hub.take(prefix, fewer_than).items():
            rules = self._decided.get(name) or self._decide(name)
            long = {str(rule.window_size) for _, rule in rules if rule.is_long}
            if long:
                self._add_up(name, long, history.last(fresh), fresh)
            for log_name, rule in rules:
                shown[log_name] = self._show(name, rule, history, fresh)
        return shown

    def end_epoch(self, hub: MessageHub, prefix: str) -> None:
        """Windows that are an epoch begin anew; what was not recorded of this one is no part of the next."""
        for name, history in hub.scalars.items():
            if belongs(name, prefix) and self._totals.pop((name, "epoch"), None) is not None:
                self._old[name] = history.fresh

    def unused(self) -> list[tuple[int, Rule]]:
        """The rules that no name has matched, with their numbers."""
        given = self.rules[: -len(USUAL)]
        return [
            (number, rule)
            for number, rule in enumerate(given)
            if not any(fnmatchcase(name, rule.match) for name in self._decided)
        ]

    def _decide(self, name: str) -> tuple[tuple[str, Rule], ...]:
        """The rules for a name: those that add a number, and the first other one."""
        found = []
        for rule in self.rules:
            if fnmatchcase(name, rule.match):
                if rule.log_name is not None and (other := self._shown_as.setdefault(rule.log_name, name)) != name:
                    raise ConfigError(
                        f"LoggerHook: smoothing shows both '{other}' and '{name}' as '{rule.log_name}'; give each a "
                        "log_name of its own"
                    )
                found.append((rule.log_name or name, rule))
                if rule.log_name is None:
                    break
        self._decided[name] = tuple(found)
        return self._decided[name]

    def _add_up(self, name: str, windows: set[str], values: list[float], fresh: int) -> None:
        old = max(self._old.pop(name, 0) - (fresh - len(values)), 0)  # of those that are kept
        for window in windows:
            total = self._totals.setdefault((name, window), Total())
            total.add(values[old:] if window == "epoch" else values)

    def _show(self, name: str, rule: Rule, history: History, fresh: int) -> float:
        if rule.method == "current":
            return history.current()
        if rule.is_long:
            return self._totals[name, str(rule.window_size)].value(rule.method)
        window = rule.window_size if isinstance(rule.window_size, int) else fresh
        return float(history.statistics(rule.method, window))

    def state_dict(self) -> dict[str, Any]:
        """What long windows have added up, as plain data."""
        totals = [[name, window, *vars(total).values()] for (name, window), total in self._totals.items()]
        return {"totals": totals, "old": dict(self._old)} if totals or self._old else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._totals = {(name, window): Total(*values) for name, window, *values in state.get("totals", ())}
        self._old = dict(state.get("old", {}))
