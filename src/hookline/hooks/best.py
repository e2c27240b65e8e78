"""The best checkpoints of one metric: which are kept, and under which names."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from hookline.common.monitor import AUTO, Rule
from hookline.errors import ConfigError

if TYPE_CHECKING:
    from hookline.common.monitor import Monitor


class Best:
    """The best k of one metric so far, as pairs of the value and the name of the file."""

    def __init__(self, monitor: Monitor, keep: int) -> None:
        self.monitor = monitor
        self.keep = keep
        self.kept: list[tuple[float, str]] = []

    @property
    def label(self) -> str:
        """The metric's name as a part of a file name."""
        return in_file_name(self.monitor.name)

    @property
    def prefix(self) -> str:
        """What its files begin with."""
        return f"best_{self.label}_"

    @property
    def top(self) -> tuple[float, str]:
        """The best of all."""
        return self.kept[0]

    def is_worth_keeping(self, value: float) -> bool:
        """Whether a value is among the best k; equal to the last of them is not better."""
        return self.monitor.better(value, self.kept[-1][0] if len(self.kept) >= self.keep else None)

    def add(self, value: float, name: str) -> None:
        """Take a value in, before those that are not better; the worst goes if there are too many."""
        at = next((i for i, (other, _) in enumerate(self.kept) if self.monitor.better(value, other)), len(self.kept))
        self.kept.insert(at, (value, name))
        del self.kept[self.keep :]

    def state_dict(self) -> dict[str, Any]:
        """Values and names, as plain data."""
        return {"values": [value for value, _ in self.kept], "names": [name for _, name in self.kept]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.kept = list(zip(state["values"], state["names"], strict=True))[: self.keep]


def in_file_name(name: str) -> str:
    """A name as a part of a file name: nothing in it leads out of the folder."""
    return re.sub(r"[^\w.@+-]", "_", name)


def remove_others(names: re.Pattern[str], saved: Path, *, keep: Collection[str] = ()) -> None:
    """Remove the files with such names that are no longer among the best, found by listing the folder."""
    for path in saved.parent.iterdir():
        if names.fullmatch(path.name) and path.name not in keep and path != saved:
            path.unlink(missing_ok=True)


def rules_of(names: list[str], rule: str | list[str] | None) -> dict[str, str]:
    """The rule of each metric, where any is given."""
    if len(set(names)) != len(names):
        raise ConfigError(f"CheckpointHook: save_best names a metric twice: {', '.join(names)}")
    if AUTO in names and len(names) > 1:
        raise ConfigError("CheckpointHook: save_best is 'auto' or names of metrics, not both")
    if rule is None:
        return {}
    rules = [rule] if isinstance(rule, str) else list(rule)
    for each in rules:
        if each not in get_args(Rule):
            raise ConfigError(f"CheckpointHook: a rule is 'greater' or 'less', not {each!r}")
    if len(rules) == 1:
        rules *= len(names)
    if len(rules) != len(names):
        raise ConfigError(
            f"CheckpointHook: {len(rules)} rules for {len(names)} metrics; give one for all, or one for each"
        )
    return dict(zip(names, rules, strict=True))
