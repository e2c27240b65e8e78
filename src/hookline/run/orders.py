"""Orders of other programs: the loop turns them into requests, and answers each one in the journal.

The loop pays nothing for this: an order sets `requests.pending`, like a signal. So it takes effect where no
accumulation window is open, and with several processes in all of them at the same iteration. Each order is answered at
the step at which it was carried out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hookline.run.requests import Stop
from hookline.run.save_request import SaveRequest

if TYPE_CHECKING:
    from hookline.run.requests import Action, Order, Requests, When

#: Writes one event into the journal of the run.
Note: TypeAlias = "Callable[..., None]"


def take_orders(requests: Requests, note: Note, can_validate: bool) -> None:
    """Turn the orders that have come into requests."""
    for order in requests.take_orders():
        if order.action == "validate" and not can_validate:
            refuse(note, order, "the run has no validation")
        else:
            _request(requests, note, order)


def _request(requests: Requests, note: Note, order: Order) -> None:
    if order.action == "save":
        # A disk that is full must not end the run because somebody pressed a button.
        done, failed = partial(_saved, note, order), partial(refuse, note, order, "the checkpoint was not written")
        requests.ask_save(SaveRequest(needed=False, done=done, failed=failed))
        return
    requests.await_order(order)
    if order.action == "validate":
        requests.ask_validation()
    else:
        when: When = "iter" if order.action == "stop_after_step" else "epoch"
        unit = order.action.removeprefix("stop_after_")
        requests.ask_stop(Stop(f"asked to stop after this {unit} by {order.by}", when=when, for_now=True))


def answer(requests: Requests, note: Note, *actions: Action) -> None:
    """Answer the open orders for these actions, which were carried out just now."""
    for order in requests.carried_out(*actions):
        note("action", name=order.action, by=order.by, id=order.id, state="done", reason="")


def _saved(note: Note, order: Order, path: Path) -> None:
    note("action", name=order.action, by=order.by, id=order.id, state="done", reason="", file=path.name)


def refuse(note: Note, order: Order, reason: str) -> None:
    """Answer an order that is not carried out."""
    note("action", name=order.action, by=order.by, id=order.id, state="refused", reason=reason)
