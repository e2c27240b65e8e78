"""What checkpoints are called. This file imports no torch, so that a folder can be looked at without it."""

from __future__ import annotations

import re

#: Unless a template says otherwise; a file of another name and without a seal is not ours.
NAMES = re.compile(r"(best_(?P<metric>.+)_)?(?P<unit>epoch|iter)_(?P<count>[0-9]+)(-[0-9a-f]{8})?\.pth")
