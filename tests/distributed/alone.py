"""A group of one process, in the process of the test: sharded runs without starting anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from torch import distributed


@contextmanager
def group_of_one() -> Iterator[None]:
    """Let this process be the only one of a group, as under `torchrun --nproc-per-node=1`."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
            patch.setenv(name, value)
        try:
            yield
        finally:
            if distributed.is_initialized():
                distributed.destroy_process_group()
