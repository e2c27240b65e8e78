"""Config files: YAML, JSON, and Python where the caller says so."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hookline.common.marks import Mark
from hookline.common.nodes import plain
from hookline.common.yaml_text import parse
from hookline.dialects.mmengine.config import python_file
from hookline.dialects.mmengine.config.config_dict import ConfigDict, converted
from hookline.dialects.mmengine.config.merging import joined, merged, without_markers
from hookline.dialects.mmengine.config.variables import quoted_bases, substituted, with_bases
from hookline.dialects.script import how_to_allow
from hookline.errors import ConfigError

ENDINGS = (".py", ".json", ".yaml", ".yml")
RESERVED = ("filename", "text", "pretty_text", "env_variables")


class MissingFileError(ConfigError, FileNotFoundError):
    """A config, or a base of one, is not there."""


@dataclass
class Reader:
    """Reads a config with its bases."""

    allow_python: bool = False
    predefine: bool = True
    environment: bool = True
    #: The variables of the environment that were used, and the texts of all files, the config's own last.
    used: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def read(self, file: Path, via: tuple[Path, ...] = ()) -> ConfigDict:
        """All that a file says, over what its bases say."""
        if file in via:
            raise ConfigError(f"{file} is a base of itself: {' -> '.join(str(each) for each in (*via, file))}")
        own = self._text(file, via)
        text, used = substituted(own, file, self.predefine, self.environment)
        self.used |= used
        if file.suffix == ".py":
            names = python_file.bases_of(text, file)
            base = self._bases(names, file, via)
            found = python_file.run(text, file, base, lambda other: self.read(other, (*via, file)))
        else:
            content = _content(text, file)
            given = content.pop("_base_", [])
            base = self._bases([given] if isinstance(given, str) else given, file, via)
            found = converted(content)
        self.texts.append(f"{file}\n{own}")
        found = with_bases(found, base, str(file))
        for name in RESERVED:
            if name in found:
                raise ConfigError(f"{file}: '{name}' cannot be a key of a config: it is an attribute of Config")
        result: ConfigDict = merged(found, base) if base else without_markers(found)
        return result

    def _text(self, file: Path, via: tuple[Path, ...]) -> str:
        if file.suffix not in ENDINGS:
            raise ConfigError(f"{file}: a config ends with {', '.join(ENDINGS)}")
        if file.suffix == ".py" and not self.allow_python:
            who = f"{file}, a base of {via[-1]}," if via else str(file)
            raise ConfigError(f"{who} is Python: reading it runs it. If you trust it, say so: {how_to_allow()}")
        try:
            return file.read_text(encoding="utf-8")
        except OSError as error:
            who = f", a base of {via[-1]}" if via else ""
            raise MissingFileError(f"the config {file}{who} cannot be read: {error.strerror}") from error

    def _bases(self, names: Iterable[Any], file: Path, via: tuple[Path, ...]) -> ConfigDict:
        files = [(file.parent / str(name)).resolve() for name in names]
        return joined([(str(each), self.read(each, (*via, file))) for each in files])


def _content(text: str, file: Path) -> dict[str, Any]:
    text = quoted_bases(text)
    if file.suffix == ".json":
        try:
            found = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"{file}:{error.lineno}:{error.colno}: this is not JSON: {error.msg}") from error
    else:
        found = plain(parse(text, lambda line, column: Mark(str(file), line, column)))
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigError(f"{file}: a config is a mapping of names to values, not a {type(found).__name__}")
    return found
