"""Patterns that select parameters or modules by name, used by hooks and by `params` and `param_groups` in a config.

    matching("*.bias", ["head.weight", "head.bias"])      -> ["head.bias"]

A pattern must match the whole name. It works as for file names, with `*`, `?` and `[abc]`, and is case-sensitive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from hookline.errors import nearest


def matching(patterns: str | Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the names that match at least one of the patterns, in their order.

    >>> matching(["backbone.*", "*.bias"], ["backbone.weight", "head.weight", "head.bias"])
    ['backbone.weight', 'head.bias']
    """
    listed = [patterns] if isinstance(patterns, str) else list(patterns)
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in listed)]


def no_match(pattern: str, names: Collection[str], kind: str = "parameter") -> str:
    """Return the message about a pattern that matches no parameter or module, with the most likely correction.

    >>> no_match("backbone", ["backbone.weight", "head.weight"])
    "'backbone' matches no parameter of the model; did you mean 'backbone.*'?"
    """
    inside = f"{pattern.rstrip('.')}.*"
    if matching(inside, names):
        hint = f"did you mean '{inside}'?"
    elif (best := nearest(pattern, names, cutoff=0.4)) is not None:
        hint = f"the closest name is '{best}'"
    else:
        some = list(names)
        hint = f"available: {', '.join(some[:8]) + ', ...' * (len(some) > 8) or 'none'}"
    return f"'{pattern}' matches no {kind} of the model; {hint}"
