"""Delivery: makes the calls of one writer, and keeps the run going when the writer fails.

If a call fails with an error that may be temporary (`Writer.may_pass`: a full disk, a server that is down), it waits,
and so do all calls after it, in order. They are tried again after a pause that grows. In the training thread, the pause
is at least a hundred times as long as the failed attempt took, so calls that hang and then fail cannot slow training
down by more than one percent. A slow call that succeeds is always waited for. The number of waiting calls is limited.
A call that fails for any other reason is dropped, and the next one is made as usual.

The first failure in a run is logged as a warning. At the end of the run, one line reports how much is missing.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hookline.common import forks
from hookline.errors import HookError, HooklineError

if TYPE_CHECKING:
    from hookline.writers.base import Outcome, Writer

log = logging.getLogger("hookline")

# Seconds until the next attempt: the first pause, and the longest.
PAUSE, LONGEST_PAUSE = 1.0, 60.0
# The pause is at least this many times as long as the failed attempt.
SHARE = 100
# The most calls that may wait, and the most bytes of images, texts and tables that they may hold.
KEPT, KEPT_BYTES = 10_000, 64 << 20
# The seconds that the end of a run waits for a background writer that works, and for one that does not.
PATIENCE, LITTLE_PATIENCE = 30.0, 5.0
# The number of records that go to a background writer at once.
GATHERED = 200

# Methods that are not retried.
ONCE = ("flush", "close", "state_dict")

# All methods that the run calls.
USED = ("begin", "call", "flush", "close", "state_dict", "load_state_dict")

Call = tuple[str, tuple[Any, ...]]


class Delivery:
    """Makes the calls of one writer, in the thread that records."""

    #: The pause after a failed attempt is at least this many times as long as the attempt.
    share = SHARE

    def __init__(self, name: str, writer: Writer) -> None:
        self.name = name
        self.writer = writer
        #: The number of calls that failed in this run, and the number of records that are lost for good.
        self.failures = 0
        self.missing = 0
        self._last_error = ""
        self._waiting: deque[Call] = deque()
        self._waiting_bytes = 0
        self._begun = False
        self._pause = PAUSE
        self._next_try = 0.0

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """Begin a run. If the writer cannot begin, try again later."""
        self.failures = self.missing = self._waiting_bytes = 0
        self._last_error, self._pause, self._begun = "", PAUSE, False
        self.writer.outcome = "finished"
        forks.own(self)
        self._waiting.clear()
        self._enqueue(("begin", (work_dir, experiment_name)))
        self._send_waiting()

    def call(self, method: str, *args: Any) -> None:
        """Call a method of the writer, now or when it works again."""
        if self._waiting:
            self._enqueue((method, args))
            if time.monotonic() >= self._next_try:
                self._send_waiting()
        elif not self._attempt((method, args)):
            self._enqueue((method, args))

    def _send_waiting(self) -> None:
        """Make the waiting calls in order, until one fails."""
        while self._waiting:
            try:
                if not self._attempt(self._waiting[0]):
                    return
            except HooklineError:
                self._drop_first(1)
                raise
            self._drop_first(1)

    def _attempt(self, call: Call) -> bool:
        """Make a call and return whether it is done. Raise errors that the user must fix (HooklineError)."""
        method, args = call
        started = time.monotonic()
        try:
            getattr(self.writer, method)(*args)
        except HooklineError:
            raise
        except Exception as error:
            return self._handle_failure(method, error, time.monotonic() - started)
        self._begun = self._begun or method == "begin"
        self._pause = PAUSE
        return True

    def _handle_failure(self, method: str, error: Exception, took: float) -> bool:
        """Count and log a failure; return whether the call is dropped."""
        self.failures += 1
        self._last_error = f"{type(error).__name__}: {error}".splitlines()[0]
        log.debug("%s failed at %s", self.name, method, exc_info=error)
        again = method not in ONCE and (method == "begin" or self._may_pass(error))
        if self.failures == 1:
            then = "will try again, and " if again else ""
            log.warning("%s failed: %s; %sthe run continues", self.name, self._last_error, then)
        if not again:
            self.missing += method.startswith("write_")
            return True
        self._next_try = time.monotonic() + max(self._pause, self.share * took)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return False

    def _may_pass(self, error: Exception) -> bool:
        if isinstance(error, HooklineError):
            return False
        try:
            return self.writer.may_pass(error)
        except Exception as another:  # the writer's library may not even be importable
            log.debug("%s failed at may_pass", self.name, exc_info=another)
            return False

    def _enqueue(self, call: Call) -> None:
        size = _size(call)
        if len(self._waiting) >= KEPT or (size and self._waiting_bytes + size > KEPT_BYTES):
            self.missing += 1
            return
        self._waiting.append(call)
        self._waiting_bytes += size

    def _drop_first(self, count: int) -> None:
        for _ in range(count):
            self._waiting_bytes -= _size(self._waiting.popleft())

    def flush(self) -> None:
        """Send whatever can be sent now."""
        if self._waiting and time.monotonic() >= self._next_try:
            self._send_waiting()
        if not self._waiting:
            self._attempt(("flush", ()))

    def close(self, outcome: Outcome = "finished") -> None:
        """End the run: try one last time, and report what is missing."""
        self.writer.outcome = outcome
        with ExitStack() as leaving:
            leaving.callback(self._report, "too many records were waiting")
            leaving.callback(self._close_writer)
            self._send_waiting()

    def _close_writer(self) -> None:
        if self._begun:
            self._attempt(("close", ()))

    def _report(self, otherwise: str) -> None:
        """Log one line if records are missing: how many, and why (`otherwise` if no call has failed)."""
        lost = self.missing + sum(method.startswith("write_") for method, _ in self._waiting)
        forks.release(self)
        self._waiting.clear()
        self._waiting_bytes, self._begun = 0, False
        if lost:
            log.warning("%s is missing %d of this run's records: %s", self.name, lost, self._last_error or otherwise)

    def disown(self) -> None:
        """Refuse all calls in a process that was forked during the run: its records would appear twice."""
        vars(self).update(dict.fromkeys(USED, _refuse_copy))

    def state_dict(self) -> dict[str, Any]:
        """Return the writer's state and the numbers that still wait for it, so that a resumed run has them, too.

        A writer that could not begin yet has a state, too. It tells a resumed run to drop what was written later.
        """
        state = self._own_state()
        held = state.pop("waiting", [])
        waiting = [*held, *([*args] for method, args in list(self._waiting) if method == "write_scalars")]
        return {**state, "waiting": waiting} if waiting or self._first_waiting("begin") else state

    def _first_waiting(self, method: str) -> Call | None:
        return next((call for call in self._waiting if call[0] == method), None)

    def _own_state(self) -> dict[str, Any]:
        if load := self._first_waiting("load_state_dict"):  # the writer's own state is not restored yet
            return {key: value for key, value in load[1][0].items() if key != "iter"}
        if self._first_waiting("begin"):
            return {}
        from hookline.common.plain import check_plain  # it imports torch, which is loaded by now

        try:
            state = dict(self.writer.state_dict())
        except HooklineError:
            raise
        except Exception as error:
            self._handle_failure("state_dict", error, 0.0)
            return {}
        try:
            check_plain(state, "its state")
            return state
        except HooklineError as error:  # the checkpoint matters more than this state
            self._handle_failure("state_dict", error, 0.0)
            return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the writer's state before anything else is written."""
        call = ("load_state_dict", ({key: value for key, value in state.items() if key != "waiting"},))
        if self._waiting:  # the writer has not begun yet: restore its state right after it begins
            self._waiting.insert(1, call)
        elif not self._attempt(call):
            self._enqueue(call)
        for scalars, step in state.get("waiting", ()):
            self.call("write_scalars", scalars, step)


class BackgroundDelivery(Delivery):
    """Makes the calls in a background thread, and sends all numbers that are waiting at once."""

    share = 0

    def __init__(self, name: str, writer: Writer) -> None:
        super().__init__(name, writer)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """Begin a run. The thread starts with the first call."""
        super().begin(work_dir, experiment_name)
        self._closing = False
        self._thread = None

    def call(self, method: str, *args: Any) -> None:
        """Queue the call for the thread."""
        with self._changed:
            self._enqueue((method, args))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"hookline {self.name}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _run(self) -> None:
        while (calls := self._next_calls()) is not None:
            done = self._attempt_in_thread(calls)
            with self._changed:
                if self._thread is not threading.current_thread():  # the run has ended without waiting for this thread
                    return
                if done:
                    self._drop_first(len(calls))
                    self._changed.notify_all()
                elif not self._closing:
                    self._changed.wait(self._next_try - time.monotonic())
                else:
                    return

    def _next_calls(self) -> list[Call] | None:
        """Return the next calls: one call, or all waiting numbers up to the next other call. None at the end."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            calls = list(islice(self._waiting, GATHERED))
        if not calls:
            return None
        numbers = next((at for at, (method, _) in enumerate(calls) if method != "write_scalars"), len(calls))
        return calls[: max(numbers, 1)]

    def _attempt_in_thread(self, calls: list[Call]) -> bool:
        call = calls[0]
        if call[0] == "write_scalars":
            call = ("write_records", ([args for _, args in calls],))
        missing = self.missing
        try:
            done = self._attempt(call)
        except HooklineError as error:  # there is no caller to raise it to
            done = self._handle_failure(call[0], error, 0.0)
        if self.missing > missing:
            self.missing = missing + len(calls)
        return done

    def flush(self) -> None:
        """Wait until the thread has made all calls, but only a few seconds, and not if calls fail."""
        self._wait_for_thread(LITTLE_PATIENCE)

    def _wait_for_thread(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        with self._changed:
            # A longer pause means that a call has failed and will be retried. Dropped calls do not change the pause.
            while self._waiting and self._pause == PAUSE and time.monotonic() < until:
                self._changed.wait(0.1)

    def close(self, outcome: Outcome = "finished") -> None:
        """End the run: wait for the thread, but not for long if the writer fails."""
        self.writer.outcome = outcome
        if self._thread is not None:
            self.call("close")
            self._wait_for_thread(PATIENCE)
            with self._changed:
                self._closing = True
                self._changed.notify_all()
            self._thread.join(LITTLE_PATIENCE)
        with self._changed:
            hangs = self._thread is not None and self._thread.is_alive()
            self._thread = None
            self._report("it did not answer in time" if hangs else "too many records were waiting")

    def state_dict(self) -> dict[str, Any]:
        """Return the writer's state and the numbers that the thread has not written yet."""
        with self._changed:
            return super().state_dict()


def make_delivery(name: str, writer: Writer) -> Delivery:
    """Return the delivery for a writer: in the background, or in the thread that records."""
    return BackgroundDelivery(name, writer) if writer.in_background else Delivery(name, writer)


def _refuse_copy(*arguments: Any) -> NoReturn:
    raise HookError(
        f"process {os.getpid()} was forked during the run, and only the process that started a run writes its records; "
        "end it in the code that forks it, with os._exit(0)"
    )


def _size(call: Call) -> int:
    """Return how many bytes of images, texts and tables a call holds. Numbers do not count: KEPT limits them."""
    return sum(map(_bytes, call[1]))


def _bytes(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, (list, tuple)):
        return sum(map(_bytes, value))
    return int(getattr(value, "nbytes", 0))
