"""Overrides from the command line: `optim.optimizer.lr=0.1`, `custom_hooks[0].momentum=0.1`."""

from __future__ import annotations

import re

from hookline.common.marks import Keys, Mark, dotted, show
from hookline.common.nodes import MAX_DEPTH, Node, is_text
from hookline.common.yaml_text import parse
from hookline.config.merging import read_markers
from hookline.errors import ConfigError, nearest

# One part of a dotted path: a name, then any number of [0].
_PART = re.compile(r"([^\[\]]*)((?:\[[0-9]{1,9}\])*)")


def apply(root: Node, override: str) -> Node:
    """Return the tree with one `key.path=value` set. The value is YAML, and replaces the old value."""
    key, equals, text = override.partition("=")
    mark = Mark(f"override {show(override, longest=200)}")
    if not equals:
        raise ConfigError(f"{mark}: missing '='; write an override as key.path=value")
    keys = split_path(key.strip())
    if keys is None or len(keys) > MAX_DEPTH or not is_text(key):
        raise ConfigError(
            f"{mark}: the key is not a valid path; write it like optim.optimizer.lr or custom_hooks[0].type"
        )
    if keys[0] == "_base_":
        raise ConfigError(f"{mark}: '_base_' cannot be overridden; it is read from the file")
    value = read_markers(parse(text, lambda line, column: mark))
    return _set(root, keys, Node(value.value, mark), mark, ())


def split_path(text: str) -> Keys | None:
    """Return the keys of a dotted path, or None if it is not one.

    >>> split_path("custom_hooks[0].momentum")
    ('custom_hooks', 0, 'momentum')
    """
    keys: list[str | int] = []
    for part in text.split("."):
        match = _PART.fullmatch(part)
        if match is None or not part or (not match[1] and not keys):
            return None
        if match[1]:
            keys.append(match[1])
        keys.extend(int(index) for index in re.findall(r"[0-9]+", match[2]))
    return tuple(keys)


def _set(node: Node | None, keys: Keys, value: Node, mark: Mark, done: Keys) -> Node:
    if not keys:
        return value
    key, place = keys[0], mark if node is None else node.mark
    here = None if node is None else node.value
    if here is None:
        here = [] if key in (0, "0") else {}
    if isinstance(here, list):
        index = _parse_index(key, here, mark, done)
        old = here[index] if index < len(here) else None
        return Node([*here[:index], _set(old, keys[1:], value, mark, (*done, index)), *here[index + 1 :]], place)
    if not isinstance(here, dict):
        raise ConfigError(f"{mark}: '{dotted(done)}' is {show(here)}, not a mapping or a list")
    if isinstance(key, int):
        what = "is a mapping" if here else "does not exist"
        raise ConfigError(f"{mark}: '{dotted(done)}' {what}, but [{key}] needs a list")
    return Node({**here, key: _set(here.get(key), keys[1:], value, mark, (*done, key))}, place)


def _parse_index(key: str | int, items: list[Node], mark: Mark, done: Keys) -> int:
    if isinstance(key, str) and not re.fullmatch("[0-9]{1,9}", key):
        known = {name for item in items if isinstance(item.value, dict) for name in item.value}
        raise ConfigError(
            f"{mark}: '{dotted(done)}' is a list, so write an index before '{key}': "
            f"{dotted(done)}[0].{nearest(key, known) or key}"
        )
    index = int(key)
    if index > len(items):
        have = "1 item" if len(items) == 1 else f"{len(items)} items"
        raise ConfigError(
            f"{mark}: '{dotted(done)}' has {have}; index {len(items)} would append, but {index} is too large"
        )
    return index
