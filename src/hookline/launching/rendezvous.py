"""The rendezvous of several machines, whose calls end even if the machine that hosts it does not answer.

torch's calls wait in C++ code, where no signal is handled. So each is made in a thread, which may be left behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from torch.distributed.elastic.rendezvous import RendezvousConnectionError
from torch.distributed.elastic.rendezvous.api import RendezvousHandler
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

from hookline.launching.signals import LAST, PERIOD

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousInfo

T = TypeVar("T")

#: The seconds that the machine with the rendezvous may be silent.
SILENT = 60.0


class SilentError(RendezvousConnectionError):
    """The machine that hosts the rendezvous does not answer."""


def within(seconds: float, call: Callable[[], T], is_ending: Callable[[], bool] = lambda: False) -> T:
    """Return what a call returns. Leave it behind after these seconds, or LAST seconds after a signal."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append((call(), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=run, name="hookline-rendezvous", daemon=True)
    thread.start()
    began, ends = time.monotonic(), time.monotonic() + seconds
    while not found and time.monotonic() < ends:
        thread.join(PERIOD)
        if is_ending():
            ends = min(ends, time.monotonic() + LAST)
            is_ending = bool  # once
    if not found:
        raise SilentError(
            f"the machine that hosts the rendezvous has not answered for {time.monotonic() - began:.0f} s: it is down, "
            "or the network to it is cut"
        )
    result, error = found[0]
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]  # the result of the call


class BoundedRendezvous(RendezvousHandler):
    """A rendezvous of torch, whose calls do not wait for ever.

    Args:
        handler: The rendezvous.
        is_ending: Returns whether the launcher got a signal.
    """

    def __init__(self, handler: RendezvousHandler, is_ending: Callable[[], bool]) -> None:
        self._handler, self._is_ending = handler, is_ending

    def num_nodes_waiting(self) -> int:
        """Return how many machines want to join. After a signal, none can, so nobody waits for the answer."""
        try:
            return within(SILENT, self._handler.num_nodes_waiting, self._is_ending)
        except SilentError:
            if self._is_ending():
                return 0
            raise

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for the other machines; torch has a limit for that."""
        return self._handler.next_rendezvous()

    def leave(self, for_good: bool) -> None:
        """Leave the rendezvous, for good or until the command is run again.

        Either way, torch's thread that reports this machine as alive ends first: if Python exits while the thread is in
        C++ code, the launcher aborts (exit code 134). If the thread hangs there, nothing wakes it up.
        """
        handler = self._handler
        if for_good:
            within(LAST, handler.shutdown)
        elif isinstance(handler, DynamicRendezvousHandler):
            within(LAST, handler._stop_heartbeats)

    # -- the rest of the interface

    def shutdown(self) -> bool:
        """Close the rendezvous."""
        return within(LAST, self._handler.shutdown)

    def set_closed(self) -> None:
        """Close the rendezvous for all machines."""
        within(LAST, self._handler.set_closed)

    def is_closed(self) -> bool:
        """Return whether the rendezvous is closed."""
        return within(SILENT, self._handler.is_closed, self._is_ending)

    def get_backend(self) -> str:
        """Return how the machines find one another."""
        return self._handler.get_backend()

    def get_run_id(self) -> str:
        """Return the name of the run."""
        return self._handler.get_run_id()

    @property
    def use_agent_store(self) -> bool:
        """Return whether the processes use the store of the rendezvous."""
        return bool(self._handler.use_agent_store)
