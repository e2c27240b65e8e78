"""Plain data as JSON, YAML and TOML text, and back."""

from __future__ import annotations

import io
import json
import tomllib
from pathlib import Path
from typing import Any

from hookline.common.marks import Mark
from hookline.common.nodes import plain
from hookline.common.yaml_text import parse
from hookline.dialects.robo_orchard_core.refusals import SettingValueError
from hookline.errors import ConfigError, did_you_mean

FORMATS = ("json", "toml", "yaml")
#: TOML has no word for nothing.
NULL = "null"


def write(data: Any, format: str, indent: int | None = None) -> str:
    """Plain data as text."""
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
            "writing TOML needs tomli_w, which is not installed: pip install 'hookline[robo_orchard]'"
        ) from error
    return tomli_w.dumps(_without_none(data))


def read(text: str, format: str, source: str | Path = "") -> Any:
    """Text as plain data; nothing in it makes an object. Errors name the source, if there is one."""
    if format == "yaml":
        try:
            return plain(parse(text, lambda line, column: Mark(str(source) or "config", line, column)))
        except ConfigError as error:
            raise SettingValueError(str(error)) from None
    _refuse_unknown(format)
    try:
        if format == "json":
            return json.loads(text, object_pairs_hook=_without_repetition)
        return _with_none(tomllib.loads(text))
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, RecursionError, _TwiceError) as error:
        where = f"{source}: " if source else ""
        raise SettingValueError(f"{where}this is no {format.upper()}: {error}") from None


def read_file(path: str | Path) -> Any:
    """A file as plain data."""
    format = format_of(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SettingValueError(f"{path}: this is no text in UTF-8: {error}") from None
    return read(text, format, path)


class _TwiceError(ValueError):
    """A key that a JSON object has twice."""


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _TwiceError(f"the key '{key}' is given twice, as {found[key]!r} and as {value!r}")
        found[key] = value
    return found


def format_of(path: str | Path) -> str:
    """Which format a file has, by its ending."""
    ending = Path(path).suffix.removeprefix(".").replace("yml", "yaml")
    if ending not in FORMATS:
        raise SettingValueError(f"{path}: a config is a .json, .yaml, .yml or .toml file")
    return ending


def _refuse_unknown(format: str) -> None:
    if format not in FORMATS:
        raise SettingValueError(f"a config cannot be written as '{format}'; {did_you_mean(format, FORMATS)}")


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_none(inner) for inner in value]
    if value == NULL:
        raise SettingValueError(f"the text '{NULL}' cannot be written as TOML, where it stands for nothing; use JSON")
    return NULL if value is None else value


def _with_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_none(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_none(inner) for inner in value]
    return None if value == NULL else value
