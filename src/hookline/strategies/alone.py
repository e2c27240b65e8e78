"""A hook that runs only in the main process: an exchange with the others raises an error there, instead of waiting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import distributed

from hookline.errors import DistributedError


@contextmanager
def without_collectives(who: str) -> Iterator[None]:
    """Let an exchange with other processes raise an error inside, because only one process is there."""
    c10d: Any = distributed.distributed_c10d
    world, is_outside = c10d._world, c10d._rank_not_in_group
    default, world.default_pg = world.default_pg, None
    c10d._rank_not_in_group = _refuse_group  # every exchange of a group that is named asks this first
    try:
        yield
    except ValueError as error:
        if "Default process group has not been initialized" in str(error):
            raise DistributedError(
                f"{who} runs only in the main process (ranks = 'main'), so it cannot exchange anything with the "
                "others; set ranks = 'all', or use runner.rank and runner.world_size"
            ) from error
        raise
    finally:
        world.default_pg, c10d._rank_not_in_group = default, is_outside


def _refuse_group(group: Any) -> bool:
    raise ValueError("Default process group has not been initialized: only the main process is here")


def refuse_alone() -> None:
    """Raise an error in a hook that runs only in the main process; see `without_collectives`."""
    distributed.get_rank()
