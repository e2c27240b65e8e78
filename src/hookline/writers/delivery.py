"""One writer, behind what keeps a run going when the writer fails.

A call that fails because of something that may pass (`Writer.may_pass`: a full disk, a server that is away) waits, and
so do those after it, in order. They are tried again after a pause that grows; in the training's own thread it is a
hundred times as long as the try took, so that calls which hang and then fail cannot slow training down by more than a
hundredth. A call that takes long and then succeeds is waited for. What waits is bounded. A call that fails for another
reason is given up, and the next is made as ever.

The first failure of a run is a warning; at its end one line says how much is missing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.errors import HooklineError

if TYPE_CHECKING:
    from hookline.writers.base import Outcome, Writer

log = logging.getLogger("hookline")

# Seconds to the next try: at first, and at most; and how much longer than the try itself.
PAUSE, LONGEST_PAUSE = 1.0, 60.0
SHARE = 100
# How many calls wait at most, and how many bytes of images, texts and tables in them.
KEPT, KEPT_BYTES = 10_000, 64 << 20
# How long the end of a run waits for a writer in the background: one that works, and one that does not.
PATIENCE, LITTLE_PATIENCE = 30.0, 5.0
# How many records go to a writer in the background at once.
GATHERED = 200

# What is not tried again by itself.
ONCE = ("flush", "close", "state_dict")

Call = tuple[str, tuple[Any, ...]]


class Delivery:
    """Makes the calls of one writer, in the thread that records."""

    #: How much longer than a try that failed the pause after it is, at least.
    share = SHARE

    def __init__(self, name: str, writer: Writer) -> None:
        self.name = name
        self.writer = writer
        #: How often a call failed, and how many calls are lost for good, in this run.
        self.failures = 0
        self.missing = 0
        self._last_error = ""
        self._waiting: deque[Call] = deque()
        self._waiting_bytes = 0
        self._begun = False
        self._pause = PAUSE
        self._next_try = 0.0

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """A run starts. A writer that cannot begin is asked again later."""
        self.failures = self.missing = self._waiting_bytes = 0
        self._last_error, self._pause, self._begun = "", PAUSE, False
        self.writer.outcome = "finished"
        self._waiting.clear()
        self._wait(("begin", (work_dir, experiment_name)))
        self._make_waiting()

    def call(self, method: str, *args: Any) -> None:
        """Have the writer do something, now or when it can."""
        if self._waiting:
            self._wait((method, args))
            if time.monotonic() >= self._next_try:
                self._make_waiting()
        elif not self._made((method, args)):
            self._wait((method, args))

    def _make_waiting(self) -> None:
        """Make the calls that wait, in order, until one fails."""
        while self._waiting:
            try:
                if not self._made(self._waiting[0]):
                    return
            except HooklineError:
                self._forget(1)
                raise
            self._forget(1)

    def _made(self, call: Call) -> bool:
        """Make a call; whether it is done with. A refusal of what the user asked for is raised."""
        method, args = call
        started = time.monotonic()
        try:
            getattr(self.writer, method)(*args)
        except HooklineError:
            raise
        except Exception as error:
            return self._failed(method, error, time.monotonic() - started)
        self._begun = self._begun or method == "begin"
        self._pause = PAUSE
        return True

    def _failed(self, method: str, error: Exception, took: float) -> bool:
        """Count and say it; whether the call is given up."""
        self.failures += 1
        self._last_error = f"{type(error).__name__}: {error}".splitlines()[0]
        log.debug("%s failed at %s", self.name, method, exc_info=error)
        again = method not in ONCE and (method == "begin" or self._may_pass(error))
        if self.failures == 1:
            then = "it is tried again, and " if again else ""
            log.warning("%s failed: %s; %sthe run goes on", self.name, self._last_error, then)
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
        except Exception as another:  # its library may not even be importable
            log.debug("%s failed at may_pass", self.name, exc_info=another)
            return False

    def _wait(self, call: Call) -> None:
        size = _size(call)
        if len(self._waiting) >= KEPT or (size and self._waiting_bytes + size > KEPT_BYTES):
            self.missing += 1
            return
        self._waiting.append(call)
        self._waiting_bytes += size

    def _forget(self, count: int) -> None:
        for _ in range(count):
            self._waiting_bytes -= _size(self._waiting.popleft())

    def flush(self) -> None:
        """Bring out what can be brought out now."""
        if self._waiting and time.monotonic() >= self._next_try:
            self._make_waiting()
        if not self._waiting:
            self._made(("flush", ()))

    def close(self, outcome: Outcome = "finished") -> None:
        """The run has ended: one last try, and a line about what is missing."""
        self.writer.outcome = outcome
        with ExitStack() as leaving:
            leaving.callback(self._report, "too many waited")
            leaving.callback(self._close_writer)
            self._make_waiting()

    def _close_writer(self) -> None:
        if self._begun:
            self._made(("close", ()))

    def _report(self, otherwise: str) -> None:
        """One line, if anything is missing: how much, and why; `otherwise` if nothing has failed."""
        lost = self.missing + sum(method.startswith("write_") for method, _ in self._waiting)
        self._waiting.clear()
        self._waiting_bytes, self._begun = 0, False
        if lost:
            log.warning("%s lacks %d of this run's records: %s", self.name, lost, self._last_error or otherwise)

    def state_dict(self) -> dict[str, Any]:
        """The writer's state, and the numbers that still wait for it, so that a resumed run has them, too.

        One that could not begin yet has a state, too: a resumed run then has to drop what it wrote afterwards.
        """
        state = self._own_state()
        held = state.pop("waiting", [])
        waiting = [*held, *([*args] for method, args in list(self._waiting) if method == "write_scalars")]
        return {**state, "waiting": waiting} if waiting or self._first_to_do("begin") else state

    def _first_to_do(self, method: str) -> Call | None:
        return next((call for call in self._waiting if call[0] == method), None)

    def _own_state(self) -> dict[str, Any]:
        if load := self._first_to_do("load_state_dict"):  # it does not have its state back yet
            return {key: value for key, value in load[1][0].items() if key != "iter"}
        if self._first_to_do("begin"):
            return {}
        from hookline.common.plain import refuse_odd  # it needs torch, which is here by now

        try:
            state = dict(self.writer.state_dict())
        except HooklineError:
            raise
        except Exception as error:
            self._failed("state_dict", error, 0.0)
            return {}
        try:
            refuse_odd(state, "its state")
            return state
        except HooklineError as error:  # the checkpoint is worth more than this
            self._failed("state_dict", error, 0.0)
            return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give the writer its state back; nothing is written before it has it."""
        call = ("load_state_dict", ({key: value for key, value in state.items() if key != "waiting"},))
        if self._waiting:  # not begun yet: its state comes right after
            self._waiting.insert(1, call)
        elif not self._made(call):
            self._wait(call)
        for scalars, step in state.get("waiting", ()):
            self.call("write_scalars", scalars, step)


class BackgroundDelivery(Delivery):
    """Makes the calls in a thread beside the training; numbers that have gathered go out at once."""

    share = 0

    def __init__(self, name: str, writer: Writer) -> None:
        super().__init__(name, writer)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """A run starts; the writer does what takes time when it is first given something."""
        super().begin(work_dir, experiment_name)
        self._closing = False
        self._thread = None

    def call(self, method: str, *args: Any) -> None:
        """Leave it to the thread."""
        with self._changed:
            self._wait((method, args))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"hookline {self.name}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _run(self) -> None:
        while (calls := self._next_calls()) is not None:
            done = self._made_in_thread(calls)
            with self._changed:
                if self._thread is not threading.current_thread():  # the run did not wait any longer
                    return
                if done:
                    self._forget(len(calls))
                    self._changed.notify_all()
                elif not self._closing:
                    self._changed.wait(self._next_try - time.monotonic())
                else:
                    return

    def _next_calls(self) -> list[Call] | None:
        """What to do next: one call, or the numbers that have gathered; None at the end."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            calls = list(islice(self._waiting, GATHERED))
        if not calls:
            return None
        numbers = next((at for at, (method, _) in enumerate(calls) if method != "write_scalars"), len(calls))
        return calls[: max(numbers, 1)]

    def _made_in_thread(self, calls: list[Call]) -> bool:
        call = calls[0]
        if call[0] == "write_scalars":
            call = ("write_records", ([args for _, args in calls],))
        missing = self.missing
        try:
            done = self._made(call)
        except HooklineError as error:  # nobody is there to be told in person
            done = self._failed(call[0], error, 0.0)
        if self.missing > missing:
            self.missing = missing + len(calls)
        return done

    def flush(self) -> None:
        """Wait until the thread has done what it was given, if it works and is quick."""
        self._wait_for_thread(LITTLE_PATIENCE)

    def _wait_for_thread(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        with self._changed:
            # A longer pause means that a call has failed and is tried again; one that is given up keeps nobody waiting.
            while self._waiting and self._pause == PAUSE and time.monotonic() < until:
                self._changed.wait(0.1)

    def close(self, outcome: Outcome = "finished") -> None:
        """The run has ended: wait for the thread, but not for long if the writer fails."""
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
            self._report("it did not answer in time" if hangs else "too many waited")

    def state_dict(self) -> dict[str, Any]:
        """The writer's state, and the numbers that the thread has not brought out yet."""
        with self._changed:
            return super().state_dict()


def delivery_of(name: str, writer: Writer) -> Delivery:
    """The way that calls reach a writer."""
    return BackgroundDelivery(name, writer) if writer.in_background else Delivery(name, writer)


def _size(call: Call) -> int:
    """How many bytes of images, texts and tables a call holds on to; numbers are bounded by how many there are."""
    return sum(map(_bytes, call[1]))


def _bytes(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, (list, tuple)):
        return sum(map(_bytes, value))
    return int(getattr(value, "nbytes", 0))
