"""Control file: a thread reads commands from other programs, and the loop turns them into requests.

The loop pays nothing for this: an order sets `requests.pending`, like a signal. So it takes effect where no
accumulation window is open, and with several processes in all of them at the same iteration. Each order is answered in
the journal, at the step at which it was carried out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hookline.errors import StorageError
from hookline.run.requests import SaveRequest, Stop
from hookline.rundir import control

if TYPE_CHECKING:
    from hookline.run.requests import Action, Order, When
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
            _refuse(host, order, "the training ended before it could be carried out")
        control.remove(host.work_dir)


def _listen(host: Host, inbox: control.Inbox, over: threading.Event) -> None:
    while not over.wait(INTERVAL):
        try:
            for order in inbox.poll():
                if order.time < inbox.since:
                    _refuse(host, order, "it was asked for before this training began")
                else:
                    host.requests.order(order)
        except StorageError as error:
            log.warning("%s. The run continues, and takes no further orders from outside.", error)
            return


def take_orders(host: Host) -> None:
    """Turn the orders that have come into requests."""
    for order in host.requests.take_orders():
        if why := host.refusal(order.action):
            _refuse(host, order, why)
        else:
            _request(host, order)


def _request(host: Host, order: Order) -> None:
    requests = host.requests
    if order.action == "save":
        # A disk that is full must not end the run because somebody pressed a button.
        done, failed = partial(_saved, host, order), partial(_refuse, host, order, "the checkpoint was not written")
        requests.ask_save(SaveRequest(needed=False, done=done, failed=failed))
        return
    requests.await_order(order)
    if order.action == "validate":
        requests.ask_validation()
    else:
        when: When = "iter" if order.action == "stop_after_step" else "epoch"
        unit = order.action.removeprefix("stop_after_")
        requests.ask_stop(Stop(f"asked to stop after this {unit} by {order.by}", when=when, for_now=True))


def answer(host: Host, *actions: Action) -> None:
    """Answer the open orders for these actions, which were carried out just now."""
    for order in host.requests.carried_out(*actions):
        host.journal.note("action", name=order.action, by=order.by, id=order.id, state="done", reason="")


def _saved(host: Host, order: Order, path: Path) -> None:
    host.journal.note("action", name=order.action, by=order.by, id=order.id, state="done", reason="", file=path.name)


def _refuse(host: Host, order: Order, reason: str) -> None:
    host.journal.note("action", name=order.action, by=order.by, id=order.id, state="refused", reason=reason)
