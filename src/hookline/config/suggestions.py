"""Suggests the meaning of an unknown name: preferably something that works as the config is written.

suggest("acuracy", ...)    did you mean 'accuracy', or Accuracy, which needs task?
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from hookline.common.escape import escaped
from hookline.config.signature import signature_of
from hookline.errors import LONGEST_NAME, ConfigError, did_you_mean

#: With more names than this, a message that lists all of them helps nobody.
_MANY = 12
_CLOSE = 0.6
#: Something that works as written may be this much less close.
_NEARLY = 0.15


def suggest(
    name: str,
    registered: Mapping[str, Callable[[str], Callable[..., Any]]] | Iterable[str],
    classes: Mapping[str, Callable[..., Any]] | None = None,
    given: Collection[str] = (),
    filled: str | None = None,
    otherwise: str = "",
) -> str:
    """Return a hint with the closest name, or with all names if they are few.

    Args:
        name: The unknown name.
        registered: The names to choose from; for those whose parameters matter, with a function that returns the item.
        classes: Further names. A registered name is preferred to a class that is equally close.
        given: The parameters that the config gives.
        filled: The parameter that hookline itself fills in.
        otherwise: The hint if no name is close; by default, all names if they are few.
    """
    known = [*registered, *(key for key in classes or () if key not in registered)]
    close = _closest_first(name, known)
    if not close:
        many = otherwise or ("to use your own, write 'module:Name'" if len(known) > _MANY else "")
        return many or did_you_mean(name, known)

    def lacking(key: str) -> list[str] | None:
        if isinstance(registered, Mapping) and key in registered:
            return _lacking(lambda: registered[key](key), given, filled)
        return _lacking(lambda: classes[key], given, filled) if classes and key in classes else []

    best, rating = next(iter(close.items()))
    missing = lacking(best)
    needs = f", which needs {_listed(missing)}" if missing else ""
    if missing == []:
        return f"did you mean '{escaped(best)}'?"
    near = [key for key, other in close.items() if key != best and other >= rating - _NEARLY]
    works = next((key for key in near if lacking(key) == []), None)
    if works is not None:
        other = f", or {escaped(best)}{needs}" if missing else ""
        return f"did you mean '{escaped(works)}'{other}?"
    return f"did you mean '{escaped(best)}'{needs}?"


def _closest_first(name: str, known: Iterable[str]) -> dict[str, float]:
    """Return the names that are close to a misspelled one, with their closeness; equally close ones in their order."""
    if len(name) > LONGEST_NAME:
        return {}
    rated = {key: difflib.SequenceMatcher(a=key.lower(), b=name.lower()).ratio() for key in known}
    return {key: rated[key] for key in sorted(rated, key=lambda key: -rated[key]) if rated[key] >= _CLOSE}


def _lacking(get: Callable[[], Callable[..., Any]], given: Collection[str], filled: str | None) -> list[str] | None:
    """Return the parameters that something needs besides those given; None if it does not accept those given."""
    try:
        factory = get()
    except (ConfigError, ImportError):  # it needs a package that is not installed
        return None
    signature = signature_of(factory)
    names = list(signature.parameters)
    skipped = filled if filled in names else names[0] if filled and names else None
    if not signature.extras and any(key not in names for key in given):
        return None
    if not inspect.isclass(factory):  # it may be called later, with more arguments
        return []
    return [key for key, one in signature.parameters.items() if one.required and key not in given and key != skipped]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
