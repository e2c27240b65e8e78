"""pydantic's errors, in words for the author of a config: one problem a value, unions put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hookline.common.marks import Keys, Problem, show
from hookline.errors import did_you_mean, nearest

if TYPE_CHECKING:
    from pydantic import ValidationError

_EXPECTED = {
    **dict.fromkeys(["int_type", "int_parsing", "int_from_float"], "an int"),
    **dict.fromkeys(["float_type", "float_parsing"], "a number"),
    **dict.fromkeys(["bool_type", "bool_parsing"], "true or false"),
    **dict.fromkeys(["string_type"], "a string"),
    **dict.fromkeys(["list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"], "a list"),
    **dict.fromkeys(["dict_type", "model_type", "model_attributes_type", "dataclass_type"], "a mapping"),
    "none_required": "null",
    "finite_number": "a finite number",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "too_short": "at least {min_length} items",
    "too_long": "at most {max_length} items",
    "string_too_short": "a text that is not empty",
    "string_pattern_mismatch": "a name as 'module:name'",
}


@dataclass(frozen=True)
class _Found:
    keys: Keys
    message: str
    expected: str | None = None
    value: Any = None
    #: Of one alternative of several: another one may say more.
    tagged: bool = False


def missing_and_unknown(
    unknown: Iterable[str], missing: Iterable[str], known: Iterable[str], no_such: str, needs: str
) -> list[tuple[str | None, str]]:
    """Messages about the keys of one mapping, each with its key; a misspelt key is not missing besides."""
    names = list(known)
    unknown = list(unknown)
    taken = {nearest(key, names) for key in unknown}
    messages: list[tuple[str | None, str]] = [
        (key, f"{no_such.format(key)}; {did_you_mean(key, [name for name in names if name != key])}") for key in unknown
    ]
    return messages + [(None, needs.format(name)) for name in missing if name not in taken]


def problems_of(
    error: ValidationError,
    data: Any,
    keys: Keys,
    known: Callable[[Keys], Iterable[str]],
    *,
    no_such: str = "there is no key '{}'",
    needs: str = "the key '{}' is missing",
) -> list[Problem]:
    """All that is wrong with data standing at `keys`; `known` gives the keys that a mapping inside of it can have."""
    found: list[_Found] = []
    unknown: dict[Keys, list[str]] = {}
    missing: dict[Keys, list[str]] = {}
    for item in error.errors(include_url=False):
        place, tagged = _place(item["loc"], data, skip_last=item["type"] == "missing")
        if item["type"] == "missing" and isinstance(item["loc"][-1], int):
            found.append(_Found(place, f"the list is too short: item {item['loc'][-1]} is missing", tagged=tagged))
        elif item["type"] == "missing":
            missing.setdefault(place, []).append(str(item["loc"][-1]))
        elif item["type"] == "extra_forbidden":
            unknown.setdefault(place[:-1], []).append(str(place[-1]))
        else:
            found.append(_found(item, place, tagged))
    problems = [Problem((*keys, *one.keys), one.message) for one in _together(found, {*unknown, *missing})]
    for place in dict.fromkeys([*unknown, *missing]):
        messages = missing_and_unknown(unknown.get(place, []), missing.get(place, []), known(place), no_such, needs)
        problems += [Problem((*keys, *place, *([key] if key else [])), message) for key, message in messages]
    return problems


def _place(loc: tuple[int | str, ...], data: Any, skip_last: bool) -> tuple[Keys, bool]:
    """Where in the data an error stands: pydantic's path without the names that it gives to parts of a union."""
    keys: list[str | int] = []
    tagged = False
    for part in loc[:-1] if skip_last else loc:
        inside = (isinstance(data, dict) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        )
        if inside:
            data = data[part]
            keys.append(part)
        else:
            tagged = True
    return tuple(keys), tagged


def _found(item: Any, place: Keys, tagged: bool) -> _Found:
    wording = _EXPECTED.get(item["type"])
    if wording is not None:
        context = item.get("ctx", {}).items()
        limits = {key: f"{value:g}" if isinstance(value, float) else value for key, value in context}
        return _Found(place, "", wording.format(**limits), item["input"], tagged)
    text: str = item["msg"]
    if text.startswith("Input should be "):
        return _Found(place, "", text.removeprefix("Input should be "), item["input"], tagged)
    return _Found(place, text.removeprefix("Value error, "), tagged=tagged)


def _together(found: list[_Found], others: set[Keys]) -> list[_Found]:
    """One problem a value: what the alternatives expect in one line, unless one of them says more, further inside.

    `others` are the mappings about whose keys something is said besides.
    """
    result: list[_Found] = []
    for place in dict.fromkeys(one.keys for one in found):
        here = [one for one in found if one.keys == place]
        deeper = any(len(one.keys) > len(place) and one.keys[: len(place)] == place for one in found)
        deeper = deeper or any(other[: len(place)] == place for other in others)
        if deeper and all(one.tagged for one in here):
            continue
        expected = list(dict.fromkeys(one.expected for one in here if one.expected is not None))
        if expected:
            last = f" or {expected[-1]}" if len(expected) > 1 else ""
            listed = ", ".join(expected[:-1]) + last if last else expected[0]
            result.append(_Found(place, f"expected {listed}, found {show(here[0].value)}"))
        result += [one for one in here if one.expected is None]
    return result
