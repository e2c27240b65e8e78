"""Smoothing: rules that decide whether a record shows the newest value of a name, or a mean, min or max over a window.

    rules = [{"match": "*loss*", "window_size": "epoch"}, {"match": "train/lr", "method": "current"}]
    Smoothing(rules_of(rules, "LoggerHook")).take(hub, "train/")

The first rule whose pattern matches a name applies. A rule with a `log_name` adds one more number under that name, and
a later rule applies to the name itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.checks import check_choice, check_int
from hookline.errors import ConfigError, did_you_mean
from hookline.record.history import Extreme, Weighted, belongs

if TYPE_CHECKING:
    from hookline.record.history import History
    from hookline.record.hub import MessageHub

Method = Literal["mean", "min", "max", "current"]
METHODS: tuple[Method, ...] = ("mean", "min", "max", "current")
KEYS = ("match", "method", "window_size", "log_name")


@dataclass(frozen=True)
class Rule:
    """A method and a window for all names that match.

    The window is a number of newest values, the epoch, or the whole run. Without one, it is everything since the last
    record.
    """

    match: str
    method: Method = "mean"
    window_size: int | Literal["epoch", "global"] | None = None
    log_name: str | None = None

    @cached_property
    def is_plain_mean(self) -> bool:
        """Return whether it shows the mean of everything since the last record."""
        return self.method == "mean" and self.window_size is None

    @property
    def is_long(self) -> bool:
        """Return whether the window may hold more values than the hub keeps."""
        return isinstance(self.window_size, str) and self.method != "current"


# Values that are noisy from step to step are averaged. Others (a learning rate, a metric) show their current value.
CURRENT = Rule("*", "current")
DEFAULT_RULES = (Rule("*loss*"), Rule("*time*"), Rule("*grad_norm*"), CURRENT)


def rules_of(settings: Iterable[Mapping[str, Any]], who: str) -> tuple[Rule, ...]:
    """Check the rules of a config, and return them followed by the default rules."""
    return (*(_rule(setting, f"{who}: smoothing[{number}]") for number, setting in enumerate(settings)), *DEFAULT_RULES)


def _rule(setting: Mapping[str, Any], who: str) -> Rule:
    if not isinstance(setting, Mapping) or not isinstance(setting.get("match"), str) or not setting["match"]:
        raise ConfigError(f"{who} must be a mapping with a name pattern as 'match', not {setting!r}")
    for key in setting:
        if key not in KEYS:
            raise ConfigError(f"{who}: unknown key '{key}'; {did_you_mean(str(key), KEYS)}")
    rule = Rule(**setting)
    check_choice(f"{who}: method", rule.method, METHODS)
    if isinstance(rule.window_size, str):
        check_choice(f"{who}: window_size", rule.window_size, ("epoch", "global"))
    elif rule.window_size is not None:
        check_int(f"{who}: window_size", rule.window_size, least=1)
    if rule.log_name is not None and (not isinstance(rule.log_name, str) or not rule.log_name):
        raise ConfigError(f"{who}: log_name must be a non-empty string, not {rule.log_name!r}")
    return rule


@dataclass
class ExponentialMean:
    """An exponential moving average in which the newest value has the weight `factor`.

    The first value has the full weight, so that the average does not start too low.

    >>> mean = ExponentialMean(0.4)
    >>> mean.take(5.0), mean.take(10.0)
    (5.0, 7.0)
    """

    factor: float
    #: The current average; None before the first value.
    value: float | None = None

    def take(self, value: float) -> float:
        """Add a value and return the average."""
        self.value = value if self.value is None else (1 - self.factor) * self.value + self.factor * value
        return self.value


@dataclass
class Total:
    """The sum, count, minimum and maximum of a long window so far. A weighted value counts by its weight."""

    count: float = 0
    sum: float = 0.0
    min: float = float("inf")
    max: float = float("-inf")

    def add(self, values: Iterable[float]) -> None:
        """Add more values."""
        for value in values:
            weight = value.weight if isinstance(value, Weighted) else 1
            self.count += weight
            self.sum += float(value) * weight
            if weight:
                self.min = min(self.min, float(value))
                self.max = max(self.max, float(value))

    def value(self, method: Method) -> float:
        """Return the mean, minimum or maximum."""
        if method == "mean":
            return Weighted(self.sum / (self.count or 1), self.count)
        return self.min if method == "min" else self.max


class Smoothing:
    """Applies the rules of a run, and keeps the totals of long windows."""

    def __init__(self, rules: tuple[Rule, ...] = DEFAULT_RULES) -> None:
        self.rules = rules
        self._decided: dict[str, tuple[tuple[str, Rule], ...]] = {}
        #: The long windows of a name, if it has any.
        self._long: dict[str, set[str]] = {}
        #: The original name of each log_name.
        self._shown_as: dict[str, str] = {}
        #: Totals by name and window.
        self._totals: dict[tuple[str, str], Total] = {}
        #: By name, how many of its new values belong to the previous epoch.
        self._old: dict[str, int] = {}

    @property
    def longest(self) -> int:
        """Return the largest window that is given as a number."""
        return max((rule.window_size for rule in self.rules if isinstance(rule.window_size, int)), default=1)

    @property
    def by_epoch(self) -> bool:
        """Return whether any window is the epoch."""
        return any(rule.is_long and rule.window_size == "epoch" for rule in self.rules)

    def take(self, hub: MessageHub, prefix: str, fewer_than: int | None = None) -> dict[str, float]:
        """Take the new values under a prefix and return what the rules show of them; see `MessageHub.take`."""
        shown: dict[str, float] = {}
        for name, (history, fresh) in hub.take(prefix, fewer_than).items():
            rules = self._decided.get(name) or self._decide(name)
            if name in self._long:
                self._add_up(name, self._long[name], history.last(fresh), fresh)
            for log_name, rule in rules:
                if rule is CURRENT:
                    shown[log_name] = history.current()
                elif rule.is_plain_mean:
                    shown[log_name] = history.mean(fresh)
                else:
                    shown[log_name] = self._show(name, rule, history, fresh)
        return shown

    def end_epoch(self, hub: MessageHub, prefix: str) -> None:
        """Restart all windows of one epoch. Values not taken yet do not count for the next epoch."""
        for name, history in hub.scalars.items():
            if belongs(name, prefix) and self._totals.pop((name, "epoch"), None) is not None:
                self._old[name] = history.fresh

    def unused(self) -> list[tuple[int, Rule]]:
        """Return the rules that matched no name, with their positions."""
        chosen = self.rules[: -len(DEFAULT_RULES)]
        return [
            (number, rule)
            for number, rule in enumerate(chosen)
            if not any(fnmatchcase(name, rule.match) for name in self._decided)
        ]

    def _decide(self, name: str) -> tuple[tuple[str, Rule], ...]:
        """Return the rules for a name: those that add a number, and the first one without a log_name."""
        shown = []
        for rule in self.rules:
            if fnmatchcase(name, rule.match):
                if rule.log_name is not None and (other := self._shown_as.setdefault(rule.log_name, name)) != name:
                    raise ConfigError(
                        f"LoggerHook: smoothing shows both '{other}' and '{name}' as '{rule.log_name}'; give each its "
                        "own log_name"
                    )
                shown.append((rule.log_name or name, rule))
                if rule.log_name is None:
                    break
        self._decided[name] = tuple(shown)
        long = {str(rule.window_size) for _, rule in shown if rule.is_long}
        if long:
            self._long[name] = long
        return self._decided[name]

    def _add_up(self, name: str, windows: set[str], values: list[float], fresh: int) -> None:
        old = max(self._old.pop(name, 0) - (fresh - len(values)), 0)  # only those that the hub still has
        for window in windows:
            total = self._totals.setdefault((name, window), Total())
            total.add(values[old:] if window == "epoch" else values)

    def _show(self, name: str, rule: Rule, history: History, fresh: int) -> float:
        if rule.method == "current":
            return history.current()
        if rule.is_long:
            value = self._totals[name, str(rule.window_size)].value(rule.method)
        else:
            value = history.statistics(rule.method, rule.window_size if isinstance(rule.window_size, int) else fresh)
        if rule.method in ("min", "max"):
            return Extreme(value, rule.method)
        return value if isinstance(value, Weighted) else float(value)

    def state_dict(self) -> dict[str, Any]:
        """Return the totals of long windows as plain data."""
        totals = [[name, window, *vars(total).values()] for (name, window), total in self._totals.items()]
        return {"totals": totals, "old": dict(self._old)} if totals or self._old else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the totals."""
        self._totals = {(name, window): Total(*values) for name, window, *values in state.get("totals", ())}
        self._old = dict(state.get("old", {}))
