"""Which hook is being called, or has raised an error: read from the stack, so that nothing is recorded per call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from hookline.plan.scopes import Around

if TYPE_CHECKING:
    from hookline.plan.calls import Call


def failing_call(error: BaseException, point: str) -> Call | None:
    """Return the call at a point that raised an error, by its traceback; None if it was raised elsewhere."""
    failing, trace = None, error.__traceback__
    while trace is not None:
        call = call_of_frame(trace.tb_frame)
        if call is not None and call.point.name == point:
            failing = call
        trace = trace.tb_next
    return failing


def call_in_progress(host: object) -> Call | None:
    """Return the hook call of this host that is running now in this thread; None outside hooks.

    It is read from the stack: a compiled point and `Around` know which call they are making, so recording each call is
    not necessary. Another thread acts for the user's hook that is running in the thread of the loop, if there is one:
    such a hook usually has started it and waits for it.
    """
    found = _call_in_stack(sys._getframe(1), host)
    if found is not None:
        return found
    others = (_call_in_stack(frame, host) for frame in sys._current_frames().values())
    return next((call for call in others if call is not None and not _is_ours(call.method)), None)


def _is_ours(method: Callable[..., Any]) -> bool:
    return str(getattr(method, "__module__", "")).startswith("hookline.")


def _call_in_stack(frame: FrameType | None, host: object) -> Call | None:
    while frame is not None:
        call = call_of_frame(frame)
        if call is not None and call.host is host:
            return call
        frame = frame.f_back
    return None


def call_of_frame(frame: FrameType) -> Call | None:
    """Return the call that a frame is making; None unless it is a frame of a compiled point or of `Around`."""
    if "hl_calls" in frame.f_globals and "hl_n" in frame.f_code.co_varnames:
        calls: tuple[Call, ...] = frame.f_globals["hl_calls"]
        number = frame.f_locals.get("hl_n", 0)
        return calls[number] if number < len(calls) else None
    if frame.f_code in (Around.__enter__.__code__, Around._leave.__code__):
        call: Call | None = frame.f_locals.get("call")
        return call
    return None
