"""Files with one line of JSON per record, cut back to a checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hookline.common.files import owned

# The number of bytes of a file that are read at once to find its last line break.
BLOCK = 64 << 10


def lines_after(path: Path, size: int) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield the complete records beyond this size, as they are and parsed."""
    with open(path, "rb", opener=owned) as file:
        file.seek(size)
        for line in file:
            try:
                record = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                continue
            if isinstance(record, dict):
                yield line, record


def cut_back(path: Path, size: int) -> None:
    """Truncate a file to a size, and then to complete lines: a kill or a full disk may leave half a line."""
    with open(path, "r+b", opener=owned) as file:
        end = min(size, file.seek(0, os.SEEK_END))
        while end > 0:
            start = max(end - BLOCK, 0)
            file.seek(start)
            if at := file.read(end - start).rfind(b"\n") + 1:
                end = start + at
                break
            end = start
        file.truncate(end)
