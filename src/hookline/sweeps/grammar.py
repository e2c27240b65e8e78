"""Tells parameters from overrides, in the words of the command line and in the `sweep` section of a config.

These are words of the command line:

optim.optimizer.lr=1e-4..1e-1:log       a range, here with a logarithmic scale
model.width=16..64:16                   a range with steps; ints, because all numbers are ints
model.width=32,64,128                   a list
optim.optimizer.type=SGD,AdamW
model.layers=[8,8],[16]                 lists and mappings can be values, too
train.max_epochs=5                      neither: an override for all trials
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hookline.common.marks import Mark, dotted, show
from hookline.common.nodes import is_text, plain
from hookline.common.yaml_text import parse, scalar
from hookline.config.overrides import split_path
from hookline.errors import ConfigError
from hookline.sweeps.space import Choices, Range, Space, Values, keys_of

_NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::(log|{_NUMBER}))?")
#: The beginning or the end of a range: the rest must be one, too.
_LIKE_A_RANGE = re.compile(rf"{_NUMBER}\.\.(?!/).*|.*(?<!\.)\.\.{_NUMBER}(:.*)?")
_OPENING, _CLOSING = "([{", ")]}"


def read_words(words: Iterable[str]) -> tuple[dict[str, Values], list[str]]:
    """Return the parameters by key, and the words that are ordinary overrides."""
    parameters: dict[str, Values] = {}
    overrides: list[str] = []
    for word in words:
        key, equals, value = word.partition("=")
        values = read_values(value, word) if equals else None
        if values is None:
            overrides.append(word)  # the config reports what is wrong with it
            continue
        name = canonical(key, word)
        if any(keys_of(name) == keys_of(other) for other in parameters):
            raise ConfigError(f"{shown(word)}: the search space has '{name}' twice")
        parameters[name] = values
    for word in overrides:
        name = word.partition("=")[0].strip()
        if any(keys_of(name) == keys_of(other) for other in parameters):
            raise ConfigError(
                f"{shown(word)}: '{name}' has a single value here, and a range or a list in another word; remove one "
                "of them"
            )
    return parameters, overrides


def read_values(text: str, word: str) -> Values | None:
    """Return the range or list that a text describes; None if it is a single value."""
    text = text.strip()
    if match := _RANGE.fullmatch(text):
        low, high, more = match.groups()
        step = None if more in (None, "log") else _number(more)
        return Range(_number(low), _number(high), more == "log", step)
    if _LIKE_A_RANGE.fullmatch(text) and not set(text) & set("'\""):
        raise ConfigError(f"{shown(word)}: not a valid range; write low..high, low..high:log or low..high:step")
    parts = list(split(text))
    if len(parts) == 1:
        return None
    for part in parts:
        if not part.strip():
            raise ConfigError(f"{shown(word)}: a value between two commas is missing; for an empty text, write ''")
    return Choices(tuple(plain(parse(part.strip(), lambda line, column: Mark(shown(word)))) for part in parts))


def split(text: str) -> Iterator[str]:
    """Split a text at its commas, except inside quotes and brackets.

    >>> list(split("1,[2,3],'a,b'"))
    ['1', '[2,3]', "'a,b'"]
    """
    depth, quote, start = 0, "", 0
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"" and (depth or not text[start:position].strip()):
            quote = character
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif character == "," and depth <= 0:
            yield text[start:position]
            start = position + 1
    yield text[start:]


def canonical(key: str, word: str) -> str:
    """Return a key in the form in which messages show it."""
    keys = split_path(key.strip())
    if keys is None or not is_text(key):
        raise ConfigError(
            f"{shown(word)}: the key is not a valid path; write it like optim.optimizer.lr or custom_hooks[0].type"
        )
    return dotted(keys)


def read_section(section: Mapping[str, Any], title: str) -> dict[str, Values]:
    """Return the parameters of `sweep: {space: ...}`, which was checked."""
    return {canonical(key, key): _from_section(f"{title} sweep.space.{key}", value) for key, value in section.items()}


def _from_section(place: str, value: Any) -> Values:
    if isinstance(value, list):
        return Choices(tuple(value))
    if isinstance(value, dict):
        return Choices(tuple(value["values"])) if "values" in value else Range(**value)
    values = read_values(str(value), f"{place}: {value}")
    if values is None:
        raise ConfigError(
            f"{place}: expected a range such as '1e-4..1e-1:log', or a list, found {show(value)}; a single value "
            "belongs to the config itself"
        )
    return values


def combine(section: Mapping[str, Values], words: Mapping[str, Values], overrides: Iterable[str]) -> Space:
    """Return the space of a sweep. The command line wins, and a key with one value in it is not searched."""
    fixed = {keys_of(word.partition("=")[0].strip()) for word in overrides} | {keys_of(key) for key in words}
    kept = {key: values for key, values in section.items() if keys_of(key) not in fixed}
    return Space({**kept, **words})


def shown(word: str) -> str:
    """Return a word of the command line as messages show it."""
    return show(word, longest=200)


def _number(text: str) -> int | float:
    number = scalar(text)
    assert isinstance(number, (int, float))
    return number
