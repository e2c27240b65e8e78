"""Strategies: the device that a model trains on, and its distribution over processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from hookline.errors import ConfigError, did_you_mean
from hookline.strategies.base import Strategy, pick_device, unwrap
from hookline.strategies.single import Single

__all__ = ["STRATEGIES", "Single", "Strategy", "one_process", "pick", "pick_device", "unwrap"]

#: The strategies by name, and where they are; a new one is one file and one entry here. Importing a strategy
#: for several processes takes time, so this happens only if it is used.
STRATEGIES = {"single": "single:Single", "ddp": "ddp:DDP", "fsdp": "fsdp:FSDP", "accelerate": "accelerate:Accelerate"}

#: A variable that `accelerate launch` sets in every process, however it starts them.
ACCELERATE_LAUNCHED = "ACCELERATE_MIXED_PRECISION"


def pick(given: Any) -> Strategy:
    """Return the strategy of this name, of this `type` with parameters, or of this `accelerate.Accelerator`.

    `auto` chooses by the environment.
    """
    if isinstance(given, Strategy):
        return given
    if _is_accelerator(given):
        given = {"type": "accelerate", "accelerator": given}
    options = dict(given) if isinstance(given, Mapping) else {"type": given}
    name = options.pop("type", "auto")
    if not isinstance(name, str) or name not in ("auto", *STRATEGIES):
        raise ConfigError(f"unknown strategy '{name}'; {did_you_mean(str(name), ['auto', *STRATEGIES])}")
    processes = _world_size()
    if name == "auto":
        several = "ddp" if processes > 1 else "single"
        name = "accelerate" if ACCELERATE_LAUNCHED in os.environ else several
    if name == "single" and processes > 1:
        raise ConfigError(
            f"the strategy 'single' trains in one process, but this one is one of {processes} (WORLD_SIZE), which "
            "would all write to the same folder; use 'ddp' or 'auto'"
        )
    return _build(name, options)


def one_process(who: str, why: str) -> Strategy:
    """Return the strategy of something that trains in one process only, and refuse several, with the reason."""
    processes = _world_size()
    if processes > 1:
        raise ConfigError(
            f"{who} trains in one process, but this one is one of {processes} (WORLD_SIZE): {why}; start one process, "
            "or use hookline's own Runner"
        )
    return Single()


def _build(name: str, options: dict[str, Any]) -> Strategy:
    import importlib
    import inspect

    module, _, kind = STRATEGIES[name].partition(":")
    found: type[Strategy] = getattr(importlib.import_module(f"hookline.strategies.{module}"), kind)
    known = inspect.signature(found).parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in known.values())  # it checks them itself
    for option in options:
        if option not in known and not takes_any:
            hint = did_you_mean(str(option), known) if known else "it has none"
            raise ConfigError(f"the strategy '{name}' has no option '{option}'; {hint}")
    return found(**options)


def _is_accelerator(given: Any) -> bool:
    """Return whether this is an `accelerate.Accelerator`, without importing accelerate."""
    module = sys.modules.get("accelerate")
    return module is not None and isinstance(given, module.Accelerator)


def _world_size() -> int:
    text = os.environ.get("WORLD_SIZE", "1")
    if not text.isdecimal():
        raise ConfigError(f"the environment variable WORLD_SIZE must be the number of processes, not {text!r}")
    return int(text)
