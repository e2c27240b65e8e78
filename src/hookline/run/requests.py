"""Requests: the one object that hooks, signals and threads write to.

    stop        end training after this iteration or epoch
    saves       checkpoints to write
    validate    run a validation
    skip        skip the current batch
    signal      a signal asked the run to end
    overdue     the time after the signal is over, so the run ends where it is
    failure     a background thread failed
    exit_code   the exit code of the command line if nothing else fails
    orders      what other programs ask for, through the control file

A hook calls a verb of the runner (`stop`, `request_save`, ...), which forwards to this object. Nothing happens yet: the
loop tests `pending` once per iteration and handles the requests at the end of the iteration, where no accumulation
window is open (`hookline.engine.loops.handle_requests`). A stop and a requested validation survive a kill: they are
part of the position in a checkpoint.
"""

from __future__ import annotations

import copy
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from hookline.common import forks
from hookline.common.escape import escaped
from hookline.errors import HookError

if TYPE_CHECKING:
    from hookline.run.save_request import SaveRequest

When = Literal["iter", "epoch"]
#: What other programs may ask a run to do.
Action = Literal["save", "validate", "stop_after_step", "stop_after_epoch"]


@dataclass(frozen=True)
class Order:
    """One order from another program: what to do, who asked for it, and when."""

    id: str
    action: Action
    by: str
    time: float


@dataclass(frozen=True)
class Stop:
    """A request to end training early.

    `for_now` ends only this process: a resumed run continues. Otherwise the stop is for good, as long as the hook that
    requested it is still there with the same parameters.
    """

    reason: str
    #: The name of the hook that requested it; empty if it was not a hook.
    by: str = ""
    when: When = "iter"
    for_now: bool = False
    #: The parameters of that hook, as text, when the stop took effect.
    parameters: str = ""

    def __post_init__(self) -> None:
        # They are shown to people, and may come from a checkpoint.
        object.__setattr__(self, "reason", escaped(self.reason))
        object.__setattr__(self, "by", escaped(self.by))

    def at_rank(self, rank: int) -> Stop:
        """Return the stop as another process shows it."""
        return replace(self, reason=f"{self.reason} (rank {rank})")

    def __bool__(self) -> bool:
        """Return whether it is a stop at all: `NO_STOP` is not."""
        return bool(self.reason)


NO_STOP = Stop("")


#: What a process asks for: stop, save, validate, signal or overdue, and the details.
Asked: TypeAlias = "tuple[str, Any]"


class Requests:
    """All open requests of a run, and the stop that ended it."""

    def __init__(self) -> None:
        #: True if anything below needs attention. The loop tests only this attribute in every iteration.
        self.pending = False
        #: The stop that was requested and is not in effect yet.
        self.stop = NO_STOP
        #: A stop for good at the end of the epoch that had to wait, because the run was stopped for now before it.
        self.postponed = NO_STOP
        #: The stop that ended training; `NO_STOP` while training continues.
        self.stopped = NO_STOP
        #: Checkpoints to write.
        self.saves: list[SaveRequest] = []
        #: True if a validation was requested.
        self.validate = False
        #: Why the current batch is skipped; empty if it is not.
        self.skip = ""
        #: End the accumulation window with this iteration, because no further batch may ever fill it.
        self.flush_window = False
        #: The signal that asked the run to end; 0 if there was none.
        self.signal = 0
        #: The process that got the signal, if not all of them did.
        self.signaled_rank: int | None = None
        #: When this process got the signal, by `time.monotonic`.
        self.signaled_at = math.inf
        #: True if the run has to end without its current state, because a launcher would kill it otherwise.
        self.overdue = False
        #: True if a background thread failed. The loop then waits for that thread and raises its error.
        self.failure = False
        #: The exit code of the command line, if nothing else fails.
        self.exit_code = 0
        #: What this process has asked for and the others do not know yet, if there are several processes.
        self.asked: list[Asked] = []
        #: The number of this process; None if it is the only one.
        self.rank: int | None = None
        self._mine: list[SaveRequest] = []
        #: Orders from outside that the loop has not looked at yet, and those that wait to be carried out.
        self.orders: deque[Order] = deque()
        self._awaited: list[Order] = []

    # -- asking

    def ask_stop(self, stop: Stop, *, flush_window: bool = False, exit_code: int | None = None) -> None:
        """Ask for the end of training.

        The first request wins, with two exceptions: a stop after the iteration replaces one after the epoch, and a stop
        for good replaces one for now.
        """
        if stop.when not in ("iter", "epoch"):
            raise HookError(f"stop(when=...) must be 'iter' or 'epoch', not {stop.when!r}")
        if self.rank is not None:
            self.asked.append(("stop", (stop, flush_window, exit_code)))
        else:
            self._ask_stop(stop, flush_window, exit_code)

    def _ask_stop(self, stop: Stop, flush_window: bool, exit_code: int | None) -> None:
        earlier = self.stop
        for_good = earlier.for_now and not stop.for_now and stop.when == "iter"
        if not earlier or earlier.when == "epoch" or for_good:
            if earlier and stop.for_now and not earlier.for_now:
                self.postponed = earlier
            self.stop = stop
        self.flush_window = self.flush_window or flush_window
        if exit_code is not None:
            self.exit_code = exit_code
        self.pending = True

    def cancel_stop(self) -> None:
        """Cancel a stop that is not in effect yet."""
        self.stop = NO_STOP
        self.asked = [(what, details) for what, details in self.asked if what != "stop"]

    def ask_save(self, request: SaveRequest) -> None:
        """Ask for a checkpoint."""
        if request.meta:
            request = replace(request, meta=copy.deepcopy(request.meta))
        if self.rank is not None and not request.together:
            self.asked.append(("save", request))
        else:
            self.saves.append(request)
            self.pending = True

    def ask_validation(self) -> None:
        """Ask for a validation."""
        if self.rank is not None:
            self.asked.append(("validate", None))
        else:
            self.validate = self.pending = True

    def ask_skip(self, reason: str) -> None:
        """Ask to skip the current batch."""
        self.skip = reason
        self.pending = True

    def end_with(self, exit_code: int) -> None:
        """Set the exit code of the command line."""
        self.exit_code = exit_code

    def receive_signal(self, number: int) -> None:
        """Record a signal. This is called from a signal handler."""
        self.signaled_at = time.monotonic()
        if self.rank is not None:
            self.asked.append(("signal", number))
        else:
            self.signal = number
            self.pending = True

    def ask_end_at_once(self) -> None:
        """Ask for the end of the run at the next place where all processes look, without the current state."""
        if self.rank is None:
            self.overdue = True
        elif ("overdue", None) not in self.asked:
            self.asked.append(("overdue", None))

    def note_failure(self) -> None:
        """Record that a background thread failed. This is called from that thread."""
        self.failure = True
        self.pending = True

    def order(self, order: Order) -> None:
        """Record an order from outside. This is called from the thread that reads the control file."""
        self.orders.append(order)
        self.pending = True

    def disown(self, where: str) -> None:
        """Become the requests of a process that was forked at this place in the run."""
        self.where = where
        self.__class__ = CopiedRequests

    def refuse_copy(self) -> None:
        """End a process that was forked from the run, where it would continue; do nothing in the run itself."""

    # -- several processes

    def share(self, rank: int) -> None:
        """Let this process only ask, until all have agreed. The loop then looks at the requests in every iteration."""
        self.rank, self.pending = rank, True

    def take_asked(self) -> list[Asked]:
        """Return what this process asks for, in a form for other processes, and remember the rest of it here."""
        asked, self.asked = self.asked, []
        self._mine = [details for what, details in asked if what == "save"]
        return [(what, details.for_others() if what == "save" else details) for what, details in asked]

    def deliver(self, asked: list[list[Asked]]) -> None:
        """Ask for everything that the processes asked for, in the order of their ranks."""
        signaled = [rank for rank, own in enumerate(asked) if any(what == "signal" for what, _ in own)]
        if signaled and not self.signal and len(signaled) < len(asked):
            self.signaled_rank = signaled[0]
        for rank, own in enumerate(asked):
            mine = iter(self._mine)
            for what, details in own:
                if what == "stop":
                    stop, flush_window, exit_code = details
                    self._ask_stop(stop.at_rank(rank) if rank != self.rank else stop, flush_window, exit_code)
                elif what == "save":
                    self.saves.append(next(mine) if rank == self.rank else details)
                elif what == "validate":
                    self.validate = True
                elif what == "overdue":
                    self.overdue = True
                else:
                    self.signal = self.signal or details
        self._mine = []
        self.pending = True

    # -- orders from outside

    def take_orders(self) -> list[Order]:
        """Return the orders that have come, and forget them. More may come during the call."""
        taken = []
        while self.orders:
            taken.append(self.orders.popleft())
        return taken

    def await_order(self, order: Order) -> None:
        """Remember an order until it is carried out."""
        self._awaited.append(order)

    def carried_out(self, *actions: Action) -> list[Order]:
        """Return the open orders for these actions, and forget them."""
        found = [order for order in self._awaited if order.action in actions]
        self._awaited = [order for order in self._awaited if order.action not in actions]
        return found

    # -- handling

    def forget_signal(self) -> None:
        """Forget the signal of an earlier run of the same runner."""
        self.signal, self.signaled_at, self.overdue = 0, math.inf, False

    def take_saves(self) -> list[SaveRequest]:
        """Return the checkpoints to write, and forget them."""
        saves, self.saves = self.saves, []
        return saves

    @property
    def files_wanted(self) -> bool:
        """Return whether a checkpoint is to be written to disk."""
        return any(not request.in_memory for request in self.saves)

    def apply_stop_if_due(self, at_epoch_end: bool, parameters_of: Callable[[str], str]) -> Stop:
        """Put the requested stop into effect if it is due, and return it; otherwise return `NO_STOP`."""
        stop = self.stop
        if not stop or (stop.when == "epoch" and not at_epoch_end):
            return NO_STOP
        self.stopped, self.stop = replace(stop, parameters=parameters_of(stop.by)), NO_STOP
        return self.stopped

    def settle(self) -> None:
        """Update `pending` after the requests were handled. A stop may still wait; a signal may have come."""
        self.flush_window = False
        self.pending = bool(self.stop) or self.rank is not None
        if self.signal or self.failure or self.orders:
            self.pending = True

    def resume_training(self) -> None:
        """Continue after a stop, up to a stop that was postponed."""
        if self.stopped:
            self.stopped = NO_STOP
            self.stop, self.postponed = self.postponed or self.stop, NO_STOP
        self.pending = self.pending or bool(self.stop)

    def clear(self) -> None:
        """Forget the requests of an earlier run of the same runner, except a stop in effect and a missed validation."""
        self.stop = NO_STOP
        self.saves.clear()
        self.asked = [(what, details) for what, details in self.asked if what == "signal"]
        self.skip, self.exit_code = "", 0
        self.orders.clear()
        self._awaited.clear()
        self.flush_window = self.failure = False
        self.pending = self.rank is not None

    # -- what survives a kill

    def state_dict(self) -> dict[str, Any]:
        """Return the part that survives a kill, as it is stored in the position of a checkpoint."""
        shown = self.stop or self.stopped
        return {
            "val_requested": self.validate,
            "stop_asked": self.stop.reason,
            "stop_when": shown.when,
            "stopped": self.stopped.reason,
            "stopped_by": shown.by,
            "stopped_with": self.stopped.parameters,
            "stopped_for_now": shown.for_now,
            "stop_later": self.postponed.reason,
            "stop_later_by": self.postponed.by,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, in this version or an earlier one."""
        saved = {**Requests().state_dict(), **state}
        by, when, for_now = saved["stopped_by"], saved["stop_when"], saved["stopped_for_now"]
        self.validate = saved["val_requested"]
        self.stop = Stop(saved["stop_asked"], by, when, for_now) if saved["stop_asked"] else NO_STOP
        self.stopped = Stop(saved["stopped"], by, when, for_now, saved["stopped_with"]) if saved["stopped"] else NO_STOP
        self.postponed = Stop(saved["stop_later"], saved["stop_later_by"], "epoch") if saved["stop_later"] else NO_STOP
        self.pending = self.pending or bool(self.stop)


class CopiedRequests(Requests):
    """The requests of a run in a process that was forked from it: looking at them ends that process.

    A loop looks at them after every iteration. So a copy of the loop ends before it reads more data or saves anything,
    and the run itself needs no further test for this.
    """

    #: Where the process was forked, for the message.
    where: str

    def __getattribute__(self, name: str) -> NoReturn:
        """End the process."""
        where = object.__getattribute__(self, "where")
        forks.end_copy(
            HookError(
                f"process {os.getpid()} was forked{where} and must not continue the run, which belongs to another "
                "process; end it in the code that forks it, with os._exit(0)"
            )
        )
