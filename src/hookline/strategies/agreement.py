"""Agreement: a request of one process is carried out in all processes, at the same iteration.

Every `every` iterations, the processes start to exchange one bit: is anything asked for? They look at the answer
`every` iterations later, so nobody waits for it. Only if it is yes do they exchange what was asked for. A request
therefore takes effect within `2 * every` iterations. At the end of an epoch or a validation, where all processes wait
for each other anyway, it takes effect at once. A signal also takes effect within an evaluation.

`every` is chosen after some iterations: as many as take PERIOD seconds, or more if the exchange would cost more than
SHARE of them, but at most MOST.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

if TYPE_CHECKING:
    from hookline.run.requests import Requests
    from hookline.strategies.group import Group

#: The share of a step that the exchange may cost, and the seconds between two exchanges, which nobody notices.
SHARE, PERIOD = 0.01, 0.1
#: The first iterations are measured, with an exchange in each; the very first ones are slower and do not count.
WARMUP, MEASURED = 3, 8
#: The largest interval between two exchanges.
MOST = 64


class Agreement:
    """The exchange of requests between the processes of a run."""

    def __init__(self, group: Group) -> None:
        self._group = group
        #: The iterations between two exchanges.
        self.every = 1
        self._ticks = 0
        self._flag = torch.zeros(1, dtype=torch.int32)
        self._work: Any = None
        # The exchange of an evaluation: is there a signal, does any process still have batches, and how many batches
        # take PERIOD seconds? After some exchanges, the last answer is how many turns there are until the next one.
        self._turns = 0
        self._flags = torch.zeros(3, dtype=torch.int32)
        self._evaluating: Any = None
        self._evaluated = 0.0
        self._interval, self._exchanges = 1, 0
        self._least = 0.0
        self._began = 0.0

    def tick(self, requests: Requests) -> None:
        """Take part in the exchange. All processes call this after the same iterations."""
        self._ticks += 1
        if self._ticks <= MEASURED:
            self._measure(requests)
        elif self._ticks % self.every == 0:
            self._exchange_bit(requests)

    def now(self, requests: Requests) -> None:
        """Agree at once. All processes wait for each other here."""
        self._finish()
        flag = torch.tensor([bool(requests.asked)], dtype=torch.int32)
        asked = self._group.reduce(flag, distributed.ReduceOp.MAX).item()
        requests.deliver(self._group.gather(requests.take_asked()) if asked else [])

    def in_evaluation(self, requests: Requests, ended: bool) -> bool:
        """Take part in the exchange of an evaluation, and return whether any process still has batches.

        The processes may have different numbers of batches. So one that has no more takes part until all have ended.
        They look at the same answers in the same order, and deliver a signal at the same one.
        """
        self._turns += 1
        if not ended and self._turns < self._interval:
            return True
        turns, self._turns, work, self._evaluating = self._turns, 0, self._evaluating, None
        now = time.monotonic()
        wanted = 1
        if work is not None:
            self._exchanges += 1
            if self._exchanges >= MEASURED:
                wanted = min(MOST, max(1, round(PERIOD * turns / max(now - self._evaluated, 1e-6))))
            work.wait()
            signaled, continues = bool(self._flags[0]), bool(self._flags[1])
            self._interval = int(self._flags[2]) if continues else 1
            self._exchanges *= continues
            self._deliver_if(signaled, requests)
            if signaled or not continues:
                return continues
        self._evaluated = now
        signal = any(what in ("signal", "overdue") for what, _ in requests.asked)
        self._flags = torch.tensor([signal, not ended, wanted], dtype=torch.int32)
        self._evaluating = distributed.all_reduce(
            self._flags, distributed.ReduceOp.MAX, group=self._group.agreement, async_op=True
        )
        return True

    def _exchange_bit(self, requests: Requests) -> None:
        self._deliver_if(self._finish(), requests)
        self._flag.fill_(bool(requests.asked))
        self._work = distributed.all_reduce(
            self._flag, distributed.ReduceOp.MAX, group=self._group.agreement, async_op=True
        )

    def _deliver_if(self, asked: bool, requests: Requests) -> None:
        """Exchange the requests, if there are any."""
        if asked:
            requests.deliver(self._group.gather(requests.take_asked()))

    def _finish(self) -> bool:
        """Wait for the open exchange, and return whether anything is asked for."""
        work, self._work = self._work, None
        if work is None:
            return False
        work.wait()
        return bool(self._flag.item())

    def _measure(self, requests: Requests) -> None:
        """Exchange in each of the first iterations, and choose the interval from the cost of that."""
        began = time.perf_counter()
        if self._ticks == WARMUP:
            self._began, self._least = began, math.inf
        self._exchange_bit(requests)
        self._least = min(self._least, time.perf_counter() - began)  # a busy machine makes others much longer
        if self._ticks == MEASURED:
            step = (time.perf_counter() - self._began) / (MEASURED - WARMUP)
            wanted = torch.tensor([min(MOST, max(1, round(max(self._least / SHARE, PERIOD) / step)))])
            self.every = int(self._group.reduce(wanted, distributed.ReduceOp.MAX).item())
