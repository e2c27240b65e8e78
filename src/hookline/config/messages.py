"""Translates pydantic's errors for the author of a config: one problem per value, with unions combined."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hookline.common.environment import FromEnvironment
from hookline.common.marks import Keys, Problem, dotted, show
from hookline.errors import did_you_mean, nearest

if TYPE_CHECKING:
    from pydantic import ValidationError

OBJECT = "a mapping with 'type'"
#: The unknown keys of one mapping that are compared with the known ones.
MOST_UNKNOWN = 10
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
    "string_too_short": "a non-empty string",
    "string_pattern_mismatch": "a name such as 'module:name'",
    "object": OBJECT,
}


@dataclass(frozen=True)
class _Found:
    keys: Keys
    message: str
    expected: str | None = None
    value: Any = None
    #: True if this is about one alternative of a union: another alternative may have a more precise problem.
    tagged: bool = False


def missing_and_unknown(
    unknown: Iterable[str], missing: Iterable[str], known: Iterable[str], unknown_text: str, missing_text: str
) -> list[tuple[str | None, str]]:
    """Return messages about the keys of one mapping, each with its key. A misspelled key is not reported as missing.

    Only the first unknown keys are compared with the known ones. The others are counted.
    """
    names = list(known)
    unknown = list(unknown)
    first, others = unknown[:MOST_UNKNOWN], unknown[MOST_UNKNOWN:]
    meant = {nearest(key, names) for key in first}
    messages: list[tuple[str | None, str]] = [
        (key, f"{unknown_text.format(key)}; {did_you_mean(key, [name for name in names if name != key])}")
        for key in first
    ]
    if others:
        messages.append((others[0], f"{unknown_text.format(others[0])}, and {len(others) - 1:,} more"))
    return messages + [(None, missing_text.format(name)) for name in missing if name not in meant]


def problems_of(
    error: ValidationError,
    data: Any,
    keys: Keys,
    known: Callable[[Keys], Iterable[str]],
    *,
    unknown_text: str = "unknown key '{}'",
    missing_text: str = "the key '{}' is missing",
) -> list[Problem]:
    """Return all problems with the data at `keys`. `known` returns the keys that a mapping inside the data can have."""
    found: list[_Found] = []
    unknown: dict[Keys, list[str]] = {}
    missing: dict[Keys, list[str]] = {}
    for item in error.errors(include_url=False):
        place, tagged = _locate(item["loc"], data, skip_last=item["type"] == "missing")
        if item["type"] == "missing" and isinstance(item["loc"][-1], int):
            found.append(_Found(place, f"the list is too short: item {item['loc'][-1]} is missing", tagged=tagged))
        elif item["type"] == "missing":
            missing.setdefault(place, []).append(str(item["loc"][-1]))
        elif item["type"] == "extra_forbidden":
            unknown.setdefault(place[:-1], []).append(str(place[-1]))
        else:
            found.append(_describe(item, place, _value_at(data, place), tagged))
    problems = [Problem((*keys, *one.keys), one.message) for one in _combine(found, {*unknown, *missing})]
    for place in dict.fromkeys([*unknown, *missing]):
        messages = missing_and_unknown(
            unknown.get(place, []), missing.get(place, []), known(place), unknown_text, missing_text
        )
        for key, message in messages:
            is_far = key in unknown.get(place, [])[:MOST_UNKNOWN] and nearest(str(key), list(known(place))) is None
            deeper = _places_below(str(key), place, data) if is_far else []
            if len(deeper) == 1:
                message = f"{unknown_text.format(key)}; did you mean '{dotted((*keys, *deeper[0]))}'?"
            problems.append(Problem((*keys, *place, *([key] if key else [])), message))
    return problems


def _places_below(key: str, place: Keys, data: Any) -> list[Keys]:
    """Return the keys that lead to other values of this name, inside the mappings that the one at `place` holds."""
    data = _value_at(data, place)
    found: list[Keys] = []
    inside = [((*place, name), value) for name, value in data.items() if name != key]
    for path, value in inside:
        if isinstance(value, dict):
            found += [(*path, key)] if key in value else []
            inside += [((*path, name), each) for name, each in value.items()]
    return found


def _value_at(data: Any, place: Keys) -> Any:
    for part in place:
        data = data[part]
    return data


def _locate(loc: tuple[int | str, ...], data: Any, skip_last: bool) -> tuple[Keys, bool]:
    """Return where in the data an error is: pydantic's path without its names for the alternatives of a union."""
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


def _describe(item: Any, place: Keys, value: Any, tagged: bool) -> _Found:
    wording = _EXPECTED.get(item["type"])
    if not isinstance(value, FromEnvironment):
        value = item["input"]
    if wording is not None:
        context = item.get("ctx", {}).items()
        if item["type"] == "too_short" and item["ctx"]["min_length"] == 1:
            wording = "a list that is not empty"
        limits = {key: f"{value:g}" if isinstance(value, float) else value for key, value in context}
        return _Found(place, "", wording.format(**limits), value, tagged)
    text: str = item["msg"]
    if isinstance(value, FromEnvironment):  # pydantic knows only the value
        text = text.replace(show(str(value)), show(value))
    if text.startswith("Input should be "):
        return _Found(place, "", text.removeprefix("Input should be "), value, tagged)
    return _Found(place, text.removeprefix("Value error, "), tagged=tagged)


def _combine(found: list[_Found], others: set[Keys]) -> list[_Found]:
    """Return one problem per value, with the expectations of all alternatives in one line.

    If an alternative has a more precise problem deeper inside, that one is reported instead. `others` are the mappings
    that have problems with their keys.
    """
    result: list[_Found] = []
    by_place: dict[Keys, list[_Found]] = {}
    for one in found:
        by_place.setdefault(one.keys, []).append(one)
    around = {place[:length] for place in by_place for length in range(len(place))}
    around |= {other[:length] for other in others for length in range(len(other) + 1)}
    for place, here in by_place.items():
        if place in around and all(one.tagged for one in here):
            continue
        expected = list(dict.fromkeys(one.expected for one in here if one.expected is not None))
        if len(expected) > 1 and not isinstance(here[0].value, dict):
            # Almost everything can be an object; this only helps people who wrote a mapping.
            expected = [wording for wording in expected if wording != OBJECT]
        if expected:
            last = f" or {expected[-1]}" if len(expected) > 1 else ""
            listed = ", ".join(expected[:-1]) + last if last else expected[0]
            result.append(_Found(place, f"expected {listed}, found {show(here[0].value)}"))
        result += [one for one in here if one.expected is None]
    return result
