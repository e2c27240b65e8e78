"""What the checkpoints of a trainer are called: `chkpnt00500.pth`, after 500 steps."""

from __future__ import annotations

import re

NAME = "chkpnt{:05d}.pth"
NAMES = re.compile(r"chkpnt[0-9]+\.pth")
