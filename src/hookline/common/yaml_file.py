"""Reads YAML files into plain data, and writes plain data as YAML."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.representer import SafeRepresenter

from hookline.common.environment import FromEnvironment
from hookline.common.files import regular
from hookline.common.marks import Mark, show
from hookline.common.nodes import Node, plain
from hookline.common.yaml_text import parse, reads_as_text
from hookline.errors import ConfigError, nearest

MAX_BYTES = 1_000_000


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the data of a file written by `dump`. Bases and references in it are already resolved."""
    data: dict[str, Any] = plain(read_mapping(Path(path)))
    return data


def read_mapping(file: Path) -> Node:
    """Read a file whose top level is a mapping, with the position of every value."""
    text = _read_text(file)
    root = parse(text, lambda line, column: Mark(str(file), line, column))
    if root.value is None:
        raise ConfigError(f"{file}: the file is empty; a config must be a mapping of keys to values")
    if not isinstance(root.value, dict):
        raise ConfigError(f"{root.mark}: a config must be a mapping of keys to values, not {show(root.value)}")
    return root


def _read_text(file: Path) -> str:
    try:
        with open(file, "rb", opener=regular) as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        hint = nearest_file(file) or "; to create a project with a config: hookline init FOLDER"
        raise ConfigError(f"{file}: file not found{hint}") from None
    except IsADirectoryError:
        raise ConfigError(f"{file}: this is a folder, not a YAML file") from None
    except OSError as error:
        raise ConfigError(f"{file}: the file cannot be read: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{file}: the file is larger than {MAX_BYTES:,} bytes; this is not a config")
    if b"\0" in content:
        raise ConfigError(f"{file}: this is a binary file, not YAML")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise ConfigError(f"{file}:{line}:{column}: the file is not UTF-8 text") from error


def nearest_file(file: Path) -> str:
    """Return the end of a message about a missing file, which suggests the YAML file with the closest name."""
    try:
        names = {entry.stem: entry.name for entry in file.parent.iterdir() if entry.suffix in (".yaml", ".yml")}
    except OSError:
        return f"; there is no folder {file.parent}"
    best = nearest(file.stem, names)
    return f"; did you mean '{file.parent / names[best]}'?" if best is not None else ""


def dump(data: Mapping[str, Any]) -> str:
    """Return the YAML text of a config, with the keys in their order. Reading it back yields equal data.

    >>> print(dump({"lr": 1e-3, "name": "on", "tags": ["1e-3"]}), end="")
    lr: 0.001
    name: on
    tags:
    - '1e-3'
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # ruamel types it as None
    yaml.allow_unicode = True
    yaml.width = 120
    stream = io.StringIO()
    yaml.dump(dict(data), stream)
    return stream.getvalue()


class _Representer(SafeRepresenter):
    """Writes plain YAML: no anchors for repeated values, and quotes around text that would not be read as text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, data: str) -> Any:
        style = None if reads_as_text(data) else "'"
        if not data.isprintable():
            style = '"'  # the only style that preserves every kind of line break and whitespace
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Representer.add_representer(str, _Representer.represent_text)
_Representer.add_representer(
    FromEnvironment, lambda representer, data: _Representer.represent_text(representer, data.reference)
)
