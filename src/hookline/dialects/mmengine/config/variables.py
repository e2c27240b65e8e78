"""What stands in double braces: the file's own name and folder, the environment, and values of a base."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hookline.dialects.mmengine.errors import ConfigKeyError

ENVIRONMENT = re.compile(r"\{\{\s*\$(\w+)\s*:\s*([^}]*?)\s*\}\}")
BASE = re.compile(r"\{\{\s*_base_\.([\w.]+)\s*\}\}")
#: A value of a base at the place of a whole value, without quotes around it, where JSON and YAML want some.
BARE_BASE = re.compile(r"(?<=[:,\[\-])(\s*)(\{\{\s*_base_\.[\w.]+\s*\}\})(?=\s*([,\]}\n]|$))")


def predefined(file: Path) -> dict[str, str]:
    """What a file may say about itself."""
    file = file.absolute()
    return {
        "fileDirname": str(file.parent),
        "fileBasename": file.name,
        "fileBasenameNoExtension": file.stem,
        "fileExtname": file.suffix,
    }


def substituted(text: str, file: Path, predefine: bool, environment: bool) -> tuple[str, dict[str, str]]:
    """The text with the file's own names and the environment filled in, and which variables those were."""
    if predefine:
        for name, value in predefined(file).items():
            text = re.sub(r"\{\{\s*" + name + r"\s*\}\}", value.replace("\\", "/"), text)
    used: dict[str, str] = {}
    if environment:

        def fill(found: re.Match[str]) -> str:
            used[found[1]] = os.environ.get(found[1], found[2].strip("'\""))
            return used[found[1]]

        text = ENVIRONMENT.sub(fill, text)
    return text, used


def quoted_bases(text: str) -> str:
    """JSON or YAML in which every value of a base stands in quotes."""
    return BARE_BASE.sub(r'\1"\2"', text)


def with_bases(value: Any, base: Any, where: str) -> Any:
    """The value with those of the base filled in: as they are for a whole string, else as text."""
    if isinstance(value, dict):
        return type(value)({with_bases(k, base, where): with_bases(v, base, where) for k, v in value.items()})
    if type(value) in (list, tuple):
        return type(value)(with_bases(each, base, where) for each in value)
    if not isinstance(value, str):
        return value
    whole = BASE.fullmatch(value.strip())
    if whole is not None:
        return of_base(base, whole[1], where)
    return BASE.sub(lambda found: str(of_base(base, found[1], where)), value)


def of_base(base: Any, dotted: str, where: str) -> Any:
    """The value of a base that a dotted name means."""
    found = base
    for name in dotted.split("."):
        try:
            found = found[int(name)] if isinstance(found, (list, tuple)) else found[name]
        except (KeyError, IndexError, ValueError, TypeError):
            raise ConfigKeyError(f"{where}: _base_.{dotted} is not in the bases: there is no '{name}'") from None
    return found
