"""Output of a trainer: Logger and ProgressLogger for the screen, writers for records."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hookline.dialects.pointrix.logger.writer import (
    LOGGER_REGISTRY,
    ErrorLogger,
    JsonlWriter,
    Logger,
    ProgressLogger,
    TensorboardWriter,
    WandbWriter,
    Writer,
)
from hookline.dialects.pointrix.utils.config import config_to_primitive
from hookline.dialects.pointrix.utils.sections import select_accepted
from hookline.errors import ConfigError
from hookline.plan.registry import construct

__all__ = [
    "LOGGER_REGISTRY",
    "ErrorLogger",
    "JsonlWriter",
    "Logger",
    "ProgressLogger",
    "TensorboardWriter",
    "WandbWriter",
    "Writer",
    "parse_writer",
]


def parse_writer(cfg: Mapping[str, Any], log_dir: str | Path, **kwargs: Any) -> Any:
    """Build the writer that a config names as `writer_type`; its other keys are parameters of the writer.

    The writer also gets the keywords for which it has parameters.
    """
    given = dict(config_to_primitive(cfg) or {})
    if "writer_type" not in given:
        raise ConfigError(f"the config of a writer needs its class as 'writer_type'; this one has {sorted(given)}")
    name = given.pop("writer_type")
    factory = LOGGER_REGISTRY.get(name)
    return construct(partial(factory, log_dir), {**select_accepted(factory, kwargs), **given}, name)
