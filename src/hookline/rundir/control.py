"""The control file of a run: `control.jsonl` in its folder, in which other programs ask the run to do something.

    {"id": "5f0c9a1e", "time": 1763395200.25, "action": "save", "by": "hookline watch"}

Each line is one order. `ask` appends one. A run that trains looks at the file about once a second, and answers each
order in its journal: done, or refused with a reason. The file is removed when a training begins and when it ends, so it
holds only orders for the current one. It is data from outside: a run accepts only a regular file of its own user, of a
limited size, and only the names of the actions below.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from hookline.common.files import kind_of, owned
from hookline.common.numbers import is_finite
from hookline.errors import HooklineError, StorageError, did_you_mean
from hookline.run.requests import Action, Order

NAME = "control.jsonl"
ACTIONS: tuple[Action, ...] = get_args(Action)

#: The longest line, the most that is read at once, and the largest file that takes another order, in bytes.
LONGEST, MOST_AT_ONCE, LARGEST = 1000, 64_000, 1_000_000
#: The most orders of one training. Nobody needs as many; a program that sends more is broken.
MOST_ORDERS = 1000
_ID = re.compile("[0-9a-f]{8,64}")


def ask(folder: Path, action: str, by: str) -> Order:
    """Ask the run in a folder to do something, and return the order. Nobody waits for the answer here."""
    if action not in ACTIONS:
        raise HooklineError(f"unknown action '{action}'; {did_you_mean(action, ACTIONS)}")
    order = Order(uuid.uuid4().hex, action, by[:100], round(time.time(), 3))
    line = json.dumps({"id": order.id, "time": order.time, "action": order.action, "by": order.by}).encode() + b"\n"
    path = folder / NAME
    try:
        with open(path, "ab", buffering=0, opener=owned) as file:
            if os.fstat(file.fileno()).st_size > LARGEST:
                raise StorageError(f"{path} is too large for another order: the run does not read it")
            file.write(line)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
    return order


def remove(folder: Path) -> None:
    """Remove the control file, with all of its orders."""
    with suppress(OSError):
        if not kind_of(os.lstat(folder / NAME)):
            (folder / NAME).unlink()


class Inbox:
    """Reads the orders of a training, each of them once.

    Args:
        folder: The folder of the run.
        since: When the training began. Older orders are not for this training.
    """

    def __init__(self, folder: Path, since: float) -> None:
        self.since = since
        self._path = folder / NAME
        self._offset = 0
        self._seen: set[str] = set()

    def poll(self) -> list[Order]:
        """Return the new orders. Without any, this is one call of the system.

        Raise StorageError, and so give up, if the file is not one that the run may read.
        """
        try:
            size = os.lstat(self._path).st_size
        except FileNotFoundError:
            size = 0
        except OSError as error:  # a file system that is gone, a folder that became a file
            raise StorageError(f"{self._path} cannot be read: {error.strerror or error}") from error
        if size < self._offset:  # somebody has replaced it
            self._offset = 0
        if size == self._offset:
            return []
        try:
            lines = self._read()
        except OSError as error:
            raise StorageError(f"{self._path} cannot be read: {error.strerror or error}") from error
        orders = [order for line in lines if (order := parse(line)) is not None and order.id not in self._seen]
        fresh = {order.id: order for order in orders}
        self._seen.update(fresh)
        if len(self._seen) > MOST_ORDERS:
            raise StorageError(f"{self._path} has more than {MOST_ORDERS} orders")
        return list(fresh.values())

    def _read(self) -> list[bytes]:
        """Return the new lines that are complete."""
        with open(self._path, "rb", opener=owned) as file:
            _refuse_others(self._path, os.fstat(file.fileno()))
            file.seek(self._offset)
            text = file.read(MOST_AT_ONCE)
        end = text.rfind(b"\n") + 1
        if not end and len(text) > LONGEST:  # no order is as long
            end = len(text)
        self._offset += end
        return text[:end].split(b"\n")


def _refuse_others(path: Path, status: os.stat_result) -> None:
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        raise StorageError(f"{path} belongs to another user")


def parse(line: bytes) -> Order | None:
    """Return the order of a line; None if it is not one."""
    if len(line) > LONGEST:
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return _checked(data) if isinstance(data, dict) else None


def _checked(data: dict[str, Any]) -> Order | None:
    values: list[Any] = [data.get(key) for key in ("id", "action", "by", "time")]
    name, action, by, when = values
    if not isinstance(name, str) or not isinstance(by, str) or type(when) not in (int, float):
        return None
    fine = _ID.fullmatch(name) and action in ACTIONS and len(by) <= 100 and is_finite(when)
    return Order(name, action, by, float(when)) if fine else None
