"""Many runs as one table: a row for each run, and a column for each config key that differs and for each metric."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.patterns import matching
from hookline.errors import ConfigError, did_you_mean, nearest
from hookline.rundir.comparison import find_differences, find_rule, find_winners, flatten

if TYPE_CHECKING:
    from hookline.common.monitor import Monitor
    from hookline.rundir.comparison import Outcome

#: This many of the config keys that differ most are more interesting than all metrics but one.
KEYS_FIRST = 6
STEP_TIME = "step_time"


@dataclass(frozen=True)
class Column:
    """One column: its cells, by the number of the run. Runs without a value have no entry."""

    name: str
    kind: Literal["config", "metric", "fact"]
    values: Mapping[int, Any]
    #: The rule for the best value; None if the name does not show it.
    rule: Monitor | None = None
    winners: set[int] = field(default_factory=set)

    @property
    def differs(self) -> bool:
        """Return whether the runs that have it have different values."""
        return len({_key_of(value) for value in self.values.values()}) > 1


def make_columns(outcomes: Sequence[Outcome], names: Iterable[str], last: bool = False) -> dict[str, Column]:
    """Return all columns by name: config keys, metrics, then epochs, iterations and time per step.

    A metric has its best value, or, with `last` or if its name does not show which one is best, its last value.
    """
    runs = [outcome.run for outcome in outcomes]
    columns = [Column(key, "config", values) for key, values in find_differences(runs).items()]
    for name in names:
        rule = find_rule(name)
        of_runs = [outcome.final if last or rule is None else outcome.best for outcome in outcomes]
        numbers = {number: results[name].value for number, results in enumerate(of_runs) if name in results}
        winners = find_winners(numbers, rule) if rule is not None else set()
        columns.append(Column(name, "metric", numbers, rule, winners))
    columns.append(Column("epochs", "fact", {number: outcome.epochs for number, outcome in enumerate(outcomes)}))
    columns.append(
        Column("iterations", "fact", {number: outcome.iterations for number, outcome in enumerate(outcomes)})
    )
    times = {
        number: outcome.step_seconds for number, outcome in enumerate(outcomes) if outcome.step_seconds is not None
    }
    columns.append(Column(STEP_TIME, "fact", times))
    by_name: dict[str, Column] = {}
    for column in columns:
        by_name.setdefault(column.name, column)
    return by_name


def same_in_all(outcomes: Sequence[Outcome], known: Mapping[str, Column]) -> dict[str, Column]:
    """Return a column for every config key that is not in `known`, because it does not differ."""
    flat = {
        number: dict(flatten(outcome.run.config)) for number, outcome in enumerate(outcomes) if outcome.run.has_config
    }
    keys = dict.fromkeys(key for values in flat.values() for key in values if key not in known)
    return {
        key: Column(key, "config", {number: config[key] for number, config in flat.items() if key in config})
        for key in keys
    }


def find_primary(columns: Mapping[str, Column]) -> Column | None:
    """Return the metric that matters most by its name: the first of a validation or test, or else of training."""
    ruled = [column for column in columns.values() if column.kind == "metric" and column.rule is not None]
    evaluated = [column for column in ruled if column.name.startswith(("val/", "test/"))]
    return next(iter([*evaluated, *ruled]), None)


def find_column(name: str, columns: Mapping[str, Column], who: str) -> Column:
    """Return a column by its name, or by the end of it if only one ends like this: `accuracy` for `val/accuracy`.

    A config key comes before a metric: `lr` is `optim.optimizer.lr`, and not `train/lr`.
    """
    if name in columns:
        return columns[name]
    keys = [column for key, column in columns.items() if key.endswith(f".{name}") and column.kind == "config"]
    ending = keys or [column for key, column in columns.items() if key.endswith(f"/{name}")]
    if len(ending) == 1:
        return ending[0]
    if ending:
        several = ", ".join(column.name for column in ending)
        raise ConfigError(f"{who}: '{name}' can be one of {several}; write the whole name")
    ends = {re.split(r"[./]", key)[-1]: key for key in columns}
    near = nearest(name, columns) or ends.get(nearest(name, ends) or "")
    raise ConfigError(f"{who}: unknown column '{name}'; {did_you_mean(near or name, columns)}")


def select_columns(wanted: Sequence[str], columns: Mapping[str, Column], who: str = "--columns") -> list[Column]:
    """Return the wanted columns in the order in which they were asked for: names, ends of names, or patterns."""
    chosen: dict[str, Column] = {}
    for name in wanted:
        matched = [] if name in columns else matching(name, list(columns))
        for match in matched or [find_column(name, columns, who).name]:
            chosen.setdefault(match, columns[match])
    return list(chosen.values())


def rank_columns(columns: Mapping[str, Column], primary: Column | None) -> list[Column]:
    """Return the columns worth showing, the most informative first. Numbers that are the same in all runs are not."""
    keys = sorted(
        (column for column in columns.values() if column.kind == "config"), key=lambda config: -_count_unusual(config)
    )
    metrics = [column for column in columns.values() if column.kind == "metric" and column is not primary]
    evaluated = [column for column in metrics if column.name.startswith(("val/", "test/"))]
    ruled = [column for column in evaluated if column.rule is not None]
    losses = [column for column in metrics if column not in evaluated and column.rule is not None]
    facts = [columns[name] for name in ("epochs", "iterations", STEP_TIME) if name in columns]
    order = [*([primary] if primary else []), *keys[:KEYS_FIRST], *ruled, *losses]
    order += [column for column in facts[:2] if column.differs]
    order += [*keys[KEYS_FIRST:], *evaluated, *facts[2:], *metrics]
    unique = {column.name: column for column in order}
    return [column for column in unique.values() if column.values]


def _count_unusual(column: Column) -> int:
    """Return how many runs do not have the most common value of a key."""
    counts = Counter(_key_of(value) for value in column.values.values())
    return len(column.values) - max(counts.values(), default=0)


def _key_of(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def sort_rows(column: Column, count: int, reverse: bool = False) -> list[int]:
    """Return the numbers of the runs, the best first, or, if that is unknown, the smallest first.

    Runs without a value, or with NaN or Inf, come last in either order.
    """
    usable = [number for number in range(count) if _is_usable(column.values.get(number))]
    numeric = all(isinstance(column.values[number], (int, float)) for number in usable)
    greatest = column.rule is not None and column.rule.rule == "greater"

    def key(number: int) -> Any:
        value = column.values[number]
        return value if numeric else _key_of(value)

    ordered = sorted(usable, key=key)
    if greatest != reverse:  # among equal values, the order of the runs stays
        ordered = sorted(usable, key=key, reverse=True)
    return [*ordered, *(number for number in range(count) if number not in usable)]


def describe_order(column: Column, reverse: bool = False) -> str:
    """Return a line that says how the rows are sorted."""
    if column.kind == "metric" and column.rule is None:
        which = "greatest" if reverse else "smallest"
        return (
            f"sorted by {column.name}, the {which} first, because its name does not show whether greater or less is "
            "better; --reverse turns this around"
        )
    if column.rule is not None:
        return f"sorted by {column.name}, the {'worst' if reverse else 'best'} first"
    return f"sorted by {column.name}, the {'greatest' if reverse else 'smallest'} first"


def _is_usable(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))
