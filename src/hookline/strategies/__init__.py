"""How a model is spread over processes. One process is the base; a strategy changes what differs from it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hookline.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from hookline.strategies.single import Single

STRATEGIES = ("auto", "single")


def pick(name: str) -> Single:
    """The strategy of this name; `auto` follows the way the process was started."""
    from hookline.strategies.single import Single

    if name not in STRATEGIES:
        raise ConfigError(f"no strategy is called '{name}'; {did_you_mean(name, STRATEGIES)}")
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1:
        raise ConfigError(
            f"this process is one of {processes} (WORLD_SIZE), and training over several processes is not supported "
            "yet; start one process, or several runs of their own without torchrun"
        )
    return Single()
