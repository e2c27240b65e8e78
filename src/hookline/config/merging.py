"""Merges configs: mappings are merged, everything else is replaced, and the later config wins."""

from __future__ import annotations

from dataclasses import dataclass

from hookline.common.marks import Keys, refusal, show
from hookline.common.nodes import Node, plain

DELETE = "_delete_"


@dataclass(frozen=True)
class Conflict:
    """Two bases of one file that set the same key to different values. The later one wins."""

    keys: Keys
    first: Node
    second: Node


def read_markers(node: Node, keys: Keys = ()) -> Node:
    """Turn every `_delete_` key into a property of its mapping."""
    if isinstance(node.value, list):
        return Node([read_markers(child, (*keys, index)) for index, child in enumerate(node.value)], node.mark)
    if not isinstance(node.value, dict):
        return node
    marker = node.value.get(DELETE)
    if marker is not None and not isinstance(marker.value, bool):
        raise refusal(marker.mark, (*keys, DELETE), f"expected true or false, found {show(marker.value)}")
    children = {key: read_markers(child, (*keys, key)) for key, child in node.value.items() if key != DELETE}
    return Node(children, node.mark, replaces=marker is not None and marker.value is True)


def merge(under: Node, over: Node) -> Node:
    """Return `over` merged on top of `under`. Merging is associative."""
    if over.replaces or not isinstance(over.value, dict):
        return over
    if not isinstance(under.value, dict):
        return Node(over.value, over.mark, replaces=True)
    result = dict(under.value)
    for key, node in over.value.items():
        result[key] = merge(result[key], node) if key in result else node
    return Node(result, over.mark, replaces=under.replaces)


def conflicts(under: Node, over: Node, keys: Keys = ()) -> list[Conflict]:
    """Return the keys that two trees set differently, except those that the later one replaces with `_delete_`."""
    if over.replaces:
        return []
    if isinstance(under.value, dict) and isinstance(over.value, dict):
        both = [key for key in under.value if key in over.value]
        return [found for key in both for found in conflicts(under.value[key], over.value[key], (*keys, key))]
    first, second = plain(under), plain(over)
    same = type(first) is type(second) and (first == second or first is second)
    return [] if same else [Conflict(keys, under, over)]


def decides(node: Node, keys: Keys) -> bool:
    """Return whether a tree itself sets the value at these keys."""
    for key in keys:
        if node.replaces or not isinstance(node.value, dict):
            return True
        child = node.value.get(str(key))
        if child is None:
            return False
        node = child
    return True
