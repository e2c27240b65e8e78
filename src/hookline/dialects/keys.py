"""Keys of configs that hold keys of the user's own, too: only what nearly is a known one can be a mistake."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hookline.errors import ConfigError
from hookline.plan.points import near_miss


def refuse_near_misses(
    where: str, keys: Iterable[object], known: Sequence[str], kind: type[ConfigError] = ConfigError
) -> None:
    """Refuse a key that is nearly a known one, unless that is there, too; `optimizer_b` is a key of one's own."""
    there = [key for key in keys if isinstance(key, str) and key[:1] != "_"]
    by_word = {each.replace("cfg", "config"): each for each in known}
    for key in (key for key in there if key not in known):
        meant = by_word.get(near_miss(key.replace("cfg", "config"), by_word) or "")
        if meant is not None and meant not in there and not re.match(rf"{re.escape(meant)}[_0-9]", key):
            raise kind(
                f"{where} has '{key}', which nothing reads; did you mean '{meant}'? A key of your own needs a name "
                "that is less like it"
            )
