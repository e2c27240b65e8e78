"""Config: the settings of a run, read from files and dicts."""

from __future__ import annotations

import copy
import difflib
import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FunctionType
from typing import Any, ClassVar, Self

from hookline.common.forwarding import forwarded
from hookline.dialects.mmengine.config import python_file
from hookline.dialects.mmengine.config.config_dict import DELETE_KEY as DELETE_KEY
from hookline.dialects.mmengine.config.config_dict import ConfigDict
from hookline.dialects.mmengine.config.dict_action import DictAction
from hookline.dialects.mmengine.config.merging import merge, unfold
from hookline.dialects.mmengine.config.pretty import pretty
from hookline.dialects.mmengine.config.python_file import read_base
from hookline.dialects.mmengine.config.reading import RESERVED_KEYS, Reader
from hookline.dialects.mmengine.errors import ConfigKeyError, ConfigTypeError
from hookline.dialects.mmengine.not_included import not_included, stands_for
from hookline.dialects.script import how_to_allow
from hookline.errors import ConfigError

__all__ = ["Config", "ConfigDict", "DictAction", "read_base"]

BASE_KEY, DEPRECATION_KEY = "_base_", "_deprecation_"
OWN = ("_cfg_dict", "_filename", "_text", "_env_variables", "_imported")


class Config(MutableMapping[str, Any]):
    """The settings of a run: `cfg.model.depth` is `cfg["model"]["depth"]`.

    Args:
        cfg_dict: The settings.
        cfg_text: The text that they were read from.
        filename: The file that they were read from.
        env_variables: The environment variables that were used.
        format_python_code: Accepted, but has no effect: Python code is always formatted in the same way.
    """

    #: The default of `fromfile(allow_python_config=...)`: whether Python configs may run. Set it to run someone
    #: else's script unchanged, if you trust the script.
    allow_python_config: ClassVar[bool] = False

    _cfg_dict: ConfigDict
    _filename: Path | None
    _text: str
    _env_variables: dict[str, str]

    def __init__(
        self,
        cfg_dict: Mapping[str, Any] | None = None,
        cfg_text: str | None = None,
        filename: str | Path | None = None,
        env_variables: Mapping[str, str] | None = None,
        format_python_code: bool = True,
    ) -> None:
        if cfg_dict is not None and not isinstance(cfg_dict, Mapping):
            raise ConfigTypeError(f"a Config is built from a dict, not from a {type(cfg_dict).__name__}")
        given = dict(cfg_dict or {})
        _refuse_reserved(given)
        vars(self).update(
            _cfg_dict=ConfigDict(given),
            _filename=None if filename is None else Path(filename),
            _text=cfg_text or "",
            _env_variables=dict(env_variables or {}),
        )

    # -- reading

    @staticmethod
    def fromfile(
        filename: str | Path,
        use_predefined_variables: bool = True,
        import_custom_modules: bool = True,
        use_environment_variables: bool = True,
        lazy_import: bool | None = None,
        format_python_code: bool = True,
        allow_python_config: bool | None = None,
    ) -> Config:
        """Read the config in a YAML or JSON file, or in a Python file if that is allowed.

        Args:
            filename: The file.
            use_predefined_variables: Whether `{{ fileDirname }}` and the like are filled in.
            import_custom_modules: Whether the modules under `custom_imports` are imported. This runs their code.
            use_environment_variables: Whether `{{ $NAME:default }}` is filled in.
            lazy_import: Accepted, but has no effect: `with read_base():` is always recognized.
            format_python_code: Accepted, but has no effect.
            allow_python_config: Whether a config may run code: a Python file, or the modules that it imports.
        """
        allowed = Config.allow_python_config if allow_python_config is None else allow_python_config
        file = Path(filename).expanduser().resolve()
        reader = Reader(allowed, use_predefined_variables, use_environment_variables)
        found = reader.read(file)
        if import_custom_modules and found.get("custom_imports") is not None:
            _import(found["custom_imports"], file, allowed)
        return Config(found, "\n".join(reader.texts), file, reader.used)

    @staticmethod
    def fromstring(cfg_str: str, file_format: str, allow_python_config: bool | None = None) -> Config:
        """Read a config from a string; the format is `.yaml`, `.json` or `.py`."""
        with TemporaryDirectory() as folder:
            file = Path(folder, f"config{file_format}")
            file.write_text(cfg_str, encoding="utf-8")
            found = Config.fromfile(file, allow_python_config=allow_python_config)
        return Config(found._cfg_dict, cfg_str)

    # -- as a dict with attributes

    @property
    def filename(self) -> str | None:
        """Return the file that it was read from."""
        return None if self._filename is None else str(self._filename)

    text: str = forwarded("_text", "Return the text that it was read from.")
    env_variables: dict[str, str] = forwarded("_env_variables", "Return the environment variables that were used.")

    @property
    def pretty_text(self) -> str:
        """Return the settings as Python code that can be read again."""
        return pretty(self.to_dict())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in OWN:
            raise AttributeError(name)
        return getattr(self._cfg_dict, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _refuse_reserved([name])
        self._cfg_dict[name] = value

    def __delattr__(self, name: str) -> None:
        delattr(self._cfg_dict, name)

    def __getitem__(self, name: str) -> Any:
        return self._cfg_dict[name]

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __delitem__(self, name: str) -> None:
        del self._cfg_dict[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._cfg_dict)

    def __len__(self) -> int:
        return len(self._cfg_dict)

    def __repr__(self) -> str:
        return f"Config (path: {self.filename}): {self.to_dict()}"

    def copy(self) -> Self:
        """Return a shallow copy."""
        return self._with(self._cfg_dict.copy())

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        other = self._with(ConfigDict())
        memo[id(self)] = other
        vars(other)["_cfg_dict"] = copy.deepcopy(self._cfg_dict, memo)
        return other

    def _with(self, settings: ConfigDict) -> Self:
        other = type(self).__new__(type(self))
        vars(other).update(vars(self), _cfg_dict=settings)
        return other

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def to_dict(self, keep_imported: bool = False) -> dict[str, Any]:
        """Return the settings as plain data: a class or function that can be imported is named, as in a file."""
        settings: dict[str, Any] = _named(self._cfg_dict)
        return settings

    # -- changing and writing

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add entries: a dict is merged into an earlier dict of the same name, anything else replaces the entry."""
        given = dict(*args, **kwargs)
        _refuse_reserved(given)
        self._cfg_dict.update(given)

    def merge_from_dict(self, options: Mapping[str, Any], allow_list_keys: bool = True) -> None:
        """Merge settings into these; dotted names reach inside: `{"model.depth": 50, "hooks.0.interval": 1}`."""
        vars(self)["_cfg_dict"] = merge(unfold(options), self._cfg_dict, allow_list_keys)

    def dump(self, file: str | Path | None = None) -> str | None:
        """Write the settings to a YAML, JSON or Python file; without a file, return them as text."""
        from hookline.dialects.mmengine.fileio import dump

        where = file if file is not None else self.filename or "config.py"
        ending = Path(where).suffix
        if ending not in (".py", ".json", ".yaml", ".yml"):
            raise ConfigError(f"{where}: a config can only be written to a .py, .json, .yaml or .yml file")
        text = self.pretty_text if ending == ".py" else str(dump(self.to_dict(), file_format=ending[1:]))
        if file is None:
            return text
        Path(file).write_text(text, encoding="utf-8")
        return None

    @staticmethod
    def diff(cfg1: str | Config, cfg2: str | Config) -> str:
        """Return the differences between two configs, line by line."""
        read = [each if isinstance(each, Config) else Config.fromfile(each) for each in (cfg1, cfg2)]
        texts = [each.pretty_text for each in read]
        return "\n".join(difflib.unified_diff(texts[0].splitlines(), texts[1].splitlines(), lineterm=""))


def _named(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _named(inner) for name, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_named, value))
    if isinstance(value, python_file.LazyObject):
        return value.__name__
    if isinstance(value, (type, FunctionType)) and value.__module__ != "builtins":
        home, name = value.__module__, value.__qualname__
        if getattr(sys.modules.get(home), name, None) is value:
            return f"{home}.{name}"
    return value


def _refuse_reserved(names: Iterable[str]) -> None:
    for name in names:
        if name in RESERVED_KEYS:
            raise ConfigKeyError(f"'{name}' cannot be a key of a Config: it names an attribute of Config")


def _import(given: Any, file: Path, allowed: bool) -> None:
    from hookline.dialects.mmengine.utils import import_modules_from_strings

    if not isinstance(given, Mapping) or "imports" not in given:
        raise ConfigTypeError(f"{file}: custom_imports must be dict(imports=[...]), not {given!r}")
    if not allowed:
        raise ConfigError(
            f"{file}: custom_imports names modules, and importing them runs their code. If you trust the config, "
            f"say so: {how_to_allow()}"
        )
    import_modules_from_strings(given["imports"], bool(given.get("allow_failed_imports", False)))


stands_for(__name__, "config.lazy")
not_included(globals(), "LazyAttr", "LazyObject", "add_args")
