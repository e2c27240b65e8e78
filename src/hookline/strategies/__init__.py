"""Strategies: the device that a model trains on, and its distribution over processes."""

from __future__ import annotations

import os

from hookline.errors import ConfigError, did_you_mean
from hookline.strategies.base import Strategy, pick_device, unwrap
from hookline.strategies.single import Single

__all__ = ["STRATEGIES", "Single", "Strategy", "pick", "pick_device", "unwrap"]

#: The strategies by name; a new one is one file and one entry here.
STRATEGIES: dict[str, type[Strategy]] = {Single.name: Single}


def pick(given: str | Strategy) -> Strategy:
    """Return the strategy of this name. `auto` chooses by how the process was started."""
    if isinstance(given, Strategy):
        return given
    if given != "auto" and given not in STRATEGIES:
        raise ConfigError(f"unknown strategy '{given}'; {did_you_mean(given, ['auto', *STRATEGIES])}")
    processes = os.environ.get("WORLD_SIZE", "1")
    if not processes.isdecimal():
        raise ConfigError(f"the environment variable WORLD_SIZE must be the number of processes, not {processes!r}")
    if int(processes) > 1:
        raise ConfigError(
            f"this process is one of {processes} (WORLD_SIZE), but training with several processes is not supported "
            "yet; start one process, or several separate runs without torchrun"
        )
    return STRATEGIES.get(given, Single)()
