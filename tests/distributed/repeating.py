"""Cases that fail at the same step in every attempt. `tests.distributed.test_repeated_failures` starts them."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from hookline.common import launched
from tests.distributed import cases

if TYPE_CHECKING:
    from hookline import Runner


def kill(runner: Runner) -> None:
    """Die without a reason."""
    os.kill(os.getpid(), signal.SIGKILL)


ACTS = {**cases.ACTS, "kill": kill, "pass": lambda runner: None}


def fail(folder: str, what: str, iteration: int = 5, rank: int = 0) -> dict[str, Any]:
    """Resume, and fail at one step."""
    launched.mark_started()
    runner = cases.build(folder, epochs=2, custom_hooks=[cases.At(iteration, rank, ACTS[what])], resume=True)
    runner.train()
    launched.mark_ended()
    return cases.seen(runner)


if __name__ == "__main__":
    launched.end_with_parent()
    cases.main(globals())
