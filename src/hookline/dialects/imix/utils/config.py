"""Config: a dict whose keys are attributes, out of YAML or, where that is allowed, Python files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from hookline.config import load
from hookline.dialects.plain import plain_data
from hookline.dialects.script import how_to_allow
from hookline.errors import ConfigError, did_you_mean


class NoKeyError(ConfigError, AttributeError):
    """A config has no such key."""


class Config(dict[str, Any]):
    """A dict whose keys are attributes, all the way down; what it is made of is copied, and stays as it is.

    >>> cfg = Config({"work_dir": "runs", "log_config": {"period": 5}})
    >>> cfg.log_config.period, cfg.get("seed", 13)
    (5, 13)
    """

    #: Whether configs in Python are run where a call of `fromfile` does not say so.
    allow_python_config: ClassVar[bool] = False

    def __init__(self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), **more: Any) -> None:
        super().__init__({key: _deep(value) for key, value in dict(values, **more).items()})

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise NoKeyError(f"the config has no '{name}'; {did_you_mean(name, self)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    @classmethod
    def fromfile(cls, path: str | os.PathLike[str], allow_python_config: bool | None = None) -> Config:
        """A config out of a file with its `_base_` files: YAML, or Python, which is run, and so has to be allowed.

        Two bases that disagree about a key are refused, unless the file itself decides.
        """
        file = Path(path)
        if file.suffix in (".yaml", ".yml"):
            loaded = load(file)
            if loaded.notices:
                raise ConfigError(f"{file}: its bases disagree: {loaded.notices[0]}")
            return cls(loaded.data)
        if file.suffix != ".py":
            raise ConfigError(f"{file}: a config is a .yaml or a .py file")
        if not (cls.allow_python_config if allow_python_config is None else allow_python_config):
            raise ConfigError(f"{file} is code, and is run when it is read. If you trust it, say so: {how_to_allow()}")
        return cls(_python(file, ()))


def _deep(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Config(value)
    if type(value) in (list, tuple):
        return type(value)(_deep(each) for each in value)
    return value


def _python(file: Path, chain: tuple[Path, ...]) -> dict[str, Any]:
    """The names that a Python file leaves, over those of its bases."""
    if file.resolve() in chain:
        raise ConfigError(f"{file}: _base_ goes round in a circle")
    try:
        source = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: the file cannot be read: {error.strerror or error}") from error
    names: dict[str, Any] = {"__file__": str(file)}
    exec(compile(source, str(file), "exec"), names)
    own = {key: value for key, value in names.items() if key[:2] != "__" and not isinstance(value, ModuleType)}
    bases = own.pop("_base_", [])
    paths = [bases] if isinstance(bases, str) else bases
    under = _joined([(path, _python(file.parent / path, (*chain, file.resolve()))) for path in paths], own, file)
    return _merged(under, own)


def _joined(bases: Iterable[tuple[str, dict[str, Any]]], own: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Several bases as one; what they disagree about is refused."""
    under: dict[str, Any] = {}
    seen: list[tuple[str, dict[str, Any]]] = []
    for path, found in bases:
        for earlier, others in seen:
            if key := _disagreement(others, found, own):
                raise ConfigError(
                    f"{file}: its bases {earlier} and {path} disagree about '{key}'; leave it out of one of them, or "
                    f"set it in {file.name}"
                )
        seen.append((path, found))
        under = _merged(under, found)
    return under


def _disagreement(one: Mapping[str, Any], other: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """The first key, with dots, about which two dicts disagree and a third does not decide; empty where none is."""
    for key in (key for key in one if key in other and not str(key).startswith("_")):
        mine, others, decided = one[key], other[key], own.get(key, {})
        if not isinstance(decided, Mapping) or decided.get("_delete_", False):
            continue
        if isinstance(mine, Mapping) and isinstance(others, Mapping):
            if inner := _disagreement(mine, others, decided):
                return f"{key}.{inner}"
        elif plain_data(mine) != plain_data(others) and key not in own:
            return str(key)
    return ""


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """One dict over another; `_delete_=True` in a dict replaces what is under it."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping):
            replaces = value.get("_delete_", False) or not isinstance(below, Mapping)
            plain = {name: each for name, each in value.items() if name != "_delete_"}
            value = _merged({} if replaces else below or {}, plain)
        merged[key] = value
    return merged
