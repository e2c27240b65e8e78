"""Key checks for configs that may also hold the user's own keys: only a near miss of a known key is a mistake."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hookline.errors import ConfigError
from hookline.plan.points import near_miss


def refuse_near_misses(
    where: str, keys: Iterable[object], known: Sequence[str], kind: type[ConfigError] = ConfigError
) -> None:
    """Refuse a key that is a near miss of a known key, unless the known key is also present.

    A known key with a suffix, such as `optimizer_b`, is the user's own key and is allowed.
    """
    present = [key for key in keys if isinstance(key, str) and key[:1] != "_"]
    by_word = {each.replace("cfg", "config"): each for each in known}
    for key in (key for key in present if key not in known):
        meant = by_word.get(near_miss(key.replace("cfg", "config"), by_word) or "")
        if meant is not None and meant not in present and not re.match(rf"{re.escape(meant)}[_0-9]", key):
            raise kind(
                f"{where} has '{key}', which nothing reads; did you mean '{meant}'? If it is your own key, give it a "
                "name that is less similar"
            )
