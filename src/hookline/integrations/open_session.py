"""The session that is open in this process: at most one. It is left at the end of the process."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hookline.common import forks
from hookline.errors import HooklineError

if TYPE_CHECKING:
    from hookline.integrations.own_loop import Session

log = logging.getLogger("hookline")

_open: list[Session] = []
forks.call_in_children(_open.clear)


@contextmanager
def only(session: Session) -> Iterator[None]:
    """Let no other session open inside the context."""
    if _open:
        raise HooklineError(
            f"a session is already open in this process ({_open[0].runner.work_dir}); two of them would use the same "
            "random generators and signals, so end the first one before the next"
        )
    _open.append(session)
    try:
        yield
    finally:
        _open.clear()


@atexit.register
def leave() -> None:
    """Leave a session that nobody has closed, while the interpreter is still complete: in a generator, for example."""
    for session in list(_open):
        log.warning("the session was still open at the end of the process, so its loop is left here, as by a break")
        session.__exit__(None, None, None)
