"""DictAction: `--cfg-options model.depth=50 data.size=[3,4]` on a command line."""

from __future__ import annotations

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

CLOSES = {"[": "]", "(": ")"}


class DictAction(Action):
    """An argparse action that collects `KEY=VALUE` into a dict; values are numbers, words, and lists or tuples."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Add the options of the command line to those already parsed."""
        options = dict(getattr(namespace, self.dest, None) or {})
        for given in [values] if isinstance(values, str) else values or ():
            key, equals, text = str(given).partition("=")
            if not equals:
                parser.error(f"{option_string}: expected KEY=VALUE, not {given!r}")
            try:
                options[key] = parse_value(text)
            except ValueError as error:
                parser.error(f"{option_string} {given}: {error}")
        setattr(namespace, self.dest, options)


def parse_value(text: str) -> Any:
    """Parse a value from the command line.

    >>> [parse_value(text) for text in ("1", "1e-3", "true", "None", "a,b", "[(1,2),x]")]
    [1, 0.001, True, None, ['a', 'b'], [(1, 2), 'x']]
    """
    text = text.strip().strip("'\"")
    if text[:1] in CLOSES:
        if not text.endswith(CLOSES[text[0]]):
            raise ValueError(f"a bracket is opened but not closed in {text!r}")
        items = [parse_value(part) for part in _split(text[1:-1])]
        return items if text[0] == "[" else tuple(items)
    parts = _split(text)
    return _parse_word(text) if len(parts) <= 1 else [parse_value(part) for part in parts]


def _split(text: str) -> list[str]:
    """Split a text at the commas that are outside brackets."""
    parts, depth, start = [], 0, 0
    for position, sign in enumerate(text):
        depth += (sign in "[(") - (sign in ")]")
        if depth < 0:
            raise ValueError(f"a bracket is closed but not opened in {text!r}")
        if sign == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    if depth:
        raise ValueError(f"a bracket is opened but not closed in {text!r}")
    return [part for part in (*parts, text[start:]) if part.strip()]


def _parse_word(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    known = {"true": True, "false": False, "none": None}
    return known.get(text.lower(), text)
