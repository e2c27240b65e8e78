"""The control file: a thread reads the orders of other programs. `hookline.run.orders` handles them in the loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from hookline.errors import StorageError
from hookline.run import orders
from hookline.rundir import control

if TYPE_CHECKING:
    from hookline.state.host import Host

log = logging.getLogger("hookline")

#: The seconds between two looks at the control file.
INTERVAL = 1.0


@contextmanager
def listening(host: Host, since: float) -> Iterator[None]:
    """Take orders for a training inside the context, unless they are older than it.

    At the end, refuse those that were not carried out.
    """
    inbox, over = control.Inbox(host.work_dir, since), threading.Event()
    thread = threading.Thread(target=_listen, args=(host, inbox, over), name="hookline-control", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with suppress(StorageError):
            for order in inbox.poll():
                host.requests.order(order)
        for order in [*host.requests.take_orders(), *host.requests.carried_out(*control.ACTIONS)]:
            orders.refuse(host.journal.note, order, "the training ended before it could be carried out")
        control.remove(host.work_dir)


def _listen(host: Host, inbox: control.Inbox, over: threading.Event) -> None:
    while not over.wait(INTERVAL):
        try:
            for order in inbox.poll():
                if order.time < inbox.since:
                    orders.refuse(host.journal.note, order, "it was asked for before this training began")
                else:
                    host.requests.order(order)
        except StorageError as error:
            log.warning("%s. The run continues, and takes no further orders from outside.", error)
            return
