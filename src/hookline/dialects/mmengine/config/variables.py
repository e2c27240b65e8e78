"""Fill in double braces: the file's own name and folder, environment variables, and values of a base."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hookline.dialects.mmengine.errors import ConfigKeyError

ENVIRONMENT = re.compile(r"\{\{\s*\$(\w+)\s*:\s*([^}]*?)\s*\}\}")
BASE = re.compile(r"\{\{\s*_base_\.([\w.]+)\s*\}\}")
#: A reference to a base that is a whole value without quotes, which JSON and YAML require.
BARE_BASE = re.compile(r"(?<=[:,\[\-])(\s*)(\{\{\s*_base_\.[\w.]+\s*\}\})(?=\s*([,\]}\n]|$))")


def predefined(file: Path) -> dict[str, str]:
    """Return the variables that describe the file itself."""
    file = file.absolute()
    return {
        "fileDirname": str(file.parent),
        "fileBasename": file.name,
        "fileBasenameNoExtension": file.stem,
        "fileExtname": file.suffix,
    }


def substitute(text: str, file: Path, predefine: bool, environment: bool) -> tuple[str, dict[str, str]]:
    """Return the text with file and environment variables filled in, and the environment variables that were used."""
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


def quote_bases(text: str) -> str:
    """Put quotes around every reference to a base in JSON or YAML text."""
    return BARE_BASE.sub(r'\1"\2"', text)


def fill_bases(value: Any, base: Any, where: str) -> Any:
    """Fill in references to the base; a string that is just one reference becomes the value itself, not text."""
    if isinstance(value, dict):
        return type(value)({fill_bases(k, base, where): fill_bases(v, base, where) for k, v in value.items()})
    if type(value) in (list, tuple):
        return type(value)(fill_bases(each, base, where) for each in value)
    if not isinstance(value, str):
        return value
    whole = BASE.fullmatch(value.strip())
    if whole is not None:
        return base_value(base, whole[1], where)
    return BASE.sub(lambda found: str(base_value(base, found[1], where)), value)


def base_value(base: Any, dotted: str, where: str) -> Any:
    """Return the value of a base under a dotted name."""
    found = base
    for name in dotted.split("."):
        try:
            found = found[int(name)] if isinstance(found, (list, tuple)) else found[name]
        except (KeyError, IndexError, ValueError, TypeError):
            raise ConfigKeyError(f"{where}: _base_.{dotted} is not in the bases, which have no '{name}'") from None
    return found
