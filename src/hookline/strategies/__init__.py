"""Where a model trains: on which device, and how it is spread over processes."""

from __future__ import annotations

import os

from hookline.errors import ConfigError, did_you_mean
from hookline.strategies.base import Strategy, pick_device, unwrap
from hookline.strategies.single import Single

__all__ = ["STRATEGIES", "Single", "Strategy", "pick", "pick_device", "unwrap"]

STRATEGIES = ("auto", "single")


def pick(given: str | Strategy) -> Strategy:
    """Return the strategy of this name; `auto` follows how the process was started."""
    if isinstance(given, Strategy):
        return given
    if given not in STRATEGIES:
        raise ConfigError(f"no strategy is called '{given}'; {did_you_mean(given, STRATEGIES)}")
    processes = os.environ.get("WORLD_SIZE", "1")
    if not processes.isdecimal():
        raise ConfigError(f"the environment variable WORLD_SIZE is the number of processes, not {processes!r}")
    if int(processes) > 1:
        raise ConfigError(
            f"this process is one of {processes} (WORLD_SIZE), and training over several processes is not supported "
            "yet; start one process, or several runs of their own without torchrun"
        )
    return Single()
