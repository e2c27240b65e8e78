"""The state of a run: whether it is running, and how it ended otherwise.

running    a process uses the folder, and its journal has no end
ended      training reached its end, or a stop; a signal ends it, too, with the exit code of the signal
failed     an error ended it
killed     it was running, and its process disappeared: kill -9, out of memory, a power failure
unknown    it was running on another machine, which cannot be asked, or it has no journal
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hookline.rundir import journal, ownership

if TYPE_CHECKING:
    from hookline.rundir.journal import Event

Name = Literal["running", "finished", "stopped", "failed", "killed", "unknown"]

#: The files whose time shows when a run has last written something.
WRITTEN = (journal.NAME, "metrics.jsonl", "run.log", "last_checkpoint")


@dataclass(frozen=True)
class State:
    """The state of a run, with what is known about it."""

    name: Name
    #: One sentence for people.
    text: str
    #: The finished iterations and epochs at the last event.
    step: int
    epoch: int
    #: When the last session began, and when the run last wrote something; seconds since 1970, or None.
    started: float | None
    written: float | None
    #: The exit code, if the run recorded its end.
    code: int | None = None
    #: The process and its machine, if they are known.
    pid: int | None = None
    host: str = ""

    def as_data(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return asdict(self)


def state_of(folder: Path, events: list[Event] | None = None) -> State:
    """Return the state of the run in a folder. `events` is its journal, if it was read already."""
    # First the lock, and then the journal: a run that ends in between has written its end before it released the lock.
    in_use, holder = ownership.is_in_use(folder), ownership.holder_of(folder)
    if events is None or not in_use:
        events = journal.read(folder)
    session = journal.last_session(events)
    name, text, code = _judge(session, in_use)
    environment = session[0].get("environment") if session else None
    host = environment.get("host") if isinstance(environment, dict) else None
    return State(
        name,
        text,
        step=int(session[-1]["step"]) if session else 0,
        epoch=int(session[-1]["epoch"]) if session else 0,
        started=float(session[0]["time"]) if session and session[0]["kind"] == "start" else None,
        written=last_written(folder),
        code=code,
        pid=holder.get("pid"),
        host=str(holder.get("host") or host or ""),
    )


def last_written(folder: Path) -> float | None:
    """Return when a run last wrote something; None if it has not yet."""
    times = []
    for name in WRITTEN:
        try:
            times.append(os.stat(folder / name).st_mtime)
        except OSError:
            continue
    return max(times, default=None)


def _judge(session: list[Event], in_use: bool | None) -> tuple[Name, str, int | None]:
    kinds = {event["kind"]: event for event in session}
    recorded = kinds["end"].get("code") if "end" in kinds else None
    code = recorded if type(recorded) is int else None
    if "failure" in kinds:
        return "failed", _first_line(kinds["failure"].get("text")), code
    if "end" in kinds:
        return *_how_it_ended(kinds, code), code
    if in_use:
        return "running", "running", None
    if not session:
        return "unknown", "the run has no journal", None
    if in_use is None:
        return "unknown", "it was started on another machine, and may be running there", None
    step = int(session[-1]["step"])
    return "killed", f"its process disappeared; its last event is at step {step}", None


def _how_it_ended(kinds: dict[str, Event], code: int | None) -> tuple[Name, str]:
    if "signal" in kinds:
        return "stopped", f"ended by {kinds['signal'].get('name')}"
    if "stop" in kinds:
        by = kinds["stop"].get("by")
        return "stopped", f"stopped{f' by {by}' if by else ''}: {kinds['stop'].get('reason')}"
    if code is not None and code >= 128:
        return "stopped", f"ended by signal {code - 128}"
    return ("failed", f"ended with exit code {code}") if code else ("finished", "finished")


def _first_line(text: object) -> str:
    return str(text).partition("\n")[0]


def quiet_for(state: State, now: float | None = None) -> float | None:
    """Return for how many seconds a run has written nothing; None if it has never written anything."""
    return None if state.written is None else max(0.0, (time.time() if now is None else now) - state.written)
