"""The setup of a loader's worker process: it ends with the training process, which also handles Ctrl-C.

If a worker cannot send an object, the training process raises an error. Otherwise, it would wait forever.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.reduction import ForkingPickler
from typing import Any

from torch.utils.data import get_worker_info

from hookline.common.launched import end_with
from hookline.common.torch_private import is_packed_error, pack_error
from hookline.errors import blame


class WorkerStart:
    """The `worker_init_fn` of a loader. It calls the user's function, if there is one, afterwards."""

    def __init__(self, then: Callable[[int], None] | None = None) -> None:
        self.then = then
        self.parent = 0
        self.dies_with_parent = False
        #: True if several processes train together. After a signal, they need some more batches until they agree.
        self.outlasts_signals = False

    def prepare(self, method: str) -> None:
        """Prepare for starting workers with a start method of multiprocessing; call this in the training process.

        Linux sends the signal when the thread that started the worker ends, so only workers of the main thread use it.
        With `forkserver`, the parent is a server and not the training process.
        """
        self.parent = os.getpid()
        in_main_thread = threading.current_thread() is threading.main_thread()
        self.dies_with_parent = in_main_thread and method in ("fork", "spawn")

    def __call__(self, worker: int) -> None:
        """Set up a new worker."""
        # Ctrl-C and the end of a terminal signal the whole process group. If a worker ended now, the step that is being
        # finished would fail.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if sys.platform != "win32":
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if self.outlasts_signals and sys.platform == "linux":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            threading.Thread(target=_obey, args=(self.parent,), daemon=True).start()
        if self.dies_with_parent:
            end_with(self.parent)
        # A queue pickles in a separate thread, which calls this if it fails. By default, it only prints the error.
        Queue._on_queue_feeder_error = _send_failure  # type: ignore[attr-defined]  # its stub leaves it out
        info = get_worker_info()
        if info is not None:  # user code expects its own dataset there; torch forbids setting it the normal way
            object.__setattr__(info, "dataset", info.dataset.dataset)  # type: ignore[attr-defined]  # it is a Seeded
        if self.then is not None:
            self.then(worker)


def _obey(parent: int) -> None:
    """End this process after a SIGTERM from its parent. Ignore a SIGTERM from others, such as a job scheduler."""
    if sys.platform == "linux":
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid not in (parent, os.getpid()):
            pass
        os._exit(128 + signal.SIGTERM)


def _send_failure(queue: Queue[Any], error: Exception, unsent: Any) -> None:
    """Send an error in place of an object that cannot be pickled: a batch, or the class of an exception.

    The loader gets an exception as its class and its text. The nearest base class that can be sent replaces a class
    that cannot, such as one that was defined in a function. The text still has its name.
    """
    info = get_worker_info()
    if info is None or not isinstance(unsent, tuple) or len(unsent) != 2:  # a queue of the user
        raise error
    index, content = unsent
    if is_packed_error(content):
        content.exc_type = next(each for each in content.exc_type.__mro__ if _can_be_sent(each))
    else:
        blame(error, f"sending a batch from worker {info.id} to the training process; make it of what pickle can store")
        content = pack_error(error, f"in DataLoader worker process {info.id}")
    queue.put((index, content))


def _can_be_sent(kind: type) -> bool:
    try:
        ForkingPickler.dumps(kind)
    except Exception:  # pickle has no common class for its errors
        return False
    return True
