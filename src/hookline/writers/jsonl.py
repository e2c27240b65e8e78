"""JsonlWriter: metrics.jsonl with one record per line, `{"step": 120, "epoch": 2, "train/loss": 0.41}`.

Images are kept in a separate file, images.jsonl, for the page of the run.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from hookline.common.files import is_at
from hookline.errors import ConfigError, StorageError
from hookline.writers.cutting import cut_back, lines_after
from hookline.writers.files import LATENCY, Record, RecordWriter, appending, warn_if_shorter
from hookline.writers.image_file import ImageFile

RECORDS, IMAGES = "metrics.jsonl", "images.jsonl"
NUMBERS = frozenset({int, float})
ENCODER = json.JSONEncoder(allow_nan=False)


class JsonlWriter(RecordWriter):
    """Writes one line of JSON per logged step, at most a quarter of a second later.

    Images are kept in images.jsonl, for the page of the run (`report.html`): at most 32 MiB, and large ones as smaller
    copies. The file is created with the first image.

    Args:
        filename: The file in the run's folder.
        images: Whether to keep images.
    """

    limit = None
    default_files = (RECORDS, IMAGES)

    def __init__(self, filename: str = RECORDS, images: bool = True) -> None:
        super().__init__(filename)
        if not isinstance(images, bool):
            raise ConfigError(f"JsonlWriter: images must be true or false, not {images!r}")
        self.keeps_images = images
        self._images = ImageFile(images_file(filename)) if images else None
        #: Records that are not encoded yet: many at once take a fraction of the time of one now and then.
        self._plain: list[tuple[Mapping[str, float], int]] = []

    def files(self) -> Iterable[str]:
        """Return the file of the records and the file of the images."""
        return [self.filename, *(self._images.files() if self._images is not None else ())]

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """Open the files of this run."""
        super().begin(work_dir, experiment_name)
        if self._images is not None:
            self._images.begin(work_dir, experiment_name)

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """Keep an image for the page of the run."""
        if self._images is not None:
            self._images.write_image(name, image, step, caption)

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """Keep one record, which is encoded and written soon. Anything but numbers is encoded now: that may fail."""
        if not NUMBERS.issuperset(map(type, scalars.values())):
            self._encode_plain()
            super().write_scalars(scalars, step)
            return
        self._plain.append((scalars, step))
        if time.monotonic() - self._flushed > LATENCY:
            self.flush()

    def flush(self) -> None:
        """Encode and write all records that wait."""
        self._flushed = time.monotonic()
        self._encode_plain()
        super().flush()
        if self._images is not None:
            self._images.flush()

    def _encode_plain(self) -> None:
        plain, self._plain = self._plain, []
        self.add_all([Record(line_of(scalars, step), (scalars, step)) for scalars, step in plain])

    def drop_waiting(self) -> None:
        """Drop all waiting records."""
        self._plain.clear()
        super().drop_waiting()

    def _open(self, path: Path) -> None:
        """Continue after the last complete line, if the file exists."""
        if os.path.lexists(path):
            cut_back(path, sys.maxsize)
        self._file = appending(path)
        self._folder = os.stat(path.parent)

    def as_bytes(self, record: dict[str, float]) -> bytes:
        """Return the record as one line of JSON. NaN and Inf become null, because JSON does not have them."""
        return as_line(record)

    def state_dict(self) -> dict[str, Any]:
        """Return the size of the file. Raise StorageError if some records are not in it yet."""
        self.flush()
        if self._path is not None and self._waiting:
            raise StorageError(f"{self._path} cannot be written, and a checkpoint needs all records to be in it")
        self._refuse_removed()
        if self._path is None:
            return {}
        images = self._images.state_dict() if self._images is not None else {}
        return {"size": self.complete_size, **({"images": images} if images else {})}

    def close(self) -> None:
        """Write all waiting records, and close the file. Raise StorageError if it was removed during the run."""
        try:
            self.flush()
            self._refuse_removed()
        finally:
            if self._images is not None:
                self._images.close()
            super().close()

    def _refuse_removed(self) -> None:
        """Raise StorageError if the file was removed. The run itself reports that its whole folder was."""
        path, file = self._path, self._file
        if path is None or file is None or is_at(path, file.fileno()) or not self._folder_is_there(path):
            return
        raise StorageError(
            f"{path} was deleted, moved or replaced during the run, so its records are lost; put it back if you have "
            "it, and continue with resume=True, or hookline train --resume"
        )

    def _folder_is_there(self, path: Path) -> bool:
        try:
            return os.path.samestat(os.stat(path.parent), self._folder)
        except OSError:
            return False

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remove the lines written after the checkpoint, but keep test results of it and of earlier checkpoints."""
        assert self._path is not None, "begin() opens the file"
        assert self._file is not None
        self.drop_waiting()
        size = int(state.get("size", 0))
        warn_if_shorter(self._path, os.path.getsize(self._path), size, "bytes")
        tests = list(later_tests(self._path, size, int(state.get("iter", 0))))
        cut_back(self._path, size)
        self._file.seek(0, os.SEEK_END)
        for line in tests:
            self.add(Record(line))
        if self._images is not None:
            images = state.get("images")
            self._images.load_state_dict(
                {**(images if isinstance(images, Mapping) else {}), "iter": state.get("iter", 0)}
            )


def as_line(record: Mapping[str, float]) -> bytes:
    """Return any record as one line of JSON."""
    try:
        text = ENCODER.encode(record)
    except ValueError:
        text = ENCODER.encode({name: value if math.isfinite(value) else None for name, value in record.items()})
    return text.encode() + b"\n"


def line_of(scalars: Mapping[str, float], step: int) -> bytes:
    r"""Return a record of plain ints and floats as `as_line` does, in a fraction of its time.

    >>> line_of({"epoch": 2, "train/loss": 0.41}, 120)
    b'{"step": 120, "epoch": 2, "train/loss": 0.41}\n'
    """
    values = (step, *scalars.values())
    if not all(map(math.isfinite, values)):
        return as_line({"step": step, **scalars})
    return (template_of(tuple(scalars)) % values).encode()  # Python writes numbers as JSON does


@lru_cache(maxsize=1000)
def template_of(names: tuple[str, ...]) -> str:
    """Return the line of records with these names, with `%r` in place of each number."""
    keys = [ENCODER.encode(name).replace("%", "%%") for name in ("step", *names)]
    return "{" + ", ".join(f"{key}: %r" for key in keys) + "}\n"


def later_tests(path: Path, size: int, iteration: int) -> Iterator[bytes]:
    """Yield test records beyond this size, up to this iteration: training would not write them again."""
    for line, record in lines_after(path, size):
        if any(name.startswith("test/") for name in record) and record["step"] <= iteration:
            yield line


def images_file(filename: str) -> str:
    """Return the name of the file with the images of a run.

    >>> images_file("metrics.jsonl"), images_file("more.jsonl")
    ('images.jsonl', 'more_images.jsonl')
    """
    return IMAGES if filename == RECORDS else f"{Path(filename).stem}_{IMAGES}"
