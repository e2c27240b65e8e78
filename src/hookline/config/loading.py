"""Loads a YAML file into merged plain data that knows where each value comes from.

    loaded = load("digits.yaml", overrides=["optim.optimizer.lr=0.1"])
    loaded.data["optim"]["optimizer"]["lr"]        0.1
    loaded.locate(("optim", "optimizer", "type"))  digits.yaml:14:15

The steps, in this order: merge the file over its `_base_` files, apply the overrides, resolve `${...}` references.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hookline.common.files import real_path
from hookline.common.marks import Keys, Mark, Problem, dotted, refusal, refuse_all, show
from hookline.common.nodes import Node, from_plain, plain, walk
from hookline.common.yaml_file import nearest_file, read_mapping
from hookline.config.interpolation import find_missing, interpolate
from hookline.config.merging import conflicts, decides, merge, read_markers
from hookline.config.overrides import apply
from hookline.errors import ConfigError
from hookline.rundir import origin

BASE = "_base_"
MAX_BASES = 50


@dataclass
class LoadedConfig:
    """Merged plain data, the position of every value in it, and notices about the merge."""

    data: dict[str, Any]
    where: dict[Keys, Mark] = field(default_factory=dict)
    file: Path | None = None
    notices: list[str] = field(default_factory=list)
    #: A folder with modules of the user, if they are not next to the file.
    modules: Path | None = None

    @property
    def title(self) -> str:
        """Return the name of the whole config in messages."""
        return "config" if self.file is None else str(self.file)

    def mark(self, keys: Keys) -> Mark:
        """Return the position of a value, or of the closest known value around it."""
        for length in range(len(keys), -1, -1):
            if keys[:length] in self.where:
                return self.where[keys[:length]]
        return Mark(self.title)

    def locate(self, keys: Keys) -> str:
        """Return the position of a value as text: `digits.yaml:12:5`."""
        return str(self.mark(keys))

    def overrides_inside(self, keys: Keys) -> list[str]:
        """Return the overrides that set values inside the one at these keys, without one that set all of it."""
        marks = [mark for path, mark in self.where.items() if path[: len(keys)] == keys and mark != self.mark(keys)]
        return list(dict.fromkeys(mark.source for mark in marks if mark.line is None))


def load(path: str | os.PathLike[str], overrides: Iterable[str] = ()) -> LoadedConfig:
    """Read a YAML file with its bases, apply overrides, and resolve references."""
    if "\0" in os.fspath(path):
        raise ConfigError(f"{os.fspath(path)!r}: a path cannot contain a NUL character")
    file = Path(path)
    notices: list[str] = []
    root = _merge_with_bases(file, (), {}, notices)
    loaded = _finish(root, overrides, file, notices)
    written_from = origin.read(file)
    loaded.modules = written_from.find_modules() if written_from is not None else None
    return loaded


def from_dict(config: Mapping[str, Any], overrides: Iterable[str] = ()) -> LoadedConfig:
    """Load a config from Python data, which is copied, in the same way."""
    mark = Mark("config")
    root = from_plain(dict(config), mark)
    assert isinstance(root.value, dict)
    if BASE in root.value:
        raise ConfigError(f"config {BASE}: only a file can have a base")
    return _finish(read_markers(root), overrides, None, [])


def _finish(root: Node, overrides: Iterable[str], file: Path | None, notices: list[str]) -> LoadedConfig:
    for override in overrides:
        root = apply(root, override)
    title = "config" if file is None else str(file)
    refuse_all(title, [(mark, Problem(keys, "this value is ??? and must be set")) for keys, mark in find_missing(root)])
    root = interpolate(root)
    where = {keys: node.mark for keys, node in walk(root)}
    return LoadedConfig(plain(root), where, file, list(dict.fromkeys(notices)))


def _merge_with_bases(file: Path, chain: tuple[Path, ...], seen: dict[Path, Node], notices: list[str]) -> Node:
    """Return a file merged over its bases. A base that several files share is read once."""
    real = real_path(file)
    if real in (real_path(step) for step in chain):
        shown = " -> ".join(str(step) for step in (*chain, file))
        raise ConfigError(f"{chain[-1]}: {BASE} is circular: {shown}")
    if len(chain) >= MAX_BASES:
        raise ConfigError(f"{chain[0]}: {BASE} is nested more than {MAX_BASES} files deep")
    if real in seen:
        return seen[real]
    own = _read_file(file)
    assert isinstance(own.value, dict)
    base = own.value.get(BASE)
    own = read_markers(Node({key: node for key, node in own.value.items() if key != BASE}, own.mark))
    under: Node | None = None
    for node in _base_nodes(base):
        path = Path(os.path.normpath(file.parent / str(node.value)))
        if not os.path.lexists(path):
            raise refusal(node.mark, (BASE,), f"file not found: {path}{nearest_file(path)}")
        tree = _merge_with_bases(path, (*chain, file), seen, notices)
        if under is not None:
            notices += _describe_conflicts(under, tree, own, file)
        under = tree if under is None else merge(under, tree)
    seen[real] = own if under is None else merge(under, own)
    return seen[real]


def _base_nodes(base: Node | None) -> list[Node]:
    if base is None:
        return []
    nodes = base.value if isinstance(base.value, list) else [base]
    for node in nodes:
        if not isinstance(node.value, str) or not node.value:
            raise refusal(node.mark, (BASE,), f"expected a path or a list of paths, found {show(node.value)}")
    return nodes


def _describe_conflicts(under: Node, over: Node, own: Node, file: Path) -> list[str]:
    return [
        f"{found.second.mark} {dotted(found.keys)}: {show(plain(found.second))} replaces "
        f"{show(plain(found.first))} from {found.first.mark}; to choose one of them, set it in {file}"
        for found in conflicts(under, over)
        if not decides(own, found.keys)
    ]


def _read_file(file: Path) -> Node:
    root = read_mapping(file)
    for keys, node in walk(root):
        if keys[-1:] == (BASE,) and len(keys) > 1:
            raise refusal(node.mark, keys, f"{BASE} is only allowed at the top level of a file")
    return root
