"""The processes of an accelerator: they agree on signals, and a failure of one of them ends all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import distributed

from hookline.strategies import Single, Strategy

if TYPE_CHECKING:
    from accelerate import Accelerator  # type: ignore[import-untyped]


def strategy_of(accelerator: Accelerator) -> Strategy:
    """Return the strategy for the group that accelerate has created. accelerate itself wraps, steps and saves.

    An exchange may take as long as one of accelerate, because hooks may work for long in the main process only.
    """
    if accelerator.num_processes == 1 or not distributed.is_initialized():
        return Single()
    from hookline.strategies.processes import Processes

    limit = getattr(accelerator.init_handler, "timeout", None) or distributed.default_pg_timeout
    return Processes(limit.total_seconds())
