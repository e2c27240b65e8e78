"""Cases in which a process hangs. Each runs in every process; `tests.distributed.test_watch` starts them."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hookline.checkpoint import seal, store
from hookline.strategies import stays
from tests.distributed import cases

if TYPE_CHECKING:
    from hookline import Runner


def say(text: str) -> None:
    """Print a line of its own, in one piece."""
    os.write(1, f"{text}\n".encode())


def wait_for(path: Path) -> None:
    """Wait, in Python, until a file exists."""
    while not path.exists():
        time.sleep(0.01)


def stop(runner: Runner) -> None:
    """Stop this process, until the test lets it continue."""
    os.kill(os.getpid(), signal.SIGSTOP)


def hold_gil(runner: Runner) -> None:
    """Sleep in C, for longer than others wait for an answer, without releasing the GIL."""
    ctypes.PyDLL(None).sleep(6)


def loop(runner: Runner) -> None:
    """Loop until the test creates a file."""
    wait_for(runner.work_dir.parent / "continue")


def exchange(runner: Runner) -> None:
    """Wait for the others, which do not know of it, until the timeout."""
    torch.distributed.barrier()


def die(runner: Runner) -> None:
    """Die without a word."""
    os.kill(os.getpid(), signal.SIGKILL)


ACTS = {"stop": stop, "hold_gil": hold_gil, "loop": loop, "exchange": exchange, "die": die}


def hang(folder: str, what: str, rank: int, timeout: float = 300.0, floor: float = 2.0) -> dict[str, Any]:
    """Hang in one process, in the sixth iteration."""

    def act(runner: Runner) -> None:
        say(f"stops {os.getpid()}")
        ACTS[what](runner)

    stays.FLOOR = floor
    hook = cases.At(5, rank, act)
    strategy = {"type": "ddp", "timeout": timeout}
    runner = cases.build(folder, epochs=2, custom_hooks=[hook], quiet=False, strategy=strategy)
    runner.on("after_train")(lambda: time.sleep(2.5))  # so that the watch sees that the run continues
    runner.train()
    return cases.seen(runner)


def slow_save(folder: str) -> dict[str, Any]:
    """Write checkpoints in the main process for longer than the timeout, which is nobody's fault."""
    stays.FLOOR = 4.0
    runner = cases.build(folder, epochs=1, quiet=False, strategy={"type": "ddp", "timeout": 2.0})
    write = store.write

    def write_slowly(checkpoint: Mapping[str, Any], path: Path, note: seal.Note) -> str:
        time.sleep(3.0)
        return write(checkpoint, path, note)

    store.write = write_slowly
    runner.train()
    return cases.seen(runner)


if __name__ == "__main__":
    cases.main(globals())
