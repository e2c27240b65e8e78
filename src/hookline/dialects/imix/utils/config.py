"""Config: a dict whose keys are attributes, read from YAML files or, if that is allowed, Python files."""

from __future__ import annotations

import logging
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

log = logging.getLogger("hookline")


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

        If two Python bases have different values for a key, the first one counts, with a warning.
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
    """Join several base files, as iMIX does: the first one that has a key at the top decides its whole value."""
    joined: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for path, found in bases:
        for key, value in found.items():
            if origin.setdefault(key, path) == path:
                joined[key] = value
            elif not _decides(own, key) and plain_data(joined[key]) != plain_data(value):
                log.warning(
                    "%s: its base files %s and %s have different values for '%s'; the first one counts, as in iMIX. "
                    "To choose another one, set '%s' in %s",
                    *(file, origin[key], path, key, key, file.name),
                )
    return joined


def _decides(own: Mapping[str, Any], key: str) -> bool:
    """Return whether a file replaces the value that its bases have for a key, or whether the key is private."""
    value = own.get(key)
    return key.startswith("_") or (key in own and (not isinstance(value, Mapping) or value.get("_delete_", False)))


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
