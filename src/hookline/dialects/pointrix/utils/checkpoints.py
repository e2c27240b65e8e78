"""Names of a trainer's checkpoints: `chkpnt00500.pth` after 500 steps."""

from __future__ import annotations

import re

NAME = "chkpnt{:05d}.pth"
NAMES = re.compile(r"chkpnt[0-9]+\.pth")
