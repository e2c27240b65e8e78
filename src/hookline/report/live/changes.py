"""New data in the files of a run. One reader feeds all pages; the training process is never contacted."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hookline.common.files import owned
from hookline.common.numbers import is_finite
from hookline.errors import StorageError
from hookline.report.records import MOST_NAMES, as_record
from hookline.rundir import control, journal
from hookline.rundir.names import RECORDS
from hookline.rundir.states import State, state_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: The bytes of a file that are read at once, and the bytes of its end that are read at the start.
MOST_AT_ONCE, AT_START = 2_000_000, 64_000
#: The number of batches of records that are kept for pages that connect a little later, and of records together.
MOST_BATCHES, MOST_KEPT = 120, 20_000
#: The number of answers to orders that are remembered.
MOST_ANSWERS = 50
#: The number of intervals between records that show the usual pace.
PACES = 20


class Tail:
    """The lines that are added to a file. A file that was replaced, or cut back, is reported."""

    def __init__(self, path: Path, at_start: int = AT_START) -> None:
        self._path = path
        self.offset = 0
        self._file: tuple[int, int] | None = None
        self._at_start = at_start

    def read(self) -> tuple[list[bytes], bool]:
        """Return the new lines, and whether the file is another one, or shorter, than before."""
        try:
            status = os.lstat(self._path)
        except OSError:
            was, self._file, self.offset = self._file, None, 0
            return [], was is not None
        same, file = False, (status.st_dev, status.st_ino)
        replaced = self._file is not None and (file != self._file or status.st_size < self.offset)
        if self._file is None or replaced:
            self._file, self.offset = file, max(0, status.st_size - self._at_start)
            same = self.offset > 0
        if status.st_size == self.offset:
            return [], replaced
        return self._lines(cut=same), replaced

    def _lines(self, cut: bool) -> list[bytes]:
        """Return the complete lines since the offset. With `cut`, the first one may have lost its beginning."""
        try:
            with open(self._path, "rb", opener=owned) as file:
                file.seek(self.offset)
                text = file.read(MOST_AT_ONCE)
        except (OSError, StorageError):  # a link is not followed
            return []
        end = text.rfind(b"\n") + 1
        if not end and len(text) == MOST_AT_ONCE:  # no record is as long
            end = len(text)
        self.offset += end
        lines = text[:end].split(b"\n")
        return [line for line in (lines[1:] if cut else lines) if line.strip()]


@dataclass(frozen=True)
class Batch:
    """Records that were read together, and the part of the file that they come from."""

    begin: int
    end: int
    records: list[dict[str, Any]]


@dataclass
class Change:
    """The new data of a run since the last look."""

    batch: Batch | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    #: True if the records are others than before: a page has to be read again.
    restarted: bool = False
    #: True if the state is another one.
    state_changed: bool = False

    def __bool__(self) -> bool:
        """Return whether anything is new."""
        return bool(self.batch or self.events or self.restarted or self.state_changed)


class Feed:
    """One run: its newest values, its state, and what is new at each look."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._records = Tail(folder / RECORDS)
        self._events = Tail(folder / journal.NAME, at_start=journal.MOST_BYTES)
        self._read: list[dict[str, Any]] = []
        self.state: State = state_of(folder)
        #: The newest value of every metric, and its step; of no more names than a page shows.
        self.newest: dict[str, tuple[int, float | None]] = {}
        self.step = 0
        self.batches: deque[Batch] = deque(maxlen=MOST_BATCHES)
        #: When records were seen last, on the clock of this process, and the intervals between them.
        self.seen: float | None = None
        self.paces: deque[float] = deque(maxlen=PACES)
        #: Orders that this server has written, and the answers in the journal, by id.
        self.orders: dict[str, dict[str, Any]] = {}
        #: True once the run was seen running. Alerts are about such runs only.
        self.was_running = False
        self.look()

    @property
    def offset(self) -> int:
        """Return how far the records were read."""
        return self._records.offset

    def look(self, now: float | None = None) -> Change:
        """Return the changes since the last look."""
        now = time.monotonic() if now is None else now
        change = Change()
        begin = self._records.offset
        lines, change.restarted = self._records.read()
        if change.restarted:
            begin = 0
            self.newest.clear()
            self.batches.clear()
            self.step = 0
        records = [record for line in lines if (record := parse(line)) is not None]
        if records:
            change.batch = Batch(begin, self._records.offset, records)
            self._remember(change.batch, now)
        change.events = self._look_at_events()
        before, self.state = self.state, self._find_state(bool(change.events))
        self.was_running = self.was_running or self.state.name in ("running", "unknown")
        change.state_changed = before.name != self.state.name
        return change

    def _remember(self, batch: Batch, now: float) -> None:
        for record in batch.records:
            self.step = max(self.step, record["step"])
            for name, value in record.items():
                if name not in ("step", "epoch") and (name in self.newest or len(self.newest) < MOST_NAMES):
                    self.newest[name] = (record["step"], value)
        if self.seen is not None:
            self.paces.append(now - self.seen)
        self.seen = now
        self.batches.append(batch)
        while sum(len(each.records) for each in self.batches) > MOST_KEPT:
            self.batches.popleft()

    def _look_at_events(self) -> list[dict[str, Any]]:
        lines, restarted = self._events.read()
        if restarted:
            self._read.clear()
        found = [event for line in lines if (event := journal.parse(line)) is not None]
        self._read = journal.last_session(self._read + found)
        for event in found:
            if event["kind"] == "action" and isinstance(event.get("id"), str):
                self.answer(event["id"], event)
        return found

    def _find_state(self, new_events: bool) -> State:
        """Return the state. The state of an ended run does not change until its journal has something new."""
        if self.state.name in ("running", "unknown", "killed") or new_events:
            return state_of(self.folder, self._read)
        return self.state

    # -- orders

    def ask(self, action: str, by: str) -> dict[str, Any]:
        """Write an order for the run, and return it with its state."""
        order = control.ask(self.folder, action, by)
        self.answer(order.id, {"name": order.action, "by": order.by, "time": order.time, "state": "asked"})
        return self.orders[order.id]

    def answer(self, order: str, event: Mapping[str, Any]) -> None:
        """Remember the answer to an order."""
        known = ("name", "by", "time", "step", "state", "reason", "file")
        self.orders[order] = {"id": order, **{name: event[name] for name in known if name in event}}
        while len(self.orders) > MOST_ANSWERS:
            del self.orders[next(iter(self.orders))]

    # -- for pages that connect

    def since(self, offset: int) -> list[Batch] | None:
        """Return the batches after an offset; None if some of them are gone, so that a page has to be read again."""
        if offset == self.offset:
            return []
        later = [batch for batch in list(self.batches) if batch.end > offset]  # another thread may look, too
        return later if later and later[0].begin <= offset else None


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line, with None for values that are not finite; None if it is not a record."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    record = as_record(found, 0) if isinstance(found, dict) else None
    if record is None:
        return None
    return {name: value if value is not None and is_finite(value) else None for name, value in record.items()}
