"""Read config files: YAML, JSON and, if the caller allows it, Python."""

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
from hookline.dialects.mmengine.config.config_dict import ConfigDict, to_config_dicts, to_plain_dicts
from hookline.dialects.mmengine.config.external import find_in_project, set_scope
from hookline.dialects.mmengine.config.merging import join_bases, merge
from hookline.dialects.mmengine.config.variables import fill_bases, quote_bases, substitute
from hookline.dialects.script import how_to_allow
from hookline.errors import ConfigError

ENDINGS = (".py", ".json", ".yaml", ".yml")
RESERVED_KEYS = ("filename", "text", "pretty_text", "env_variables")


class MissingFileError(ConfigError, FileNotFoundError):
    """A config, or a base of one, cannot be read."""


@dataclass
class Reader:
    """Reads a config with its bases."""

    allow_python: bool = False
    predefine: bool = True
    environment: bool = True
    #: The environment variables that were used, and the texts of all files, ending with the config itself.
    used: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    #: The names that each Python file imports.
    imports: dict[Path, dict[str, Any]] = field(default_factory=dict)

    def read(self, file: Path, via: tuple[Path, ...] = (), imported: bool = False) -> ConfigDict:
        """Read a file and merge it into its bases. `imported` is True for a base that a Python config imports."""
        if file in via:
            raise ConfigError(f"{file} is a base of itself: {' -> '.join(str(each) for each in (*via, file))}")
        own = self._text(file, via)
        text, used = substitute(own, file, self.predefine, self.environment)
        self.used |= used
        if file.suffix == ".py":
            names = python_file.find_bases(text, file)
            base = self._bases(names, file, via)

            def load(other: Path) -> tuple[ConfigDict, dict[str, Any]]:
                return self.read(other, (*via, file), imported=True), self.imports[other]

            found, self.imports[file] = python_file.run(text, file, base, load, imported)
        else:
            content = _parse(text, file)
            given = content.pop("_base_", [])
            base = self._bases([given] if isinstance(given, str) else given, file, via)
            found = to_config_dicts(content)
        self.texts.append(f"{file}\n{own}")
        found = fill_bases(found, base, str(file))
        result = merge(found, base)
        for name in RESERVED_KEYS:
            if name in result:
                raise ConfigError(f"{file}: '{name}' cannot be a key of a config: it names an attribute of Config")
        return ConfigDict(to_plain_dicts(result))  # a Python config may have put plain dicts into its lists

    def _text(self, file: Path, via: tuple[Path, ...]) -> str:
        if file.suffix not in ENDINGS:
            raise ConfigError(f"{file}: the name of a config must end with one of {', '.join(ENDINGS)}")
        if file.suffix == ".py" and not self.allow_python:
            who = f"{file}, a base of {via[-1]}," if via else str(file)
            raise ConfigError(
                f"{who} is Python code, so reading it would run it. If you trust it, say so: {how_to_allow()}"
            )
        try:
            return file.read_text(encoding="utf-8")
        except OSError as error:
            who = f", a base of {via[-1]}" if via else ""
            raise MissingFileError(f"the config {file}{who} cannot be read: {error.strerror}") from error

    def _bases(self, names: Iterable[Any], file: Path, via: tuple[Path, ...]) -> ConfigDict:
        found = []
        for name in names:
            scope, separator, _ = str(name).partition("::")
            other = find_in_project(str(name)) if separator else (file.parent / str(name)).resolve()
            base = self.read(other, (*via, file))
            found.append((str(other), set_scope(base, scope) if separator else base))
        return join_bases(found)


def _parse(text: str, file: Path) -> dict[str, Any]:
    text = quote_bases(text)
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
        raise ConfigError(f"{file}: a config must be a mapping of names to values, not a {type(found).__name__}")
    return found
