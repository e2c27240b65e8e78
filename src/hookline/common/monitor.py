"""Monitoring a metric: which one, whether higher or lower is better, and what counts as an improvement.

Everything that compares results (best checkpoints, early stopping, evaluations) uses this module. An equal value is not
better, and NaN or Inf is never better.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from hookline.errors import ConfigError, did_you_mean

log = logging.getLogger("hookline")

Rule = Literal["greater", "less"]

# Words in a metric's name from which the rule is inferred.
GREATER = (
    *("acc", "top", "AR@", "auc", "auroc", "precision", "recall", "f1", "mAP", "dice", "mDice", "iou", "mIoU", "mAcc"),
    *("aAcc", "r2", "psnr", "ssim", "bleu", "rouge"),
)
LESS = ("loss", "error", "mae", "mse", "rmse", "perplexity", "wer", "fid", "lpips")

#: The first metric of the first validation.
AUTO = "auto"


@dataclass(frozen=True)
class Monitor:
    """One metric to monitor, and its rule.

    >>> Monitor("accuracy", "greater").better(0.8, than=0.7)
    True
    """

    name: str
    rule: Rule

    def better(self, value: float, than: float | None, by: float = 0.0) -> bool:
        """Return whether `value` is better than `than` by more than `by`. Any finite number is better than None.

        NaN and Inf are never better: whatever produced them has gone wrong.
        """
        if not math.isfinite(value):
            return False
        if than is None or not math.isfinite(than):
            return True
        return value > than + by if self.rule == "greater" else value < than - by

    def value(self, metrics: Mapping[str, Any], who: str) -> float:
        """Return this metric from the results of a validation. Refuse it if it is missing or not a number."""
        refuse_unknown(self.name, metrics, who)
        found = metrics[self.name]
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            shape = f" of shape {tuple(found.shape)}" if hasattr(found, "shape") else ""
            raise ConfigError(f"{who}: the metric '{self.name}' is a {type(found).__name__}{shape}, not a number")
        return float(found)


@dataclass
class BestSoFar:
    """The best value of one metric so far, and where in training it was reached."""

    monitor: Monitor
    value: float | None = None
    at: str = ""

    def take(self, value: float, at: str, by: float = 0.0) -> bool:
        """Keep a value if it is a new best by more than `by`, and return whether it is."""
        if not self.monitor.better(value, self.value, by):
            return False
        self.value, self.at = value, at
        return True

    def __str__(self) -> str:
        return f"the best was {self.value:.6g} at {self.at}" if self.value is not None else "there was no best value"

    def state_dict(self) -> dict[str, Any]:
        """Return the best value, where it was reached, and the metric and rule."""
        return {"monitor": self.monitor.name, "rule": self.monitor.rule, "best": self.value, "best_at": self.at}

    def load_state_dict(self, state: Mapping[str, Any], who: str) -> bool:
        """Continue from a saved best value, and return whether it was usable.

        If another metric or rule is monitored now, warn and start from scratch.
        """
        same = state.get("monitor", self.monitor.name) == self.monitor.name
        if not same or state.get("rule", self.monitor.rule) != self.monitor.rule:
            log.warning(
                "%s now monitors '%s' (%s), but the checkpoint has '%s' (%s): the best value starts from scratch",
                *(who, self.monitor.name, self.monitor.rule, state["monitor"], state["rule"]),
            )
            return False
        self.value, self.at = state["best"], state["best_at"]
        return True


def refuse_unknown(name: str, metrics: Iterable[str], who: str) -> None:
    """Refuse a metric that validation does not return, and suggest the closest one that it does."""
    known = list(metrics)
    if name not in known:
        raise ConfigError(f"{who}: validation returns no metric '{name}'; {did_you_mean(name, known)}")


def monitor(
    name: str,
    rule: str | None = None,
    greater_keys: Iterable[str] | None = None,
    less_keys: Iterable[str] | None = None,
    who: str = "monitor",
) -> Monitor:
    """Return a Monitor for a metric. Without a rule, infer it from the name: first the whole name, then words in it.

    >>> monitor("val/MulticlassAccuracy").rule, monitor("train_loss").rule
    ('greater', 'less')
    """
    if rule is not None:
        if rule not in get_args(Rule):
            raise ConfigError(f"{who}: the rule for '{name}' must be 'greater' or 'less', not {rule!r}")
        return Monitor(name, rule)  # type: ignore[arg-type]  # checked above
    greater = list(GREATER if greater_keys is None else greater_keys)
    less = list(LESS if less_keys is None else less_keys)
    whole = name.lower()
    if whole in map(str.lower, greater):
        return Monitor(name, "greater")
    if whole in map(str.lower, less):
        return Monitor(name, "less")
    if any(_has_word(name, key) for key in greater):
        return Monitor(name, "greater")
    if any(_has_word(name, key) for key in less):
        return Monitor(name, "less")
    raise ConfigError(
        f"{who}: the name '{name}' does not show whether higher or lower is better; set rule: greater or rule: less"
    )


def _has_word(name: str, key: str) -> bool:
    """Return whether a word in the name begins with the key: `top` matches `val_top1`, but not `stop_rate`."""
    for found in re.finditer(re.escape(key), name, re.IGNORECASE):
        at = found.start()
        if at == 0 or not name[at - 1].isalpha() or (name[at].isupper() and name[at - 1].islower()):
            return True
    return False
