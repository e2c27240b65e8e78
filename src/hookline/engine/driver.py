"""Driver: everything that is due after an iteration, for every loop: measuring, requests, validations, the end.

`Training` is the driver of a Runner. The loops of dialects whose counters or batches differ use this class directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookline.engine.loops import handle_requests

if TYPE_CHECKING:
    from hookline.state.host import Host


class Driver:
    """Follows a loop from iteration to iteration.

    Args:
        host: The owner of the plan, the counters, the requests and the checkpoints.
        max_iters: The number of iterations after which the loop must end; None if something else ends it.
    """

    def __init__(self, host: Host, max_iters: int | None = None) -> None:
        self.host = host
        self.plan, self.position, self.requests, self.current = host.plan, host.position, host.requests, host.current
        self.strategy, self.ledger = host.strategy, host.plan.ledger
        self._max_iters = max_iters
        #: The finished iterations at which something is due besides the step.
        self._next_look: float = 0

    def resume(self) -> None:
        """Restore the late states of a resumed run, where it continues, and run a validation that it has missed."""
        if self.host.loading.restore():
            handle_requests(self.host)

    def after_iteration(self, due: bool = False) -> bool:
        """Measure and handle requests after an iteration that was counted. Return whether the loop must end.

        If a validation may be `due`, requests are handled in any case, because this also validates.
        """
        done = self.position.iter
        if done >= self._next_look:
            self._look()
        if due or self.requests.pending:
            handle_requests(self.host)
            if self.requests.stopped:
                return True
        return done == self._max_iters

    def _look(self) -> None:
        """Do what is not due in every iteration: begin or end the measurement of one."""
        if self.position.iter >= self.ledger.next_turn:
            self.ledger.turn()
        self._next_look = self.ledger.next_turn

    def handle_requests(self) -> None:
        """Handle requests that were made outside an iteration."""
        if self.requests.pending:
            handle_requests(self.host)
