"""TensorboardWriter: event files for TensorBoard, in which one event holds all numbers of a step.

torch's SummaryWriter creates one event per number and passes it to a thread, which costs many times as much. Events
with numbers are encoded here, many at once when they are written, without protobuf: nearly all of their bytes are the
same in every event.

Every process starts a new file, because readers ignore everything after a record that a kill left incomplete. A resumed
run truncates the files to their size at the checkpoint, so that readers see one curve. Its new file starts with a mark
(`SessionLog.START`) that makes a running TensorBoard drop the later steps, too.
"""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import lru_cache
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common.files import owned
from hookline.writers.extras import require_libraries
from hookline.writers.files import LATENCY, FileWriter, Record, appending

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

# The suffix of our own files. Other files in the folder are never touched.
ENDING = ".hookline"
BINS = 64
FLOAT, DOUBLE = struct.Struct("<f").pack, struct.Struct("<d").pack


class TensorboardWriter(FileWriter):
    """Writes numbers, images, histograms, texts and the config for TensorBoard: `tensorboard --logdir runs`.

    Everything reaches the file at most a quarter of a second later.

    Args:
        folder: The folder of the event files, in the run's folder.
    """

    label = "folder"
    default_files = ("tensorboard",)

    def __init__(self, folder: str = "tensorboard") -> None:
        super().__init__(folder)
        require_libraries("TensorboardWriter", "tensorboard", "tensorboard", "google_crc32c")
        self.folder = folder
        #: The last step written, and the first step that a running TensorBoard must forget.
        self._step = -1
        #: Events with numbers that are not encoded yet: the time, the numbers and the step.
        self._plain: list[tuple[float, Mapping[str, float], int]] = []
        self._forget_from: int | None = None

    def _open(self, path: Path) -> None:
        """Import the library. The file is created with the first record."""
        import google_crc32c
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._event, self._session_log, self._summary = Event, SessionLog, Summary
        self._crc = google_crc32c.value

    # -- records

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """Write one event with all numbers."""
        self._plain.append((time.time(), scalars, step))
        self._step = max(self._step, step)
        if time.monotonic() - self._flushed > LATENCY:
            self.flush()

    def flush(self) -> None:
        """Encode and write all events that wait."""
        self._flushed = time.monotonic()
        self._encode_plain()
        super().flush()

    def _encode_plain(self) -> None:
        plain, self._plain = self._plain, []
        self.add_all(
            [
                Record(self._framed(encode_numbers(wall_time, step, scalars)), (scalars, step))
                for wall_time, scalars, step in plain
            ]
        )

    def drop_waiting(self) -> None:
        """Drop all waiting records."""
        self._plain.clear()
        super().drop_waiting()

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """Write one event with one number."""
        self.write_scalars({name: value}, step)

    def write_image(self, name: str, image: NDArray[np.uint8], step: int, caption: str | None = None) -> None:
        """Write a PNG, with the caption as its description."""
        from hookline.record.images import as_png

        height, width, *depth = image.shape
        event = self._event(wall_time=time.time(), step=step)
        value = event.summary.value.add(tag=name)
        if caption:
            value.metadata.summary_description, value.metadata.plugin_data.plugin_name = caption, "images"
        value.image.height, value.image.width, value.image.colorspace = height, width, depth[0] if depth else 1
        value.image.encoded_image_string = as_png(image)
        self._add(event, step)

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """Write the config as a text."""
        text = json.dumps(config, indent=2, default=str, ensure_ascii=False)
        self.write_text(name, f"```json\n{text}\n```", step)

    def write_text(self, name: str, text: str, step: int) -> None:
        """Write a text, which TensorBoard shows as Markdown."""
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        event = self._event(wall_time=time.time(), step=step)
        value = event.summary.value.add(tag=name)
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.dtype = DT_STRING
        value.tensor.tensor_shape.dim.add(size=1)
        value.tensor.string_val.append(text.encode())
        self._add(event, step)

    def write_histogram(self, name: str, values: NDArray[np.float64], step: int) -> None:
        """Write a histogram."""
        import numpy as np

        counts, edges = np.histogram(values, bins=BINS)
        event = self._event(wall_time=time.time(), step=step)
        histogram = event.summary.value.add(tag=name).histo
        histogram.min, histogram.max, histogram.num = float(values.min()), float(values.max()), values.size
        histogram.sum, histogram.sum_squares = float(values.sum()), float(np.square(values).sum())
        histogram.bucket_limit.extend(edges[1:].tolist())
        histogram.bucket.extend(counts.tolist())
        self._add(event, step)

    def write_graph(self, name: str, model: nn.Module, inputs: Any) -> None:
        """Write the graph that torch traces. TensorBoard shows one per run."""
        self._add(self._event(wall_time=time.time(), graph_def=trace_graph(model, inputs)), 0)

    # -- files

    def _add(self, event: Any, step: int) -> None:
        self._encode_plain()
        self.add(Record(self._framed(event.SerializeToString())))
        self._step = max(self._step, step)

    def _framed(self, data: bytes) -> bytes:
        """Return a record in TensorFlow's frame: length, checksum, data, checksum."""
        length = struct.pack("<Q", len(data))
        return b"".join((length, self._checksum(length), data, self._checksum(data)))

    def _checksum(self, data: bytes) -> bytes:
        crc = self._crc(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    def _prepare_file(self) -> FileIO:
        """Return the file of this process; create it for the first record."""
        if self._file is None:
            first, header = self._waiting[0], self._file_header()
            self._file = appending(self._next_path())
            self._waiting[0] = first._replace(data=header + first.data)
            self._waiting_bytes += len(header)
            self._forget_from = None
        return self._file

    def _next_path(self) -> Path:
        """Return the path of the next file. It sorts after the others, because readers go by name."""
        assert self._path is not None, "begin() sets the path"
        self._path.mkdir(parents=True, exist_ok=True)
        second = max([int(time.time()), *(1 + start_second(path) for path in self._files())])
        return self._path / f"events.out.tfevents.{second:010d}.{socket.gethostname()}.{os.getpid()}{ENDING}"

    def _file_header(self) -> bytes:
        """Return the events that a file begins with."""
        events = [self._event(wall_time=time.time(), file_version="brain.Event:2")]
        # TensorBoard takes the first mark of a run as its start, and drops steps only at later ones.
        forget_from = self._forget_from if self._files() else 0
        if forget_from is not None:
            mark = self._session_log(status=self._session_log.START)
            events.append(self._event(wall_time=time.time(), step=forget_from, session_log=mark))
        return b"".join(self._framed(event.SerializeToString()) for event in events)

    def _files(self) -> list[Path]:
        assert self._path is not None, "begin() sets the path"
        return sorted(self._path.glob(f"events.out.tfevents.*{ENDING}"))

    # -- resuming

    def state_dict(self) -> dict[str, Any]:
        """Return the size of each file, and the numbers that still wait because the disk is full."""
        if self._path is None:
            return {}
        self.flush()
        sizes = {path.name: path.stat().st_size for path in self._files()}
        if self._file is not None:
            sizes[Path(os.fsdecode(self._file.name)).name] = self.complete_size
        return {"sizes": sizes, "step": self._step, **self.unwritten()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Truncate the files to their size at the checkpoint, and remove newer files."""
        self.drop_waiting()
        self._close()
        sizes = state.get("sizes", {})
        for path in self._files():
            if path.name not in sizes:
                path.unlink()
            elif path.stat().st_size > sizes[path.name]:
                with open(path, "r+b", opener=owned) as file:
                    file.truncate(sizes[path.name])
        self._step = state.get("step", -1)
        self._forget_from = self._step + 1


def varint(number: int) -> bytes:
    r"""Return an int as protobuf encodes it: seven bits per byte, the lowest first.

    >>> varint(300)
    b'\xac\x02'
    """
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def head_of(name: str) -> bytes:
    """Return everything in front of a number in an event: the lengths, and its name (`Summary.Value.tag`)."""
    tag = name.encode()
    tag = b"\x0a" + varint(len(tag)) + tag
    return b"\x0a" + varint(len(tag) + 5) + tag + b"\x15"


def encode_numbers(wall_time: float, step: int, scalars: Mapping[str, float]) -> bytes:
    """Return an `Event` with these numbers, as protobuf encodes it."""
    pack, parts, length = layout_of(tuple(scalars))
    filled = list(parts)
    filled[1::2] = scalars.values()
    try:
        values = pack(*filled)
    except OverflowError:
        values = b"".join([head_of(name) + as_float32(value) for name, value in scalars.items()])
    return b"".join((b"\x09", DOUBLE(wall_time), b"\x10", varint(step), b"\x2a", length, values))


@lru_cache(maxsize=1000)
def layout_of(names: tuple[str, ...]) -> tuple[Callable[..., bytes], tuple[Any, ...], bytes]:
    """Return the layout that all events with these names share.

    That is the function that puts the numbers between their heads, the heads with places for numbers between them, and
    the length of all.
    """
    heads = [head_of(name) for name in names]
    layout = struct.Struct("<" + "".join(f"{len(head)}sf" for head in heads))
    return layout.pack, tuple(part for head in heads for part in (head, 0.0)), varint(layout.size)


def as_float32(value: float) -> bytes:
    """Return a number in four bytes. One that is too large becomes infinite, as in protobuf."""
    try:
        return FLOAT(value)
    except OverflowError:
        return FLOAT(math.copysign(math.inf, value))


def start_second(path: Path) -> int:
    """Return the second in which an event file was started, from its name."""
    second = path.name.split(".")[3]
    return int(second) if second.isdecimal() else 0


def trace_graph(model: nn.Module, inputs: Any) -> bytes:
    """Return the graph of a model as torch writes it for TensorBoard. Tracing changes neither the model nor the run."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    from torch.utils.tensorboard import SummaryWriter

    from hookline.common import rng
    from hookline.common.modes import in_mode

    with ExitStack() as leaving:
        folder = leaving.enter_context(tempfile.TemporaryDirectory())
        leaving.enter_context(rng.preserved())
        leaving.enter_context(in_mode(model, training=False))
        leaving.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # torch's own tracing uses deprecated functions
        with SummaryWriter(folder) as writer:
            writer.add_graph(model, inputs)
        (file,) = Path(folder).iterdir()
        graph: bytes = next(event.graph_def for event in LegacyEventFileLoader(str(file)).Load() if event.graph_def)
        return graph
