"""Parses YAML text into a tree of plain values with positions.

The values are read from the parser's events, not from its constructors, so no tag can ever create an object. They
follow YAML 1.2: `1e-3` is a number, while `on` and dates are strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scanner import Scanner, ScannerError

from hookline.common.marks import Keys, Mark, refusal, show
from hookline.common.nodes import MAX_DEPTH, MAX_NODES, Node, TooLargeError, why_unusable
from hookline.errors import ConfigError, HooklineError

_WORDS = {
    **dict.fromkeys(["", "~", "null", "Null", "NULL"]),
    **dict.fromkeys(["true", "True", "TRUE"], True),
    **dict.fromkeys(["false", "False", "FALSE"], False),
    **dict.fromkeys([".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"], float("inf")),
    **dict.fromkeys(["-.inf", "-.Inf", "-.INF"], float("-inf")),
    **dict.fromkeys([".nan", ".NaN", ".NAN"], float("nan")),
}
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_PLAIN_TAGS = {"!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}


def scalar(text: str) -> str | int | float | bool | None:
    """Return the value of an unquoted YAML 1.2 scalar.

    >>> [scalar(text) for text in ("1e-3", "0x10", "on", "~", "True", "2026-01-01")]
    [0.001, 16, 'on', None, True, '2026-01-01']
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEX.fullmatch(text):
        return int(text[2:], 16)
    return float(text) if _FLOAT.fullmatch(text) else text


def reads_as_text(text: str) -> bool:
    """Return whether a text is read as a string when it is written without quotes."""
    return text not in _WORDS and not any(kind.fullmatch(text) for kind in (_INT, _OCTAL, _HEX, _FLOAT))


def parse(text: str, mark: Callable[[int, int], Mark]) -> Node:
    """Return the tree of a YAML text. `mark` turns a line and a column, counted from 1, into a position."""
    parser = _Parser(mark)
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.Scanner = _Scanner
        return parser.document(yaml.parse(text))
    except MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        where = mark(at.line + 1, at.column + 1) if at is not None else mark(1, 1)
        hint = "; inside [] and {}, write ${...} in quotes" if "got '{'" in (error.problem or "") else ""
        raise ConfigError(f"{where}: invalid YAML: {error.problem or error.context}{hint}") from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        shown = show(text[error.position : error.position + 1])
        raise ConfigError(f"{mark(line, column)}: invalid YAML: the character {shown} is not allowed") from error
    except HooklineError:
        raise
    except (YAMLError, ValueError, AssertionError, AttributeError, TypeError) as error:
        # ruamel turns some malformed directives into errors of Python.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"{mark(1, 1)}: invalid YAML: {reason}") from error


class _Scanner(Scanner):
    r"""Reports an escape such as `\U00110000`, which stands for no character, with its position."""

    def scan_flow_scalar_non_spaces(self, double: Any, start_mark: Any) -> Any:
        try:
            return super().scan_flow_scalar_non_spaces(double, start_mark)
        except (ValueError, OverflowError):  # from `chr`, with the reader after the `U`
            escape = f"\\U{self.reader.prefix(8)}"
            problem = f"the escape {escape} stands for no character; the last one is \\U0010FFFF"
            raise ScannerError(
                "while scanning a double-quoted scalar", start_mark, problem, self.reader.get_mark()
            ) from None


class _Parser:
    """Turns the events of one document into nodes, from the inside out."""

    def __init__(self, mark: Callable[[int, int], Mark]) -> None:
        self.mark = mark
        self.values_read = 0
        self.anchors: dict[str, Node | None] = {}  # None until the anchored value is complete

    def document(self, events: Iterator[Any]) -> Node:
        root: Node | None = None
        for event in events:
            if not isinstance(event, DocumentStartEvent):
                continue
            if root is not None:
                raise ConfigError(
                    f"{self.place(event)}: a second document starts here; a config must be a single document"
                )
            root = self.value(next(events), events, ())
        return root if root is not None else Node(None, self.mark(1, 1))

    def place(self, event: Any) -> Mark:
        return self.mark(event.start_mark.line + 1, event.start_mark.column + 1)

    def value(self, event: Any, events: Iterator[Any], keys: Keys) -> Node:
        place = self.place(event)
        if isinstance(event, AliasEvent):
            return self.alias(event.anchor, place, keys)
        self.values_read += 1
        if self.values_read > MAX_NODES:
            raise refusal(place, keys[:1], f"more than {MAX_NODES:,} values; this is not a config")
        if len(keys) > MAX_DEPTH:
            raise refusal(place, keys[:1], f"more than {MAX_DEPTH} levels deep; this is not a config")
        if event.tag is not None and str(event.tag) not in _PLAIN_TAGS:
            tag = str(event.tag).replace("tag:yaml.org,2002:", "!!")
            raise refusal(place, keys, f"the tag {show(tag)} is not allowed; a config must contain only plain values")
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        node = self.make(self.content(event, events, keys), place, keys)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def alias(self, name: str, place: Mark, keys: Keys) -> Node:
        if name not in self.anchors:
            raise refusal(
                place, keys, f"no anchor '&{name}' before this '*{name}'; if this is text, write it in quotes"
            )
        node = self.anchors[name]
        if node is None:
            raise refusal(place, keys, f"'*{name}' is used inside its own anchor '&{name}'")
        return node.at(place)

    def make(self, value: Any, place: Mark, keys: Keys) -> Node:
        try:
            return Node(value, place)
        except TooLargeError as error:
            raise refusal(place, keys, error.reason) from None

    def content(self, event: Any, events: Iterator[Any], keys: Keys) -> Any:
        if isinstance(event, ScalarEvent):
            return self.scalar(event, keys)
        if isinstance(event, SequenceStartEvent):
            return self.sequence(events, keys)
        assert isinstance(event, MappingStartEvent)
        return self.mapping(events, keys)

    def scalar(self, event: Any, keys: Keys) -> str | int | float | bool | None:
        text: str = event.value
        if reason := why_unusable(text):
            raise refusal(self.place(event), keys, reason)
        if not event.implicit[0] or event.tag is not None:
            return text
        try:
            value = scalar(text)
            too_long = bool(why_unusable(value))
        except ValueError:
            too_long = True
        if too_long:
            digits = len(re.sub("^[-+]|^0[xo]", "", text))
            raise refusal(self.place(event), keys, f"the number has {digits} digits, too many to read")
        return value

    def sequence(self, events: Iterator[Any], keys: Keys) -> list[Node]:
        items: list[Node] = []
        while not isinstance(event := next(events), SequenceEndEvent):
            items.append(self.value(event, events, (*keys, len(items))))
        return items

    def mapping(self, events: Iterator[Any], keys: Keys) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        seen: dict[str, Mark] = {}
        while not isinstance(event := next(events), MappingEndEvent):
            key, place = self.key(event, keys), self.place(event)
            if key in seen:
                raise refusal(place, (*keys, key), f"duplicate key, already given at {seen[key]}")
            seen[key] = place
            node = self.value(next(events), events, (*keys, key))
            if key == "<<" and event.implicit[0]:
                merged = self.merged(node, (*keys, key))
            else:
                entries[key] = node.at(place)
        return merged | entries

    def key(self, event: Any, keys: Keys) -> str:
        place = self.place(event)
        if not isinstance(event, ScalarEvent):
            raise refusal(place, keys, "a key must be a string, not a list, a mapping or an alias")
        if event.tag is not None and str(event.tag) not in _PLAIN_TAGS:
            raise refusal(place, keys, f"the tag {show(str(event.tag))} is not allowed; a key must be a plain string")
        key = self.scalar(event, keys)
        if not isinstance(key, str):
            raise refusal(place, keys, f"a key must be a string, not {show(key)}; write it in quotes: '{event.value}'")
        return key

    def merged(self, node: Node, keys: Keys) -> dict[str, Node]:
        """Return the keys that `<<` adds. If several mappings have a key, the first one wins."""
        result: dict[str, Node] = {}
        for part in node.value if isinstance(node.value, list) else [node]:
            if not isinstance(part.value, dict):
                raise refusal(node.mark, keys, f"'<<' takes a mapping or a list of them, not {show(part.value)}")
            result = part.value | result
        return result
