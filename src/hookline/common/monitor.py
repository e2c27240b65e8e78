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
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from hookline.errors import ConfigError, did_you_mean

log = logging.getLogger("hookline")

Rule = Literal["greater", "less"]

# Words in a metric's name from which the rule is inferred. A name is split where a program would split it:
# `MulticlassF1Score` and `multiclass_f1_score` have the same words. `lossless` is another word than `loss`.
#
# A loss or an error of anything is better if it is less, as in `top1_error` and `iou_loss`.
LOSSES = ("loss", "losses", "error", "errors", "err")
LESS = (
    *(
        "mae",
        "mse",
        "rmse",
        "mape",
        "smape",
        "nll",
        "perplexity",
        "ppl",
        "bpd",
        "bpc",
        "wer",
        "cer",
        "eer",
        "ece",
        "fid",
    ),
    *("lpips", "miss"),
)
GREATER = (
    *("acc", "accuracy", "accuracies", "macc", "aacc", "top", "topk", "auc", "auroc", "precision", "recall", "f1"),
    *("ap", "map", "ar", "mar", "dice", "mdice", "iou", "IoU", "miou", "r2", "psnr", "ssim", "bleu", "rouge"),
)
# With one of these, a name shows nothing: `error_reduction`, `neg_mean_squared_error`, `accuracy_drop`.
TURNED = (
    *("neg", "negative", "minus", "inverse", "inverted", "reduction", "improvement", "drop", "decrease", "increase"),
    *("gain", "gap", "delta", "diff", "difference", "change"),
)
# The same holds if one of these is the last word: `loss_scale` is a setting.
SETTINGS = ("scale", "scaler", "weight", "weights", "factor", "coef", "coefficient", "lambda")

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
        number = metrics[self.name]
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            shape = f" of shape {tuple(number.shape)}" if hasattr(number, "shape") else ""
            raise ConfigError(f"{who}: the metric '{self.name}' is a {type(number).__name__}{shape}, not a number")
        try:
            return float(number)
        except OverflowError:
            raise ConfigError(f"{who}: the metric '{self.name}' is too large to be compared") from None


class BestCheckpoint(NamedTuple):
    """The best value of one metric that was saved, and its file. Both are None before the first save."""

    monitor: Monitor
    value: float | None
    path: Path | None


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
        from hookline.common.plain import refuse_unlike  # it imports torch

        refuse_unlike(state, {"best": 0.0, "best_at": ""}, f"the best value of {self.monitor.name}")
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
    """Return a Monitor for a metric. Without a rule, infer it from the name; see `infer_rule`.

    >>> monitor("val/MulticlassAccuracy").rule, monitor("train_loss").rule
    ('greater', 'less')
    """
    if rule is not None and rule not in get_args(Rule):
        raise ConfigError(f"{who}: the rule for '{name}' must be 'greater' or 'less', not {rule!r}")
    resolved = rule if rule is not None else infer_rule(name, greater_keys, less_keys)
    if resolved is None:
        raise ConfigError(
            f"{who}: the name '{name}' does not show whether higher or lower is better; set rule: greater or rule: less"
        )
    return Monitor(name, resolved)  # type: ignore[arg-type]  # checked above


def infer_rule(
    name: str, greater_keys: Iterable[str] | None = None, less_keys: Iterable[str] | None = None
) -> Rule | None:
    """Return the rule that the name of a metric shows; None if it shows none, or both.

    Keys of the caller are tried first, as the whole name and then as the beginning of a word. They replace the built-in
    words of that rule. Of the built-in words, the words for a loss or an error win.

    >>> infer_rule("top1_error"), infer_rule("lossless_accuracy"), infer_rule("loss_scale")
    ('less', 'greater', None)
    """
    asked = {"less": less_keys, "greater": greater_keys}
    replaced = {
        rule: [keys] if isinstance(keys, str) else list(keys) for rule, keys in asked.items() if keys is not None
    }
    for matches in (lambda key: key.lower() == name.lower(), lambda key: _has_word(name, key)):
        for rule, keys in replaced.items():
            if any(map(matches, keys)):
                return rule  # type: ignore[return-value]  # a key of `asked`
    words = _words(name)
    text = f"_{'_'.join(words)}_".replace("_negative_log_likelihood_", "_nll_")

    def has_one_of(keys: Iterable[str]) -> bool:
        return any(f"_{'_'.join(_words(key))}_" in text for key in keys)

    last = next((word for word in reversed(words) if not word.isdigit()), "")
    if has_one_of(TURNED) or last in SETTINGS:
        return None
    is_loss = "less" not in replaced and has_one_of(LOSSES)
    is_less = is_loss or ("less" not in replaced and has_one_of(LESS))
    is_greater = not is_loss and "greater" not in replaced and has_one_of(GREATER)
    return None if is_less is is_greater else "less" if is_less else "greater"


def _words(name: str) -> list[str]:
    """Return the words of a name, in lower case.

    >>> _words("val/BinaryAUROC_top1"), _words("mAP@50")
    (['val', 'binary', 'auroc', 'top', '1'], ['m', 'ap', '50'])
    """
    words = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+", name)
    return [word.lower() for word in words]


def _has_word(name: str, key: str) -> bool:
    """Return whether a word in the name begins with the key: `top` matches `val_top1`, but not `stop_rate`."""
    for match in re.finditer(re.escape(key), name, re.IGNORECASE):
        at = match.start()
        if at == 0 or not name[at - 1].isalpha() or (name[at].isupper() and name[at - 1].islower()):
            return True
    return False
