"""MMEngine's rule for a metric whose name has to show whether greater or less is better."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from hookline.common.monitor import Rule, infer_rule

log = logging.getLogger("hookline")

GREATER = ("acc", "top", "AR@", "auc", "precision", "mAP", "mDice", "mIoU", "mAcc", "aAcc")
LESS = ("loss",)


def original_rule(
    name: str, who: str, greater_keys: Iterable[str] | None = None, less_keys: Iterable[str] | None = None
) -> Rule | None:
    """Return MMEngine's rule for a name; None if it has none, so that hookline's rule applies.

    MMEngine looks for its keys as the whole name and then anywhere in it, each time first for the keys of `greater`. If
    the name shows the opposite, warn: an unchanged config must not silently keep the worst checkpoint.
    """
    keys: dict[Rule, Iterable[str]] = {
        "greater": GREATER if greater_keys is None else greater_keys,
        "less": LESS if less_keys is None else less_keys,
    }
    whole = name.lower()
    pairs = [(rule, key.lower()) for rule, own in keys.items() for key in ([own] if isinstance(own, str) else own)]
    found = [pair for pair in pairs if pair[1] == whole] or [pair for pair in pairs if pair[1] in whole]
    if not found:
        return None
    rule, key = found[0]
    shown = infer_rule(name) if greater_keys is None and less_keys is None else rule
    if shown not in (rule, None):
        log.warning(
            "%s: '%s' is monitored with MMEngine's rule '%s', because '%s' is in its name, but the name shows that %s "
            "is better; set the rule: rule='%s'",
            *(who, name, rule, key, "lower" if shown == "less" else "higher", shown),
        )
    return rule
