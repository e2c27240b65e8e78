"""A screen as a terminal would show it, for the codes that hookline's display uses. Any other code is an error."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
import threading
from contextlib import suppress
from pathlib import Path

#: The seconds after which a process hangs.
PATIENCE = 300

CODE = re.compile("\\x1b\\[(\\??[0-9;]*)([A-Za-z])")


def shown_after(text: str) -> list[str]:
    """Return the lines on an endless screen after a text was written to it.

    >>> shown_after("one\\r\\ntwo\\r\\x1b[1A\\x1b[2Kthree")
    ['three', 'two']
    """
    rows, row, column, position = [""], 0, 0, 0
    while position < len(text):
        code = CODE.match(text, position)
        if code is not None:
            parameter, kind = code.groups()
            if kind == "A":
                row -= int(parameter or 1)
                assert row >= 0, "the cursor left the screen"
            elif kind == "K":
                rows[row] = ""
            else:
                assert kind in "hlm", f"unknown code {code[0]!r}"
            position = code.end()
            continue
        letter = text[position]
        position += 1
        if letter == "\r":
            column = 0
        elif letter == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        else:
            rows[row] = rows[row][:column].ljust(column) + letter + rows[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in rows]


def run_on_a_terminal(code: str, folder: Path, **streams: int) -> tuple[int, str]:
    """Run Python code in a process with a terminal of 80 columns; return its exit code and what it wrote there."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    given = {"stdout": theirs, "stderr": theirs, **streams}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=folder, env=environment, **given)  # type: ignore[call-overload]  # the streams
    os.close(theirs)
    written, overdue = b"", threading.Timer(PATIENCE, process.kill)
    overdue.start()
    with suppress(OSError):  # raised when the terminal is closed
        while part := os.read(ours, 65536):
            written += part
    os.close(ours)
    try:
        return process.wait(timeout=PATIENCE), written.decode()
    finally:
        overdue.cancel()
