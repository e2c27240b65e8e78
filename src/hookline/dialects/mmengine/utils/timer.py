"""Timers."""

from __future__ import annotations

from time import perf_counter
from typing import Self

from hookline.errors import HooklineError


class TimerError(HooklineError):
    """A timer was asked for something that it cannot tell."""


class Timer:
    """Tells how long something took: `with Timer(): ...`, or `since_start` and `since_last_check`.

    Args:
        start: Whether it starts when it is made.
        print_tmpl: What is printed at the end of a `with`, with the seconds.
    """

    def __init__(self, start: bool = True, print_tmpl: str | None = None) -> None:
        self._is_running = False
        self.print_tmpl = print_tmpl if print_tmpl else "{:.3f}"
        if start:
            self.start()

    @property
    def is_running(self) -> bool:
        """Whether it runs."""
        return self._is_running

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        print(self.print_tmpl.format(self.since_last_check()))
        self._is_running = False

    def start(self) -> None:
        """Start, unless it runs."""
        if not self._is_running:
            self._started = perf_counter()
            self._is_running = True
        self._checked = perf_counter()

    def since_start(self) -> float:
        """Seconds since the start."""
        self._refuse_stopped()
        self._checked = perf_counter()
        return self._checked - self._started

    def since_last_check(self) -> float:
        """Seconds since it was last asked, or started."""
        self._refuse_stopped()
        before, self._checked = self._checked, perf_counter()
        return self._checked - before

    def _refuse_stopped(self) -> None:
        if not self._is_running:
            raise TimerError("the timer does not run; start it")


_timers: dict[str, Timer] = {}


def check_time(timer_id: str) -> float:
    """Seconds since the last call with the same name; 0 at the first."""
    if timer_id not in _timers:
        _timers[timer_id] = Timer()
        return 0
    return _timers[timer_id].since_last_check()
