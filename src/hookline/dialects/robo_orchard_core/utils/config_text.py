"""Writing plain data as JSON, YAML and TOML text, and reading it back."""

from __future__ import annotations

import io
import json
import tomllib
from pathlib import Path
from typing import Any

from hookline.common.marks import Mark
from hookline.common.nodes import plain
from hookline.common.yaml_text import parse
from hookline.dialects.errors import SettingValueError
from hookline.errors import ConfigError, did_you_mean

FORMATS = ("json", "toml", "yaml")
#: Stands for None in TOML, which has no null.
NULL = "null"


def write(data: Any, format: str, indent: int | None = None) -> str:
    """Return plain data as text."""
    if format == "json":
        separators = (",", ":") if indent is None else None
        return json.dumps(data, indent=indent, separators=separators, ensure_ascii=False)
    if format == "yaml":
        from ruamel.yaml import YAML

        yaml, out = YAML(), io.StringIO()
        yaml.width = 4096
        yaml.dump(data, out)
        return out.getvalue()
    _refuse_unknown(format)
    try:
        import tomli_w
    except ImportError as error:
        raise ConfigError(
            "writing TOML needs tomli_w, which is not installed; run: pip install 'hookline[robo_orchard]'"
        ) from error
    return tomli_w.dumps(_encode_none(data))


def read(text: str, format: str, source: str | Path = "") -> Any:
    """Return a text as plain data. It cannot create objects. Errors name the source, if there is one."""
    if format == "yaml":
        try:
            return plain(parse(text, lambda line, column: Mark(str(source) or "config", line, column)))
        except ConfigError as error:
            raise SettingValueError(str(error)) from None
    _refuse_unknown(format)
    try:
        if format == "json":
            return json.loads(text, object_pairs_hook=_refuse_duplicates)
        return _decode_none(tomllib.loads(text))
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, RecursionError, _DuplicateKeyError) as error:
        where = f"{source}: " if source else ""
        raise SettingValueError(f"{where}not valid {format.upper()}: {error}") from None


def read_file(path: str | Path) -> Any:
    """Return a file as plain data."""
    format = format_of(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SettingValueError(f"{path}: not valid UTF-8 text: {error}") from None
    return read(text, format, path)


class _DuplicateKeyError(ValueError):
    """Raised for a key that a JSON object has twice."""


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _DuplicateKeyError(f"the key '{key}' is given twice, as {found[key]!r} and as {value!r}")
        found[key] = value
    return found


def format_of(path: str | Path) -> str:
    """Return the format of a file, by its extension."""
    extension = Path(path).suffix.removeprefix(".").replace("yml", "yaml")
    if extension not in FORMATS:
        raise SettingValueError(f"{path}: a config must be a .json, .yaml, .yml or .toml file")
    return extension


def _refuse_unknown(format: str) -> None:
    if format not in FORMATS:
        raise SettingValueError(f"unknown config format '{format}'; {did_you_mean(format, FORMATS)}")


def _encode_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _encode_none(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_encode_none(inner) for inner in value]
    if value == NULL:
        raise SettingValueError(f"the text '{NULL}' cannot be written as TOML, where it means None; use JSON")
    return NULL if value is None else value


def _decode_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _decode_none(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_decode_none(inner) for inner in value]
    return None if value == NULL else value
