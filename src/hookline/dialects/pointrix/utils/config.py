"""Configs with OmegaConf: YAML files, dotted overrides, interpolation, and dataclasses that declare the fields.

cfg = load_config("scene.yaml", cli_args=["trainer.max_steps=500"])
trainer = DefaultTrainer(cfg.trainer, cfg.exp_dir)
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hookline.common.environment import hidden_in
from hookline.common.escape import hide_in_texts
from hookline.errors import ConfigError, did_you_mean

#: The settings of a run that people see anyway.
SHOWN = (("name",), ("exp_dir",), ("trainer", "output_path"), ("trainer", "device"))
_ENVIRONMENT = re.compile(r"\$\{oc\.env:\s*([A-Za-z_][A-Za-z0-9_]*)")


class WrongConfigError(ConfigError, TypeError, ValueError):
    """Raised for a config with an unknown key or a value of the wrong type."""


@dataclass
class ExperimentConfig:
    """An experiment: its name, its folder, and the config of its trainer.

    The folder is `exp_dir`, by default `<trainer.output_path>/<name>@<date>-<time>`. `use_timestamp: false` leaves out
    the date and the time. The folder is created here.
    """

    name: str = "default"
    timestamp: str = ""
    exp_dir: str = ""
    use_timestamp: bool = True
    trainer: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.exp_dir:
            if self.use_timestamp:
                self.timestamp = datetime.now().astimezone().strftime("@%Y%m%d-%H%M%S")
            folder = self.trainer.get("output_path", "output")
            self.exp_dir = os.path.join(folder, self.name) + self.timestamp
        os.makedirs(self.exp_dir, exist_ok=True)


def load_config(*yamls: str | Path, cli_args: Iterable[str] = (), from_string: bool = False, **kwargs: Any) -> Any:
    """Load the config of an experiment from YAML files (or texts), then apply `key.path=value` and then the keywords.

    Later values win. A mapping is merged into the existing one, so `trainer.hooks={}` changes nothing. Null removes an
    entry: `trainer.hooks=null`, `trainer.hooks.log=null`. `${...}` is resolved, and the folder of the experiment is
    created.
    """
    conf = _omegaconf()
    read = conf.create if from_string else conf.load
    try:
        merged = conf.merge(*(read(given) for given in yamls), conf.from_cli(list(cli_args)), kwargs)
        _hide_environment(conf.to_container(merged))
        conf.resolve(merged)
    except FileNotFoundError as error:
        raise ConfigError(f"config file not found: {error.filename}") from None
    except Exception as error:
        raise ConfigError(f"the config cannot be read: {_first_line(error)}") from error
    return parse_structured(ExperimentConfig, merged)


def load_yaml(path: str | Path) -> Any:
    """Return the contents of a YAML file as plain data."""
    return config_to_primitive(_omegaconf().load(path))


def parse_structured(fields: Callable[..., Any], cfg: Any = None) -> Any:
    """Return a config with the fields of a dataclass, as an OmegaConf node. The given config is not changed.

    For an unknown key, the error suggests the nearest known one. For a value of the wrong type, it shows the key. A
    null section becomes an empty one, so a command line can clear a section of a file.
    """
    conf = _omegaconf()
    who = getattr(fields, "__qualname__", "the config")
    given = {str(key): value for key, value in config_to_primitive(cfg).items()} if cfg is not None else {}
    known = {each.name: each for each in dataclasses.fields(fields)}  # type: ignore[arg-type]  # a class with fields
    for key, value in given.items():
        if key not in known:
            raise WrongConfigError(f"{who} has no key '{key}'; {did_you_mean(key, known)}")
        if value is None and known[key].default_factory is dict and not _may_be_none(known[key]):
            given[key] = {}
    try:
        return conf.structured(fields(**given))
    except _validation_error() as error:
        at = getattr(error, "full_key", None)
        raise WrongConfigError(f"{who}{f': {at}' if at else ''}: {_first_line(error)}") from None


def config_to_primitive(config: Any, resolve: bool = True) -> Any:
    """Return a copy of a config as plain dicts, lists and values."""
    conf = _omegaconf()
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = conf.structured(config)
    if isinstance(config, (Mapping, list, tuple)) and not conf.is_config(config):
        config = conf.create(_plain_keys(config), flags={"allow_objects": True})
    if conf.is_config(config):
        return conf.to_container(config, resolve=resolve)
    return config


def dump_config(path: str | Path, config: Any) -> None:
    """Write a config as YAML."""
    Path(path).write_text(config_text(config), encoding="utf-8")


def config_text(config: Any) -> str:
    """Return a config as YAML."""
    conf = _omegaconf()
    data = conf.to_container(config) if conf.is_config(config) else config_to_primitive(config)
    text: str = conf.to_yaml(conf.create(hidden_in(data), flags={"allow_objects": True}))
    return text


def _hide_environment(data: Any) -> None:
    """Keep the values of environment variables that a config refers to out of files and messages."""
    used = list(_variables(data, ()))
    shown = {name for keys, name in used if keys in SHOWN}
    for _, name in used:
        if name in os.environ and name not in shown:
            hide_in_texts(os.environ[name], f"${{oc.env:{name}}}")


def _variables(value: Any, keys: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield the environment variables that a config refers to, each with the keys of the text that does so."""
    if isinstance(value, str):
        yield from ((keys, name) for name in _ENVIRONMENT.findall(value))
    elif isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _variables(inner, (*keys, key))


def _may_be_none(field: dataclasses.Field[Any]) -> bool:
    return any(word in str(field.type) for word in ("None", "Optional"))


def _plain_keys(config: Any) -> Any:
    return dict(config) if isinstance(config, Mapping) else list(config)


def _omegaconf() -> Any:
    if find_spec("omegaconf") is None:
        raise ConfigError("these configs need omegaconf, which is not installed: pip install 'hookline[pointrix]'")
    from omegaconf import OmegaConf

    return OmegaConf


def _validation_error() -> type[Exception]:
    from omegaconf.errors import OmegaConfBaseException

    return OmegaConfBaseException


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
