"""The journal of a run: `events.jsonl` in its folder, one JSON object per line.

    {"time": 1763395200.25, "step": 120, "epoch": 3, "kind": "save", "file": "epoch_3.pth", "best": null, ...}

`time` is in seconds since 1970, `step` counts finished iterations. The kinds, and what each of them has besides:

    start        resumed_from (a checkpoint, or null), processes, environment, origin (how it was started), sources
                 (the hashes of files of code, revision and clean), config (its hash), data (its fingerprint)
    save         file, best (the metric for which it is the best, or null), complete
    validation
    action       name, by, id, state (done, refused), reason: a request from outside, see `hookline.rundir.control`
    signal       name, rank
    stop         reason, by (the hook, or empty)
    warning      text
    failure      text
    end          code (the exit code of the command line)

A failure and its end are at the step whose loss was bad, if it was one. It may be noticed some steps later.
Only the main process of a run writes it. A resumed run appends to it. After the last `start`, a run that has ended has
an `end`. A run without one is running, or was killed: see `hookline.rundir.states`.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from hookline.common import forks
from hookline.common.escape import hidden
from hookline.common.files import owned, regular
from hookline.common.numbers import is_finite

log = logging.getLogger("hookline")

NAME = "events.jsonl"
Kind = Literal["start", "save", "validation", "action", "signal", "stop", "warning", "failure", "end"]
Event: TypeAlias = "dict[str, Any]"

#: The longest text of an event, and the most warnings of a session: a hook may warn at every step.
LONGEST, MOST_WARNINGS = 4000, 200
#: The most that is read of a journal, in bytes: its end, if it is longer.
MOST_BYTES = 16_000_000
#: The fields of every event, and the limit of each: all programs can show such a time, and count such steps.
LIMITS = {"time": 1 << 36, "step": 1 << 53, "epoch": 1 << 53}


class Journal:
    """Writes the events of one session. Before it is opened, events wait; if it is not opened, they are dropped.

    A failure to write is reported once, and never ends the run. Later events are written if they can be: a disk that
    was full for a while must not hide how the run ended.
    """

    def __init__(self, position: Callable[[], tuple[int, int]]) -> None:
        #: Returns the finished iterations and epochs.
        self._position = position
        self._file: IO[bytes] | None = None
        self._waiting: list[bytes] = []
        self._warnings = 0
        self._closed = self._reported = False
        #: True if the last line of the file has no end.
        self._is_cut_off = False
        #: A save in the background writes an event, too. Nothing is logged inside: handlers of logs have locks, too.
        self._lock = threading.RLock()

    @staticmethod
    def check(folder: Path) -> None:
        """Raise an error if the journal of a folder cannot be opened for writing. Nothing changes."""
        with suppress(FileNotFoundError):
            os.close(owned(str(folder / NAME), os.O_WRONLY))

    def open(self, folder: Path) -> None:
        """Open the journal of a folder, and write the events that wait. A line that a kill has cut off is ended.

        A journal that is already open or closed does not change.
        """
        if self._file is not None or self._closed:
            return
        path = folder / NAME
        self._file = open(path, "ab", buffering=0, opener=owned)  # noqa: SIM115  # see close
        forks.own(self)
        with self._lock:
            waiting, self._waiting = self._waiting, []
            with suppress(OSError):
                self._is_cut_off = _is_cut_off(path)
        for line in waiting:
            self._write(line)

    def close(self) -> None:
        """Close the file. Later events are dropped."""
        with self._lock, suppress(OSError):
            file, self._file = self._file, None
            self._closed = True
            if file is not None:
                file.close()
        forks.release(self)

    def disown(self) -> None:
        """Write nothing more in a process that was forked from the run."""
        self._lock = threading.RLock()
        self._closed = True

    def note(self, kind: Kind, *, step: int | None = None, epoch: int | None = None, **facts: Any) -> None:
        """Write an event, at the current position of the run unless another one is given."""
        if self._closed:
            return
        if kind == "warning":
            self._warnings += 1
            if self._warnings > MOST_WARNINGS:
                return
            if self._warnings == MOST_WARNINGS:
                facts["text"] = "there are more warnings, which only run.log has"
        now, passes = self._position()
        at = {"time": round(time.time(), 3), "step": now if step is None else step}
        event = {**at, "epoch": passes if epoch is None else epoch, "kind": kind, **facts}
        line = json.dumps({key: _bounded(value) for key, value in event.items()}).encode() + b"\n"
        if self._file is not None:
            self._write(line)
        elif len(self._waiting) < MOST_WARNINGS:
            self._waiting.append(line)

    def _put(self, line: bytes) -> None:
        assert self._file is not None
        text = b"\n" + line if self._is_cut_off else line
        count = self._file.write(text) or 0
        if count:
            self._is_cut_off = count < len(text)
        if count != len(text):
            raise OSError("No space left on device")

    def _write(self, line: bytes) -> None:
        """Write a line into the file, if there is one."""
        try:
            with self._lock:
                if self._file is not None:
                    self._put(line)
        except OSError as error:
            reported, self._reported = self._reported, True
            if not reported:
                log.warning("%s cannot be written: %s; the run continues", NAME, error.strerror or error)


def _nowhere() -> Journal:
    journal = Journal(lambda: (0, 0))
    journal.close()
    return journal


#: Drops all events: the journal of a process that does not keep one.
NOWHERE = _nowhere()


class JournalHandler(logging.Handler):
    """Adds hookline's own warnings to the journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        """Note one warning."""
        self._journal.note("warning", text=self.format(record))


def read(folder: Path) -> list[Event]:
    """Return the events of the run in a folder, oldest first; empty if there is no journal that can be read.

    A line that is not an event is left out: a kill may have cut it off.
    """
    try:
        with open(folder / NAME, "rb", opener=regular) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - MOST_BYTES))
            text = file.read(MOST_BYTES)
    except OSError:
        return []
    return [event for line in text.split(b"\n") if (event := parse(line)) is not None]


def parse(line: bytes) -> Event | None:
    """Return the event of a line; None if it is not one."""
    try:
        event = json.loads(line, parse_float=_as_float, parse_constant=_as_float)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("kind"), str):
        return None
    return event if all(_is_within(event.get(name), limit) for name, limit in LIMITS.items()) else None


def _as_float(text: str) -> float | None:
    """Return a number of an event; None if it is not finite: a page could not show it, and JSON has no such numbers."""
    value = float(text)
    return value if is_finite(value) else None


def _is_within(value: object, limit: int) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < limit


def last_session(events: list[Event]) -> list[Event]:
    """Return the events since the last start; all events if there is no start."""
    starts = [number for number, event in enumerate(events) if event["kind"] == "start"]
    return events[starts[-1] :] if starts else events


def _bounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _bounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_bounded(entry) for entry in value]
    value = hidden(value) if isinstance(value, str) else value
    return value[: LONGEST - 1] + "…" if isinstance(value, str) and len(value) > LONGEST else value


def _is_cut_off(path: Path) -> bool:
    """Return whether the last line of a file has no end."""
    with open(path, "rb", opener=owned) as file:
        if not os.fstat(file.fileno()).st_size:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
