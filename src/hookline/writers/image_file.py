"""ImageFile: images.jsonl, the images that the page of a run shows, as PNG files in lines of JSON.

The file stays small, however long the run is. Of every name, the first images are all kept. Later ones are kept less
and less often, and the newest one is written when the run ends. Large images are kept as smaller copies.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import sys
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.record.images import as_png
from hookline.writers.cutting import cut_back, lines_after
from hookline.writers.files import FileWriter, Record, appending, warn_if_shorter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger("hookline")

#: The bytes of the file, of one image in it, and the number of names.
MOST_BYTES, LARGEST, MOST_NAMES = 32 << 20, 200_000, 24
#: All of the first images of a name are kept. Then every second up to twice as many, every fourth up to four times, ...
FIRST = 40

Image = tuple["NDArray[np.uint8]", int, str | None]


class ImageFile(FileWriter):
    """Keeps the images of a run in one file, which is created with the first image.

    Args:
        filename: The file in the run's folder.
    """

    def __init__(self, filename: str) -> None:
        super().__init__(filename)
        #: The number of images of each name, and the newest image that was left out.
        self._seen: dict[str, int] = {}
        self._newest: dict[str, Image] = {}
        self._is_full = False

    def _open(self, path: Path) -> None:
        self._seen, self._newest, self._is_full = {}, {}, False
        if os.path.lexists(path):
            cut_back(path, sys.maxsize)
            self._file = appending(path)

    def _prepare_file(self) -> FileIO:
        if self._file is None:
            assert self._path is not None, "flush() is called during a run"
            self._file = appending(self._path)
        return self._file

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """Ignore the number."""

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """Ignore the config."""

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """Write the image, or skip it: the more images of a name there are, the fewer are kept."""
        if name not in self._seen and len(self._seen) >= MOST_NAMES:
            return
        number = self._seen[name] = self._seen.get(name, 0) + 1
        if (number - 1) % interval_at(number - 1):
            self._newest[name] = image, step, caption
            return
        self._newest.pop(name, None)
        self._keep(name, image, step, caption)

    def _keep(self, name: str, image: Any, step: int, caption: str | None) -> None:
        png = base64.b64encode(as_small_png(image)).decode()
        line = json.dumps({"step": step, "name": name, "caption": caption or "", "png": png}).encode() + b"\n"
        if self.complete_size + self._waiting_bytes + len(line) <= MOST_BYTES:
            self.add(Record(line))
        elif not self._is_full:
            self._is_full = True
            log.warning("%s has %d MiB; further images are not kept", self._path, MOST_BYTES >> 20)

    def close(self) -> None:
        """Write the newest image of every name, and close the file."""
        if self._path is not None:
            for name, image in self._newest.items():
                self._keep(name, *image)
            self._newest = {}
        super().close()

    def state_dict(self) -> dict[str, Any]:
        """Return the size of the file, and the number of images of each name; nothing if there were none."""
        self.flush()
        return {"size": self.complete_size, "seen": dict(self._seen)} if self._seen else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remove the images written after the checkpoint, but keep images of tests up to its iteration."""
        assert self._path is not None, "begin() opens the file"
        self.drop_waiting()
        self._newest = {}
        self._seen = {str(name): int(count) for name, count in dict(state.get("seen", {})).items()}
        if self._file is None:
            return
        size, iteration = int(state.get("size", 0)), int(state.get("iter", 0))
        warn_if_shorter(self._path, os.path.getsize(self._path), size, "bytes")
        tests = [line for line, record in lines_after(self._path, size) if _is_test(record, iteration)]
        cut_back(self._path, size)
        self._file.seek(0, os.SEEK_END)
        for line in tests:
            self.add(Record(line))


def _is_test(record: Mapping[str, Any], iteration: int) -> bool:
    return str(record.get("name", "")).startswith("test/") and int(record.get("step", 0)) <= iteration


def interval_at(number: int) -> int:
    """Return how often images are kept after this many of them.

    >>> [interval_at(number) for number in (0, 39, 40, 79, 80, 159, 160)]
    [1, 1, 2, 2, 4, 4, 8]
    """
    return 1 << (number // FIRST).bit_length()


def as_small_png(pixels: NDArray[np.uint8]) -> bytes:
    """Return an image as a PNG file, with half the width and height as often as it takes to be small."""
    while len(png := as_png(pixels)) > LARGEST and min(pixels.shape[:2]) > 1:
        pixels = _half(pixels)
    return png


def _half(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    import numpy as np

    height, width = pixels.shape[0] // 2 * 2, pixels.shape[1] // 2 * 2
    cells = pixels[:height, :width].reshape(height // 2, 2, width // 2, 2, *pixels.shape[2:])
    smaller: NDArray[np.uint8] = cells.mean(axis=(1, 3)).round().astype(np.uint8)
    return smaller
