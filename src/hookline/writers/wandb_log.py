"""Reader for the log of a W&B run, `run-<id>.wandb`: it shows what the run has already written.

The library has no reader for it. The file is a log in LevelDB's format: a header of seven bytes, then blocks of 32 KiB
with pieces. Each piece has a checksum, a length and a kind: whole, first, middle or last. Reading stops at a record
that a kill left incomplete. The records are the library's own protobuf messages.
"""

from __future__ import annotations

import glob
import json
import logging
import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hookline.common.files import regular
from hookline.writers.wandb import step_key

log = logging.getLogger("hookline")

# A log that has not changed for this many seconds is complete.
PATIENCE = 3.0
BLOCK, HEADER = 32 << 10, 7
WHOLE, FIRST, LAST = 1, 2, 4


def logs_of(folder: Path, run_id: str) -> list[Path]:
    """Return the logs of all processes that wrote a run, oldest first. Logs of the same second are numbered."""
    name = glob.escape(run_id)

    def age(path: Path) -> tuple[str, int]:
        match = re.fullmatch(rf"(?:offline-)?run-([^-]*)-{re.escape(run_id)}(?:-(\d+))?", path.parent.name)
        return (match[1], int(match[2] or 0)) if match else (path.parent.name, 0)

    return sorted(folder.glob(f"*run-*-{name}*/run-{name}.wandb"), key=age)


def records(path: Path) -> Iterator[Any]:
    """Yield the messages of a log."""
    from wandb.proto.wandb_internal_pb2 import Record

    with open(path, "rb", opener=regular) as file:
        data, at, parts = file.read(), HEADER, b""
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:  # the rest of the block is too small for another piece
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        at += HEADER
        if not WHOLE <= kind <= LAST or at + length > len(data):
            return
        parts = (b"" if kind in (WHOLE, FIRST) else parts) + data[at : at + length]
        at += length
        if kind in (WHOLE, LAST):
            yield Record.FromString(parts)


def history(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a run's history: the step, and the values by name."""
    for record in records(path):
        if record.WhichOneof("record_type") == "history":
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            yield int(row.pop("_step", record.history.step.num)), row


def wait_for_end(path: Path) -> None:
    """Wait until the log of a run that has just ended is complete: the library keeps writing it for a moment.

    The log is complete when it has its exit record, or when it has stopped changing. The file's time may be from
    another clock, so the wait is limited.
    """
    changed, since = 0.0, 0.0
    while time.time() - (modified := path.stat().st_mtime) < PATIENCE:
        if modified != changed:
            changed, since = modified, time.monotonic()
        ended = any(record.WhichOneof("record_type") == "exit" for record in records(path))
        if ended or time.monotonic() - since > PATIENCE:
            return
        time.sleep(0.02)


def last_steps(folder: Path, run_id: str) -> dict[str, int]:
    """Return the last step of each name that was written for a run."""
    steps: dict[str, int] = {}
    for path in logs_of(folder, run_id):
        try:
            wait_for_end(path)
            for step, row in history(path):
                for name in row:
                    steps[name] = max(int(row.get(step_key(name), step)), steps.get(name, -1))
        except Exception as error:  # another version of the library may use another format
            log.warning("%s cannot be read (%s); repeated steps may appear twice in W&B", path, error)
    return steps
