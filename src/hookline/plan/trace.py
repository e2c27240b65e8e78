"""A Chrome trace of a training: steps, parts of steps, points and hooks on one timeline.

It opens in chrome://tracing and ui.perfetto.dev. The first steps are traced, and then those that the ledger measures:
one of 31. Calls that happen now and then, saves and validations are always traced. After `MOST` events, the trace is
full.

The file is valid JSON after every write, so a run that is killed leaves a trace that opens. With several processes,
each one writes a separate file: `trace.json`, `trace.rank1.json`, ...
"""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hookline.common.checks import check_int
from hookline.common.files import create_folder, kind_of, owned, storage_errors
from hookline.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from hookline.plan.calls import Call

log = logging.getLogger("hookline")

#: The number of steps at the beginning that are traced, and the most events of a file.
FIRST_STEPS, MOST = 100, 200_000
#: Events are written when there are this many.
BATCH = 500

HEAD, TAIL = b'{"displayTimeUnit": "ms", "traceEvents": [\n', b"\n]}\n"


class Trace:
    """The file of one process. It is created at once, so that a file that cannot be written is refused early."""

    def __init__(self, path: str | Path, first_steps: int = FIRST_STEPS, rank: int = 0, name: str = "") -> None:
        check_int("the number of traced steps", first_steps, least=0)
        if "\0" in str(path):
            raise ConfigError(f"the file of a trace cannot have a NUL character in its name: {str(path)!r}")
        given = Path(path)
        #: The file of this process.
        self.path = given if rank == 0 else given.with_name(f"{given.stem}.rank{rank}{given.suffix}")
        self.first_steps = first_steps
        self._rank = rank
        self._clock = time.perf_counter
        self._waiting: list[str] = []
        self._events = 0
        self._file: IO[bytes] | None = self._create()
        self._end = len(HEAD)
        for kind, label in (("process_name", f"{name} rank {rank}".strip()), ("thread_name", "training")):
            self._add({"name": kind, "ph": "M", "pid": rank, "tid": 0, "args": {"name": label}})
        self.flush()

    def _create(self) -> IO[bytes]:
        with storage_errors(self.path):
            create_folder(self.path.parent)
            self._refuse_other_kinds()
            file = open(self.path, "ab+", buffering=0, opener=owned)  # noqa: SIM115  # closed by `close`
            file.seek(0)
            if file.read(len(HEAD)) not in (b"", HEAD):
                file.close()
                raise StorageError(
                    f"{self.path} exists and is not a trace, so it is not replaced; give another name to the trace"
                )
            file.close()
            file = open(self.path, "wb", buffering=0, opener=owned)  # noqa: SIM115  # closed by `close`
            file.truncate(0)
            file.write(HEAD + TAIL)
        return file

    def _refuse_other_kinds(self) -> None:
        if os.path.lexists(self.path) and (kind := kind_of(os.lstat(self.path))):
            raise StorageError(
                f"{self.path} is {kind}, so no trace can be written there; give the name of a file, such as trace.json"
            )

    # -- spans that have just ended

    def add_call(self, call: Call, began: float) -> None:
        """Add the call of a hook."""
        self._span(f"{call.who}.{call.point.name}", "hook", began, {"hook": call.who, "point": call.point.name})

    def add_point(self, name: str, began: float) -> None:
        """Add a point, with all of its hooks."""
        self._span(name, "point", began)

    def add_part(self, name: str, began: float, seconds: float | None = None) -> None:
        """Add a part of training, such as `forward` or `saving`."""
        self._span(name, "part", began, seconds=seconds)

    def add_step(self, number: int, began: float) -> None:
        """Add a whole step, from its first point to its last."""
        self._span(f"step {number}", "step", began, {"step": number})

    def _span(
        self, name: str, kind: str, began: float, about: dict[str, Any] | None = None, seconds: float | None = None
    ) -> None:
        taken = self._clock() - began if seconds is None else seconds
        event = {"name": name, "cat": kind, "ph": "X", "pid": self._rank, "tid": 0}
        self._add({**event, "ts": round(began * 1e6, 3), "dur": round(taken * 1e6, 3), "args": about or {}})

    def _add(self, event: dict[str, Any]) -> None:
        if self._events >= MOST or self._file is None:
            return
        self._events += 1
        if self._events == MOST:
            event = {"name": "the trace is full", "ph": "i", "s": "g", "pid": self._rank, "tid": 0}
            event["ts"] = round(self._clock() * 1e6, 3)
        self._waiting.append(json.dumps(event))
        if len(self._waiting) >= BATCH:
            self.flush()

    # -- the file

    def flush(self) -> None:
        """Write the events that are waiting. The end of the file is replaced in the same write."""
        if not self._waiting or self._file is None:
            return
        comma = b",\n" if self._end > len(HEAD) else b""
        text = comma + ",\n".join(self._waiting).encode()
        self._waiting.clear()
        try:
            if os.pwrite(self._file.fileno(), text + TAIL, self._end) < len(text + TAIL):
                os.ftruncate(self._file.fileno(), self._end)  # valid again, without the new events
                os.pwrite(self._file.fileno(), TAIL, self._end)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            log.warning("%s cannot be written: %s. The run continues without it.", self.path, error.strerror)
            self._file.close()
            self._file = None
            return
        self._end += len(text)

    def close(self) -> None:
        """Write the last events, and close the file."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None
