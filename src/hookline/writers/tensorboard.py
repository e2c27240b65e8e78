"""Event files for TensorBoard, made of its own messages: one event holds all numbers of a step.

torch's SummaryWriter makes an event for every number and hands it to a thread; that costs many times as much.

A process begins a file of its own, so that a record which a kill has cut in half hides nothing that comes after. A
resumed run cuts the files back to where they were at the checkpoint, so that whoever reads them sees one curve. Its own
file starts with a mark (`SessionLog.START`) at which a TensorBoard that is watching drops the later steps, too.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import tempfile
import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.writers.extras import need
from hookline.writers.files import FileWriter, Record, appending

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

# The ending of our own files: others in the folder are left alone.
ENDING = ".hookline"
BINS = 64


class TensorboardWriter(FileWriter):
    """Numbers, images, histograms, texts and the config for TensorBoard: `tensorboard --logdir runs`.

    What is written is in the file at most a quarter of a second later.

    Args:
        folder: The folder of the event files, in the run's folder.
    """

    label = "folder"
    default_files = ("tensorboard",)

    def __init__(self, folder: str = "tensorboard") -> None:
        super().__init__(folder)
        need("TensorboardWriter", "tensorboard", "tensorboard", "google_crc32c")
        self.folder = folder
        #: The last step that was written, and the one from which on TensorBoard is to forget what it has seen.
        self._step = -1
        self._forget_from: int | None = None

    def _open(self, path: Path) -> None:
        """Get ready; the file is made when there is something to write."""
        import google_crc32c
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._event, self._session_log, self._summary = Event, SessionLog, Summary
        self._crc = google_crc32c.value

    # -- what is written

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """One event with all of them."""
        event = self._event(wall_time=time.time(), step=step)
        add = event.summary.value.add
        for name, value in scalars.items():
            add(tag=name, simple_value=value)
        self._add(event, step, (scalars, step))

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """One event with one number."""
        self.write_scalars({name: value}, step)

    def write_image(self, name: str, image: NDArray[np.uint8], step: int, caption: str | None = None) -> None:
        """A PNG, with the caption as its description."""
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
        """The config as a text."""
        text = json.dumps(config, indent=2, default=str, ensure_ascii=False)
        self.write_text(name, f"```json\n{text}\n```", step)

    def write_text(self, name: str, text: str, step: int) -> None:
        """A text, which TensorBoard shows as Markdown."""
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        event = self._event(wall_time=time.time(), step=step)
        value = event.summary.value.add(tag=name)
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.dtype = DT_STRING
        value.tensor.tensor_shape.dim.add(size=1)
        value.tensor.string_val.append(text.encode())
        self._add(event, step)

    def write_histogram(self, name: str, values: NDArray[np.float64], step: int) -> None:
        """A histogram."""
        import numpy as np

        counts, edges = np.histogram(values, bins=BINS)
        event = self._event(wall_time=time.time(), step=step)
        found = event.summary.value.add(tag=name).histo
        found.min, found.max, found.num = float(values.min()), float(values.max()), values.size
        found.sum, found.sum_squares = float(values.sum()), float(np.square(values).sum())
        found.bucket_limit.extend(edges[1:].tolist())
        found.bucket.extend(counts.tolist())
        self._add(event, step)

    def write_graph(self, name: str, model: nn.Module, inputs: Any) -> None:
        """The graph that torch traces; TensorBoard shows one a run."""
        self._add(self._event(wall_time=time.time(), graph_def=graph_of(model, inputs)), 0)

    # -- how it is written

    def _add(self, event: Any, step: int, made_of: tuple[Mapping[str, float], int] | None = None) -> None:
        self.add(Record(self._framed(event.SerializeToString()), made_of))
        self._step = max(self._step, step)

    def _framed(self, data: bytes) -> bytes:
        """A record as TensorFlow frames it: length, checksum, data, checksum."""
        length = struct.pack("<Q", len(data))
        return b"".join((length, self._checksum(length), data, self._checksum(data)))

    def _checksum(self, data: bytes) -> bytes:
        crc = self._crc(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    def _ready(self) -> FileIO:
        """The file of this process, made when there is something to write."""
        if self._file is None:
            first, opening = self._waiting[0], self._opening()
            self._file = appending(self._next_path())
            self._waiting[0] = first._replace(data=opening + first.data)
            self._waiting_bytes += len(opening)
            self._forget_from = None
        return self._file

    def _next_path(self) -> Path:
        """The next file of the run; its name is later in the alphabet, which is the order that they are read in."""
        assert self._path is not None, "begin() says where"
        self._path.mkdir(parents=True, exist_ok=True)
        second = max([int(time.time()), *(1 + second_of(path) for path in self._files())])
        return self._path / f"events.out.tfevents.{second:010d}.{socket.gethostname()}.{os.getpid()}{ENDING}"

    def _opening(self) -> bytes:
        """What a file begins with."""
        events = [self._event(wall_time=time.time(), file_version="brain.Event:2")]
        # TensorBoard takes the first mark of a run for its start, and acts on later ones.
        forget_from = self._forget_from if self._files() else 0
        if forget_from is not None:
            mark = self._session_log(status=self._session_log.START)
            events.append(self._event(wall_time=time.time(), step=forget_from, session_log=mark))
        return b"".join(self._framed(event.SerializeToString()) for event in events)

    def _files(self) -> list[Path]:
        assert self._path is not None, "begin() says where"
        return sorted(self._path.glob(f"events.out.tfevents.*{ENDING}"))

    # -- going on

    def state_dict(self) -> dict[str, Any]:
        """How long each file is, and the numbers that still wait for a full disk."""
        if self._path is None:
            return {}
        self.flush()
        sizes = {path.name: path.stat().st_size for path in self._files()}
        if self._file is not None:
            sizes[Path(os.fsdecode(self._file.name)).name] = self.whole
        return {"sizes": sizes, "step": self._step, **self.unwritten()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Cut the files back to the checkpoint; those that are younger go."""
        self.forget()
        self._close()
        sizes = state.get("sizes", {})
        for path in self._files():
            if path.name not in sizes:
                path.unlink()
            elif path.stat().st_size > sizes[path.name]:
                os.truncate(path, sizes[path.name])
        self._step = state.get("step", -1)
        self._forget_from = self._step + 1


def second_of(path: Path) -> int:
    """When a file of events was begun, by its name."""
    found = path.name.split(".")[3]
    return int(found) if found.isdecimal() else 0


def graph_of(model: nn.Module, inputs: Any) -> bytes:
    """The graph of a model as torch writes it for TensorBoard; tracing it changes neither the model nor the run."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    from torch.utils.tensorboard import SummaryWriter

    from hookline.common import rng
    from hookline.common.modes import in_mode

    with ExitStack() as leaving:
        folder = leaving.enter_context(tempfile.TemporaryDirectory())
        leaving.enter_context(rng.untouched())
        leaving.enter_context(in_mode(model, training=False))
        leaving.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # torch traces with what it has deprecated itself
        with SummaryWriter(folder) as writer:
            writer.add_graph(model, inputs)
        (file,) = Path(folder).iterdir()
        found: bytes = next(event.graph_def for event in LegacyEventFileLoader(str(file)).Load() if event.graph_def)
        return found
