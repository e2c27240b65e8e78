"""Strategies: the device that a model trains on, and its distribution over processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from hookline.errors import ConfigError, did_you_mean
from hookline.strategies.base import Strategy, pick_device, unwrap
from hookline.strategies.single import Single

__all__ = ["STRATEGIES", "Single", "Strategy", "one_process", "pick", "pick_device", "unwrap"]

#: The strategies by name, and where they are; a new one is one file and one entry here. Importing those of several
#: processes takes time, so this happens only if one is used.
STRATEGIES = {"single": "single:Single", "ddp": "ddp:DDP", "fsdp": "fsdp:FSDP"}


def pick(given: str | Mapping[str, Any] | Strategy) -> Strategy:
    """Return the strategy of this name, or of this `type` with parameters. `auto` chooses by the environment."""
    if isinstance(given, Strategy):
        return given
    options = dict(given) if isinstance(given, Mapping) else {"type": given}
    name = options.pop("type", "auto")
    if name != "auto" and name not in STRATEGIES:
        raise ConfigError(f"unknown strategy '{name}'; {did_you_mean(str(name), ['auto', *STRATEGIES])}")
    processes = _world_size()
    if name == "auto":
        name = "ddp" if processes > 1 else "single"
    if name == "single" and processes > 1:
        raise ConfigError(
            f"the strategy 'single' trains in one process, but this one is one of {processes} (WORLD_SIZE), which "
            "would all write to the same folder; use 'ddp' or 'auto'"
        )
    return _build(name, options)


def one_process(who: str) -> Strategy:
    """Return the strategy of something that trains in one process only, and refuse several."""
    processes = _world_size()
    if processes > 1:
        raise ConfigError(
            f"{who} trains in one process so far, but this one is one of {processes} (WORLD_SIZE), which would all do "
            "the same; start one process, or use hookline's own Runner"
        )
    return Single()


def _build(name: str, options: dict[str, Any]) -> Strategy:
    import importlib

    module, _, kind = STRATEGIES[name].partition(":")
    found: type[Strategy] = getattr(importlib.import_module(f"hookline.strategies.{module}"), kind)
    try:
        return found(**options)
    except TypeError as error:
        raise ConfigError(f"the strategy '{name}': {error}") from None


def _world_size() -> int:
    text = os.environ.get("WORLD_SIZE", "1")
    if not text.isdecimal():
        raise ConfigError(f"the environment variable WORLD_SIZE must be the number of processes, not {text!r}")
    return int(text)
