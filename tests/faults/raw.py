"""RAW: what no input may cause: a hang, too much memory, a traceback of hookline's own code, or control characters."""

from __future__ import annotations

import re
import signal

#: The memory that a command may take beyond what it has at the start. A run of the project takes a tenth of it.
MEMORY = 256 << 20
#: What begins the line that a text of an input adds to an output, if its line ends are shown as they are.
FORGED = "forged: "

# Tabs and line ends are plain text. C1 codes act like escape codes, and bytes that are not UTF-8 may be such codes.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\udc80-\udcff]")
_TRACEBACKS = ("Traceback (most recent call last)", "Exception ignored in", "Fatal Python error", "terminate called")
# The exit codes that hookline documents, except 1: that is also the code of any Python program that fails.
_DOCUMENTED = frozenset({0, 2, 3, 4, 5, 6, 129, 130, 143})


def find_raw(code: int, shown: bytes, raises: bool, memory: int, hung_for: float | None = None) -> list[str]:
    """Return everything about the end of a command that no user should ever see.

    Args:
        code: Its exit code, or minus the signal that ended it.
        shown: Everything that it printed or wrote to a log.
        raises: True if user code raises: its traceback is expected.
        memory: The memory that it took, in bytes.
        hung_for: The seconds after which it was ended, if it hung.
    """
    text, found = shown.decode(errors="surrogateescape"), []
    if hung_for is not None:
        found.append(f"it did not end within {hung_for:.0f} s")
    elif code < 0:
        found.append(f"it was ended by {signal.Signals(-code).name}")
    if memory > MEMORY:
        found.append(f"it took {memory >> 20} MB of memory")
    if not raises:
        found += [f"it printed '{mark}'" for mark in _TRACEBACKS if mark in text]
        if code > 0 and code not in _DOCUMENTED and not re.search("^hookline: ", text, re.MULTILINE):
            found.append(f"its exit code is {code}, without a message")
    if control := _CONTROL.search(text):
        found.append(f"it printed the control character {control[0]!a}")
    if re.search(f"^{FORGED}", text, re.MULTILINE):
        found.append("it printed a line that is part of a text")
    return found
