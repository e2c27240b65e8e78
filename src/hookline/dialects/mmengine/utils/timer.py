"""Timers."""

from __future__ import annotations

from time import perf_counter
from typing import Self

from hookline.common.forwarding import forwarded
from hookline.errors import HooklineError

__all__ = ["Timer", "TimerError", "check_time"]


class TimerError(HooklineError):
    """A timer is used before it was started."""


class Timer:
    """Measures how long something takes: `with Timer(): ...`, or `since_start` and `since_last_check`.

    Args:
        start: Whether it starts when it is created.
        print_tmpl: The template for the line printed at the end of a `with` block, filled in with the seconds.
    """

    def __init__(self, start: bool = True, print_tmpl: str | None = None) -> None:
        self._is_running = False
        self.print_tmpl = print_tmpl if print_tmpl else "{:.3f}"
        if start:
            self.start()

    is_running: bool = forwarded("_is_running", "Return whether the timer is running.")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        print(self.print_tmpl.format(self.since_last_check()))
        self._is_running = False

    def start(self) -> None:
        """Start the timer, unless it is running."""
        if not self._is_running:
            self._started = perf_counter()
            self._is_running = True
        self._checked = perf_counter()

    def since_start(self) -> float:
        """Return the seconds since the start."""
        self._require_running()
        self._checked = perf_counter()
        return self._checked - self._started

    def since_last_check(self) -> float:
        """Return the seconds since the last check or, before the first check, since the start."""
        self._require_running()
        before, self._checked = self._checked, perf_counter()
        return self._checked - before

    def _require_running(self) -> None:
        if not self._is_running:
            raise TimerError("the timer is not running; call start() first")


_timers: dict[str, Timer] = {}


def check_time(timer_id: str) -> float:
    """Return the seconds since the last call with the same name; 0 for the first call."""
    if timer_id not in _timers:
        _timers[timer_id] = Timer()
        return 0
    return _timers[timer_id].since_last_check()
