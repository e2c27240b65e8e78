"""Where a model trains: on which device, and how it is spread over processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from hookline.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from hookline.strategies.single import Single

STRATEGIES = ("auto", "single")


def pick(name: str) -> Single:
    """The strategy of this name; `auto` follows the way the process was started."""
    from hookline.strategies.single import Single

    if name not in STRATEGIES:
        raise ConfigError(f"no strategy is called '{name}'; {did_you_mean(name, STRATEGIES)}")
    given = os.environ.get("WORLD_SIZE", "1")
    if not given.isdecimal():
        raise ConfigError(f"the environment variable WORLD_SIZE is the number of processes, not {given!r}")
    processes = int(given)
    if processes > 1:
        raise ConfigError(
            f"this process is one of {processes} (WORLD_SIZE), and training over several processes is not supported "
            "yet; start one process, or several runs of their own without torchrun"
        )
    return Single()


def pick_device(name: str | torch.device) -> torch.device:
    """The device of this name; `auto` is the accelerator of the machine, or else the CPU."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if name != "auto":
        try:
            device = torch.device(name)
        except RuntimeError as error:
            raise ConfigError(f"no device is called '{name}': {str(error).splitlines()[0]}") from None
        if device.type not in ("cpu", "meta") and (accelerator is None or accelerator.type != device.type):
            has = accelerator.type if accelerator is not None else "cpu"
            raise ConfigError(f"the device '{name}' is not there for this torch and machine; available: {has}")
        return device
    return accelerator if accelerator is not None else torch.device("cpu")
