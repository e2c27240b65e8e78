"""After a training has ended because of NaN or Inf: find out where it began, if this takes less than a minute."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from hookline.cli.common import show
from hookline.common.launched import LAUNCHER
from hookline.errors import StorageError
from hookline.rundir import capsule

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: The seconds that finding the origin may take.
LONGEST = 60.0
#: How often steps are repeated, at most.
TIMES = 3


def find_origin(folder: Path, seconds: float, allow: Sequence[str]) -> None:
    """Show where NaN or Inf began. `seconds` is the duration of a step. A process of its own repeats the steps.

    It ends with this one, and it is ended after a minute. The error has named the command, for all other cases.
    """
    try:
        failure = capsule.read(folder / capsule.NAME)
    except StorageError:
        return  # there is nothing to repeat
    words = ["replay", str(folder), "--triage", *(word for module in allow for word in ("--allow", module))]
    checkpoint = failure.data["checkpoint"]
    steps = failure.data["position"]["iter"] + 1 - (0 if checkpoint is None else checkpoint["step"])
    if TIMES * steps * seconds > LONGEST:
        return  # the error names the command
    show("finding out where this began, which takes a minute at most; Ctrl-C ends it", error=True)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "hookline", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, LAUNCHER: str(os.getpid())},
            timeout=LONGEST,
            text=True,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError, KeyboardInterrupt):
        return
    if done.returncode == 0:
        show(done.stdout.rstrip(), error=True)
