"""The best checkpoints for one metric: which ones are kept, and their file names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from hookline.checkpoint import folders
from hookline.checkpoint.names import safe_file_name
from hookline.common.files import storage_errors
from hookline.common.monitor import AUTO, Rule
from hookline.errors import ConfigError

if TYPE_CHECKING:
    from hookline.common.monitor import Monitor


class Best:
    """The k best values of one metric so far, as pairs of value and file name."""

    def __init__(self, monitor: Monitor, keep: int) -> None:
        self.monitor = monitor
        self.keep = keep
        self.kept: list[tuple[float, str]] = []

    @property
    def label(self) -> str:
        """Return the metric's name in a form that is safe in a file name."""
        return safe_file_name(self.monitor.name)

    @property
    def prefix(self) -> str:
        """Return the prefix of the file names."""
        return f"best_{self.label}_"

    @property
    def top(self) -> tuple[float, str]:
        """Return the best pair."""
        return self.kept[0]

    def refuse_label_of(self, others: Iterable[Best]) -> Best:
        """Refuse a metric whose files would have the names of another one's. Return this one."""
        for other in others:
            if other.label == self.label:
                raise ConfigError(
                    f"CheckpointHook: save_best: '{other.monitor.name}' and '{self.monitor.name}' would be saved under "
                    "the same name"
                )
        return self

    def is_worth_keeping(self, value: float) -> bool:
        """Return whether a value is among the k best. A value equal to the last of them is not."""
        return self.monitor.better(value, self.kept[-1][0] if len(self.kept) >= self.keep else None)

    def add(self, value: float, name: str) -> None:
        """Insert a value before the values that are not better. If there are too many, drop the worst."""
        position = next(
            (i for i, (other, _) in enumerate(self.kept) if self.monitor.better(value, other)), len(self.kept)
        )
        self.kept.insert(position, (value, name))
        del self.kept[self.keep :]

    def state_dict(self) -> dict[str, Any]:
        """Return the values and file names as plain data."""
        return {"values": [value for value, _ in self.kept], "names": [name for _, name in self.kept]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        from hookline.common.plain import refuse_unlike  # it imports torch

        refuse_unlike(state, {"values": [0.0], "names": [""]}, f"the best value of {self.monitor.name}")
        self.kept = list(zip(state["values"], state["names"], strict=True))[: self.keep]


def remove_others(names: re.Pattern[str], saved: Path, *, keep: Collection[str] = ()) -> None:
    """Remove the files in the folder of `saved` that match `names`, except `saved` and those to keep."""
    with storage_errors(saved.parent, "removed", inside=True):
        for path in saved.parent.iterdir():
            if names.fullmatch(path.name) and path.name not in keep and path != saved:
                folders.remove(path)


def check_rules(names: list[str], rule: str | list[str] | None) -> dict[str, str]:
    """Check `save_best` and `rule`, and return the rule of each metric. Without `rule`, return an empty dict."""
    if len(set(names)) != len(names):
        raise ConfigError(f"CheckpointHook: save_best lists a metric twice: {', '.join(names)}")
    if AUTO in names and len(names) > 1:
        raise ConfigError("CheckpointHook: save_best must be 'auto' or names of metrics, not both")
    if rule is None:
        return {}
    rules = [rule] if isinstance(rule, str) else list(rule)
    for each in rules:
        if each not in get_args(Rule):
            raise ConfigError(f"CheckpointHook: rule must be 'greater' or 'less', not {each!r}")
    if len(rules) == 1:
        rules *= len(names)
    if len(rules) != len(names):
        raise ConfigError(
            f"CheckpointHook: rule has {len(rules)} entries, but save_best has {len(names)} metrics; give one rule for "
            "all, or one per metric"
        )
    return dict(zip(names, rules, strict=True))


def refuse_without_best(names: list[str], max_keep_best: int, **options: object) -> None:
    """Refuse settings of the best checkpoints if there are none, because they would have no effect."""
    settings = [name for name, value in options.items() if value is not None] + ["max_keep_best"] * (max_keep_best != 1)
    if settings and not names:
        raise ConfigError(
            f"CheckpointHook: {settings[0]} has no effect without save_best; set the metric whose best checkpoints are "
            f"kept, for example save_best: accuracy, or remove {', '.join(settings)}"
        )
