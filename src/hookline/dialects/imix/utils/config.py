"""Config: a dict whose keys are attributes, read from YAML files or, if that is allowed, Python files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from hookline.config import load
from hookline.dialects.errors import SettingAttributeError
from hookline.dialects.plain import plain_data
from hookline.dialects.script import how_to_allow
from hookline.errors import ConfigError, did_you_mean


class Config(dict[str, Any]):
    """A dict whose keys are attributes, at all levels. The values it is built from are copied and not changed.

    >>> cfg = Config({"work_dir": "runs", "log_config": {"period": 5}})
    >>> cfg.log_config.period, cfg.get("seed", 13)
    (5, 13)
    """

    #: The default for the parameter `allow_python_config` of `fromfile`.
    allow_python_config: ClassVar[bool] = False

    def __init__(self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), **more: Any) -> None:
        super().__init__({key: _convert(value) for key, value in dict(values, **more).items()})

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise SettingAttributeError(f"the config has no '{name}'; {did_you_mean(name, self)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    @classmethod
    def fromfile(cls, path: str | os.PathLike[str], allow_python_config: bool | None = None) -> Config:
        """Read a config from a file and its `_base_` files: YAML, or Python, which is executed and so must be allowed.

        Two base files with different values for a key are refused, unless the file itself sets that key.
        """
        file = Path(path)
        if file.suffix in (".yaml", ".yml"):
            loaded = load(file)
            if loaded.notices:
                raise ConfigError(f"{file}: its base files disagree: {loaded.notices[0]}")
            return cls(loaded.data)
        if file.suffix != ".py":
            raise ConfigError(f"{file}: a config must be a .yaml, .yml or .py file")
        if not (cls.allow_python_config if allow_python_config is None else allow_python_config):
            raise ConfigError(
                f"{file} is Python code, which would be executed. If you trust it, say so: {how_to_allow()}"
            )
        return cls(_read_python(file, ()))


def read(cfg: Any, name: str, default: Any = None) -> Any:
    """Return a key of a mapping, or an attribute of any other object."""
    if isinstance(cfg, Mapping):
        return cfg.get(name, default)
    return getattr(cfg, name, default)


def _convert(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Config(value)
    if type(value) in (list, tuple):
        return type(value)(_convert(each) for each in value)
    return value


def _read_python(file: Path, chain: tuple[Path, ...]) -> dict[str, Any]:
    """Return the variables that a Python file sets, merged over the variables of its base files."""
    if file.resolve() in chain:
        raise ConfigError(f"{file}: its _base_ files form a cycle")
    try:
        source = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot read the file: {error.strerror or error}") from error
    names: dict[str, Any] = {"__file__": str(file)}
    exec(compile(source, str(file), "exec"), names)
    own = {key: value for key, value in names.items() if key[:2] != "__" and not isinstance(value, ModuleType)}
    bases = own.pop("_base_", [])
    paths = [bases] if isinstance(bases, str) else bases
    under = _merge_bases(
        [(path, _read_python(file.parent / path, (*chain, file.resolve()))) for path in paths], own, file
    )
    return _merge(under, own)


def _merge_bases(bases: Iterable[tuple[str, dict[str, Any]]], own: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Merge several base files into one. Refuse keys for which they have different values."""
    under: dict[str, Any] = {}
    seen: list[tuple[str, dict[str, Any]]] = []
    for path, found in bases:
        for earlier, others in seen:
            if key := _find_conflict(others, found, own):
                raise ConfigError(
                    f"{file}: its base files {earlier} and {path} disagree about '{key}'; remove it from one of them, "
                    f"or set it in {file.name}"
                )
        seen.append((path, found))
        under = _merge(under, found)
    return under


def _find_conflict(one: Mapping[str, Any], other: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Return the first key, with dots, whose values differ in two dicts and which `own` does not set; or empty."""
    for key in (key for key in one if key in other and not str(key).startswith("_")):
        mine, others, decided = one[key], other[key], own.get(key, {})
        if not isinstance(decided, Mapping) or decided.get("_delete_", False):
            continue
        if isinstance(mine, Mapping) and isinstance(others, Mapping):
            if inner := _find_conflict(mine, others, decided):
                return f"{key}.{inner}"
        elif plain_data(mine) != plain_data(others) and key not in own:
            return str(key)
    return ""


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge one dict over another. A dict with `_delete_=True` replaces the one under it."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping):
            replaces = value.get("_delete_", False) or not isinstance(below, Mapping)
            plain = {name: each for name, each in value.items() if name != "_delete_"}
            value = _merge({} if replaces else below or {}, plain)
        merged[key] = value
    return merged
