"""Reading settings from the command line.

    class TrainerConfig(SettingConfig):
        batch_size: int = Field(description="Samples per batch.", default=128)

    cfg = pydantic_from_argparse(TrainerConfig, argparse.ArgumentParser())     # --batch_size 64

A nested setting is written with a dot: `--dataset.data_root photos`.
"""

from __future__ import annotations

import argparse
from typing import Any, ClassVar, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticUndefined

from hookline.dialects.robo_orchard_core.utils.config import Config
from hookline.errors import ConfigError

try:
    from pydantic_settings import (
        BaseSettings,
        CliApp,
        CliSettingsSource,
        PydanticBaseSettingsSource,
        SettingsConfigDict,
    )
except ImportError as error:
    raise ConfigError(
        "settings need pydantic_settings, which is not installed; run: pip install 'hookline[robo_orchard]'"
    ) from error

__all__ = ["SettingConfig", "pydantic_from_argparse"]

SettingsT = TypeVar("SettingsT", bound=BaseSettings)


class SettingConfig(Config, BaseSettings):
    """A config whose fields can be set on the command line.

    Environment variables are read only by a class with an `env_prefix` in its `model_config`. Otherwise a variable that
    happens to have the name of a field would change a run.
    """

    model_config = SettingsConfigDict(**Config.model_config)  # type: ignore[typeddict-item]  # all options of a Config
    __exclude_config_type__: ClassVar[bool] = True

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources: the given values, and then the environment if the class has an `env_prefix`."""
        asked = bool(cls.model_config.get("env_prefix"))
        return (init_settings, env_settings, dotenv_settings) if asked else (init_settings,)


def pydantic_from_argparse(
    cls: type[SettingsT],
    parser: argparse.ArgumentParser,
    cli_enforce_required: bool | None = True,
    cli_avoid_json: bool | None = True,
    **options: Any,
) -> SettingsT:
    """Return the settings from the command line. A wrong command line ends the program, as with argparse."""
    source: CliSettingsSource[Any] = CliSettingsSource(
        cls,
        root_parser=parser,
        cli_enforce_required=cli_enforce_required,
        cli_avoid_json=cli_avoid_json,
        **options,
    )
    try:
        return CliApp.run(cls, cli_settings_source=source)
    except ValidationError as error:
        parser.error("; ".join(_describe(each) for each in error.errors()))
    except ValueError as error:
        parser.error(str(error))


def _describe(error: Any) -> str:
    """Describe one wrong setting: `batch_size: Input should be a valid integer, ..., not 'many'`."""
    where, given = ".".join(str(part) for part in error["loc"]), error.get("input", PydanticUndefined)
    shown = f", not {given!r}" if isinstance(given, (str, int, float)) else ""
    return f"{where}: {error['msg']}{shown}" if where else str(error["msg"])
