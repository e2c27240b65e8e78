"""Watching a metric: which one, whether more or less of it is better, and what counts as better.

Everything that compares results (best checkpoints, early stopping, evaluations) does it here: equal is not better,
and NaN or Inf never is.
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

# Words in the name of a metric that tell the rule.
GREATER = (
    *("acc", "top", "AR@", "auc", "auroc", "precision", "recall", "f1", "mAP", "dice", "mDice", "iou", "mIoU", "mAcc"),
    *("aAcc", "r2", "psnr", "ssim", "bleu", "rouge"),
)
LESS = ("loss", "error", "mae", "mse", "rmse", "perplexity", "wer", "fid", "lpips")

#: The first metric of the first validation.
AUTO = "auto"


@dataclass(frozen=True)
class Monitor:
    """One metric that is watched.

    >>> Monitor("accuracy", "greater").better(0.8, than=0.7)
    True
    """

    name: str
    rule: Rule

    def better(self, value: float, than: float | None, by: float = 0.0) -> bool:
        """Whether a value is better than another one, by more than a margin; any number is better than none.

        NaN and Inf are no numbers here: what gave them has gone wrong.
        """
        if not math.isfinite(value):
            return False
        if than is None or not math.isfinite(than):
            return True
        return value > than + by if self.rule == "greater" else value < than - by

    def value(self, metrics: Mapping[str, Any], who: str) -> float:
        """The metric out of all that a validation gave; one that is not there, or is no number, is refused."""
        refuse_unknown(self.name, metrics, who)
        found = metrics[self.name]
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            shape = f" of shape {tuple(found.shape)}" if hasattr(found, "shape") else ""
            raise ConfigError(f"{who}: the metric '{self.name}' is a {type(found).__name__}{shape}, not a number")
        return float(found)


@dataclass
class BestSoFar:
    """The best value of one metric, and where training stood when it came."""

    monitor: Monitor
    value: float | None = None
    at: str = ""

    def take(self, value: float, at: str, by: float = 0.0) -> bool:
        """Whether a value is a new best, by more than a margin; then it is kept."""
        if not self.monitor.better(value, self.value, by):
            return False
        self.value, self.at = value, at
        return True

    def __str__(self) -> str:
        return f"the best was {self.value:.6g} at {self.at}" if self.value is not None else "there was no best"

    def state_dict(self) -> dict[str, Any]:
        """The value, when it came, and of what."""
        return {"monitor": self.monitor.name, "rule": self.monitor.rule, "best": self.value, "best_at": self.at}

    def load_state_dict(self, state: Mapping[str, Any], who: str) -> bool:
        """Go on from there; where something else is watched now, begin anew, and say so."""
        same = state.get("monitor", self.monitor.name) == self.monitor.name
        if not same or state.get("rule", self.monitor.rule) != self.monitor.rule:
            log.warning(
                "%s watches '%s' (%s) now, and in the checkpoint it was '%s' (%s): the best begins anew",
                *(who, self.monitor.name, self.monitor.rule, state["monitor"], state["rule"]),
            )
            return False
        self.value, self.at = state["best"], state["best_at"]
        return True


def refuse_unknown(name: str, metrics: Iterable[str], who: str) -> None:
    """Refuse a metric that validation does not give, with the nearest that it does."""
    known = list(metrics)
    if name not in known:
        raise ConfigError(f"{who}: validation gives no metric '{name}'; {did_you_mean(name, known)}")


def monitor(
    name: str,
    rule: str | None = None,
    greater_keys: Iterable[str] | None = None,
    less_keys: Iterable[str] | None = None,
    who: str = "monitor",
) -> Monitor:
    """A metric with its rule; where none is given, the name tells: a whole name first, then words in it.

    >>> monitor("val/MulticlassAccuracy").rule, monitor("train_loss").rule
    ('greater', 'less')
    """
    if rule is not None:
        if rule not in get_args(Rule):
            raise ConfigError(f"{who}: the rule for '{name}' is 'greater' or 'less', not {rule!r}")
        return Monitor(name, rule)  # type: ignore[arg-type]  # it is one of the two
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
        f"{who}: the name '{name}' does not tell whether more or less of it is better; say so with rule: greater or "
        "rule: less"
    )


def _has_word(name: str, key: str) -> bool:
    """Whether a name has a word that begins with a key: `top1` is in `val_top1` and not in `stop_rate`."""
    for found in re.finditer(re.escape(key), name, re.IGNORECASE):
        at = found.start()
        if at == 0 or not name[at - 1].isalpha() or (name[at].isupper() and name[at - 1].islower()):
            return True
    return False
