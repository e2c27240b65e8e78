"""The stack of a process, as others read it, even if it is stopped or a thread holds the GIL (only on Linux).

A thread of `faulthandler`, which needs no GIL, writes the stacks into a file in memory unless it is put off in time.
Other processes of this machine read the file through /proc. It has no name, so a kill leaves nothing behind.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TextIO

#: The innermost frames that are shown.
SHOWN = 8


class StackFile:
    """The file that the stacks of this process are written to."""

    def __init__(self) -> None:
        self._file: TextIO | None = None
        if sys.platform == "linux":
            self._file = os.fdopen(os.memfd_create("hookline-stacks"), "w")

    @property
    def number(self) -> int:
        """Return the descriptor of the file; -1 if there is none."""
        return -1 if self._file is None else self._file.fileno()

    def put_off(self, seconds: float) -> None:
        """Let the stacks be written if this is not called again within these seconds."""
        if self._file is not None:
            faulthandler.dump_traceback_later(seconds, file=self._file)
            os.ftruncate(self.number, 0)
            os.lseek(self.number, 0, os.SEEK_SET)

    def close(self) -> None:
        """Stop writing."""
        if self._file is not None:
            faulthandler.cancel_dump_traceback_later()
            self._file.close()
            self._file = None


def read(pid: int, number: int, thread: int) -> list[str]:
    """Return the lines of a stack that another process of this machine has written, the innermost frame last."""
    with suppress(OSError):
        for block in Path(f"/proc/{pid}/fd/{number}").read_text(errors="replace").split("\n\n"):
            head, *frames = block.strip().splitlines()[-200:] or [""]
            while frames and head.startswith("Timeout"):
                head, *frames = frames
            if f"0x{thread:016x}" in head:
                return [line.strip() for line in frames[:SHOWN][::-1]]
    return []


def own(frame: FrameType) -> list[str]:
    """Return the lines of a stack of this process, the innermost frame last."""
    found = traceback.extract_stack(frame)[-SHOWN:]
    return [f'File "{each.filename}", line {each.lineno} in {each.name}' for each in found]


def state(pid: int) -> str:
    """Return the state of a process of this machine: R, S, T (stopped), Z (dead), ...; empty if it is gone."""
    if sys.platform != "linux":
        return "?"
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
