"""A hook that runs only in the main process: an exchange with the others raises an error there, instead of waiting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import distributed

from hookline.common.torch_private import without_groups
from hookline.errors import DistributedError


@contextmanager
def without_collectives(who: str) -> Iterator[None]:
    """Let an exchange with other processes raise an error inside, because only one process is there."""
    try:
        with without_groups(_refuse_group):
            yield
    except ValueError as error:
        if "Default process group has not been initialized" in str(error):
            raise DistributedError(
                f"{who} runs only in the main process (ranks = 'main'), so it cannot exchange anything with the "
                "others; set ranks = 'all', or use runner.rank and runner.world_size"
            ) from error
        raise


def _refuse_group(group: Any) -> bool:
    raise ValueError("Default process group has not been initialized: only the main process is here")


def refuse_alone() -> None:
    """Raise an error in a hook that runs only in the main process; see `without_collectives`."""
    distributed.get_rank()
