"""How a loader's worker process begins: it dies with the training process, and leaves Ctrl-C to it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable

from torch.utils.data import get_worker_info

# What Linux calls the signal that a process gets when its parent dies.
PR_SET_PDEATHSIG = 1


class WorkerStart:
    """The `worker_init_fn` of a loader; one of the user's own is called after it."""

    def __init__(self, then: Callable[[int], None] | None = None) -> None:
        self.then = then
        self.parent = 0
        self.dies_with_parent = False

    def prepare(self, method: str) -> None:
        """In the training process, before workers are started in the way that multiprocessing calls `method`.

        Linux tells a worker of the death of the thread that started it, so only workers of the main thread ask. With
        `forkserver`, a server is the parent, and not the training process.
        """
        self.parent = os.getpid()
        in_main_thread = threading.current_thread() is threading.main_thread()
        self.dies_with_parent = in_main_thread and method in ("fork", "spawn")

    def __call__(self, worker: int) -> None:
        """In a new worker."""
        # Ctrl-C, and the end of a terminal, go to the whole group of processes; a worker that ended would fail the step
        # that is being finished.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if sys.platform != "win32":
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if self.dies_with_parent and sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self.parent:  # it had died before it could be asked for
                os._exit(1)
        info = get_worker_info()
        if info is not None:  # the user's code finds the user's dataset there; torch refuses the usual way to set it
            object.__setattr__(info, "dataset", info.dataset.dataset)  # type: ignore[attr-defined]  # it is a Seeded
        if self.then is not None:
            self.then(worker)
