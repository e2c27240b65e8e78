"""A config as a tree of plain values that know their positions.

Nodes never change after they are created, so an anchor, a base and an interpolation can share them. Each node knows
its size with all shared parts written out. A few hundred bytes of aliases can expand to billions of values. The sizes
reveal this before anything is copied, and such a config is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hookline.common.environment import FromEnvironment
from hookline.common.marks import Keys, Mark, refusal, show
from hookline.errors import ConfigError

# Far more than any real config has. Reading this many takes about two seconds: a hostile file cannot cost more.
MAX_NODES = 20_000
MAX_DEPTH = 100
# The largest int: more than 1,000 digits. Python does not even print an int of 4,300 digits.
MAX_BITS = 4096

Value = str | int | float | bool | None | list["Node"] | dict[str, "Node"]


class TooLargeError(ConfigError):
    """More values, or more levels of nesting, than a config can have."""

    def __init__(self, mark: Mark, reason: str) -> None:
        super().__init__(f"{mark}: {reason}; this is not a config")
        self.reason = f"{reason}; this is not a config"


class Node:
    """A scalar, a list or a mapping, with its position (of its key, if it has one) and its written-out size."""

    __slots__ = ("depth", "mark", "replaces", "size", "value")
    size: int
    depth: int

    def __init__(self, value: Value, mark: Mark, *, replaces: bool = False) -> None:
        inside: Iterable[Node] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        self.value = value
        self.mark = mark
        #: True if marked `_delete_: true`: it replaces the value that it would otherwise be merged into.
        self.replaces = replaces
        self.size = 1 + sum(node.size for node in inside)
        self.depth = 1 + max((node.depth for node in inside), default=0)
        if self.size > MAX_NODES:
            raise TooLargeError(mark, f"more than {MAX_NODES:,} values, counting repeated ones")
        if self.depth > MAX_DEPTH:
            raise TooLargeError(mark, f"more than {MAX_DEPTH} levels deep")

    def at(self, mark: Mark) -> Node:
        """Return the same value with another position."""
        return Node(self.value, mark, replaces=self.replaces)


def why_unusable(value: Any) -> str:
    """Return why a config cannot hold this text or number; empty if it can."""
    if isinstance(value, str) and not is_text(value):
        return "the text has a character that files cannot store (NUL or an unpaired surrogate)"
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        return f"the number has {value.bit_length()} bits, too many to read"
    return ""


def is_text(value: str) -> bool:
    """Return whether files, paths and JSON can store this text: it has no NUL and no unpaired surrogate."""
    return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)


def plain(node: Node) -> Any:
    """Return the tree as plain dicts, lists and scalars that share nothing."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return node.value


def walk(node: Node, keys: Keys = ()) -> Iterator[tuple[Keys, Node]]:
    """Yield every value of a tree with its keys, parents first."""
    yield keys, node
    if isinstance(node.value, dict):
        for key, child in node.value.items():
            yield from walk(child, (*keys, key))
    elif isinstance(node.value, list):
        for index, child in enumerate(node.value):
            yield from walk(child, (*keys, index))


def from_plain(value: Any, mark: Mark, keys: Keys = ()) -> Node:
    """Return the tree of Python data. Refuse data that YAML cannot express. Tuples become lists."""
    if len(keys) > MAX_DEPTH:
        raise TooLargeError(mark, f"more than {MAX_DEPTH} levels deep, or a part of it contains itself")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise refusal(mark, keys, f"a key must be a string, not {show(key)}")
        return Node({key: from_plain(child, mark, (*keys, key)) for key, child in value.items()}, mark)
    if isinstance(value, (list, tuple)):
        return Node([from_plain(child, mark, (*keys, index)) for index, child in enumerate(value)], mark)
    if reason := why_unusable(value):
        raise refusal(mark, keys, reason)
    if isinstance(value, FromEnvironment):  # from another config
        return Node(value.reference, mark)
    if type(value) in (str, int, float, bool, type(None)):
        return Node(value, mark)
    raise refusal(
        mark,
        keys,
        f"a config must contain only plain values (strings, numbers, true and false, null, lists, mappings), "
        f"not {type(value).__name__}",
    )
