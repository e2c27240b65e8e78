"""Environment variables through which a launcher and the processes that it started talk to each other.

    HOOKLINE_LAUNCHER_PID       the launcher; the process ends when the launcher is gone
    HOOKLINE_STARTED            a file; it exists once training has begun, and says so when training has ended
    HOOKLINE_RESUME             1 if an earlier attempt began to train, so that this one has to resume, or else 0
    HOOKLINE_COMMAND            the command that continues the run
    HOOKLINE_GRACE              the seconds after a signal until the process is killed; users may set it
    TORCHELASTIC_ERROR_FILE     torch's: the file for the error that ends the process
    TORCHELASTIC_RESTART_COUNT  torch's: how often torchrun has restarted its workers

Without these variables, each function here does nothing. A process of any layer may use them.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import sys
import time
from pathlib import Path

from hookline.common.escape import hidden
from hookline.errors import ConfigError

LAUNCHER, STARTED, RESUME = "HOOKLINE_LAUNCHER_PID", "HOOKLINE_STARTED", "HOOKLINE_RESUME"
GRACE, COMMAND = "HOOKLINE_GRACE", "HOOKLINE_COMMAND"
ERROR_FILE, RESTART_COUNT = "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RESTART_COUNT"
#: The possible contents of the file of HOOKLINE_STARTED.
TRAINING, ENDED = "training", "ended"

# The prctl option of Linux that sets the signal a process gets when its parent dies.
_PR_SET_PDEATHSIG = 1

# The process id of the launcher that started this process; 0 if there is none.
_launcher = 0


def is_launched() -> bool:
    """Return whether hookline's launcher started this process, as `end_with_parent` found out: it shows the errors."""
    return _launcher != 0


def end_with_parent() -> None:
    """End this process when the launcher that started it ends in any way, even by `kill -9` (only on Linux).

    Processes that this one starts are not concerned, so the variable is removed.
    """
    global _launcher
    launcher = os.environ.pop(LAUNCHER, "")
    if launcher.isdecimal():
        _launcher = int(launcher)
        end_with(_launcher)


def end_with(parent: int) -> None:
    """End this process when its parent ends. Linux means the thread that started it, which therefore has to live on."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the call above
            os._exit(1)


def mark_started() -> None:
    """Tell the launcher that training has begun: from now on, a failure is worth a restart that resumes."""
    _mark(TRAINING)


def mark_ended() -> None:
    """Tell the launcher that training has ended: an exit code is final from now on."""
    _mark(ENDED)


def unmark_started() -> None:
    """Take back `mark_started`, because training failed before it had done anything."""
    if path := os.environ.get(STARTED):
        Path(path).unlink(missing_ok=True)


def _mark(state: str) -> None:
    if path := os.environ.get(STARTED):
        Path(path).write_text(state, encoding="utf-8")


def must_resume() -> bool:
    """Return whether this process replaces one that was training."""
    if resume := os.environ.get(RESUME):
        return resume == "1"
    return os.environ.get(RESTART_COUNT, "0") not in ("", "0")


def command() -> str:
    """Return the command that continues the run, as its launcher was started; empty if there is no launcher."""
    return os.environ.get(COMMAND, "") if is_launched() else ""


def grace() -> float | None:
    """Return the seconds after a signal until this process is killed; None if they are not known.

    hookline's launcher sets them. Whoever starts processes in another way can set them, too.
    """
    text = os.environ.get(GRACE, "")
    try:
        seconds = float(text or "nan")
    except ValueError:
        seconds = -1.0
    if seconds < 0 or math.isinf(seconds):
        raise ConfigError(f"the environment variable {GRACE} must be a number of seconds, not {text!r}")
    return None if math.isnan(seconds) else seconds


def record(text: str, relayed: bool = False) -> bool:
    """Write the error that ends this process where torch's launcher looks for it; return whether it will be shown.

    torchrun shows it in its table of failures, but only after the last restart. hookline's launcher shows it at once.
    If it is the error of another process (`relayed`), that one comes first for both.
    """
    path = os.environ.get(ERROR_FILE)
    if not path:
        return False
    text = hidden(text)  # the launcher has not read the config, so it cannot know what to hide
    details = {"py_callstack": text, "timestamp": str(int(time.time()) + relayed), "relayed": relayed}
    try:
        Path(path).write_text(json.dumps({"message": {"message": text, "extraInfo": details}}), encoding="utf-8")
    except OSError:  # no disk space is left, for example
        return False
    return is_launched()
