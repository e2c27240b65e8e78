"""Writers: the base class for custom writers, and the built-in writers on top of hookline's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hookline import writers
from hookline.dialects.pointrix.logger.console import ErrorLogger, Logger
from hookline.dialects.pointrix.logger.progress import ProgressLogger
from hookline.dialects.pointrix.utils.config import config_to_primitive
from hookline.dialects.pointrix.utils.registry import Registry
from hookline.writers.router import Writers

__all__ = [
    "LOGGER_REGISTRY",
    "ErrorLogger",
    "JsonlWriter",
    "Logger",
    "NativeWriter",
    "ProgressLogger",
    "TensorboardWriter",
    "WandbWriter",
    "Writer",
    "logproject",
]

LOGGER_REGISTRY = Registry(
    "LOGGER",
    builtin={
        name: f"hookline.dialects.pointrix.logger.writer:{name}"
        for name in ("JsonlWriter", "TensorboardWriter", "WandbWriter")
    },
)


def logproject(file_dir: str | Path, save_dir: str | Path, suffix: str | Iterable[str]) -> None:
    """Copy the files below a folder whose names end in one of the suffixes (`["py", "yaml"]`) into another folder.

    Each file keeps its place relative to the folder, so two files of one name are both kept. Links, folders whose names
    begin with a dot, and the target itself are left out.
    """
    source, target = Path(file_dir).resolve(), Path(save_dir).resolve()
    wanted = {f".{each.lstrip('.')}" for each in ([suffix] if isinstance(suffix, str) else suffix)}
    target.mkdir(parents=True, exist_ok=True)
    for folder, names, files in os.walk(source):
        names[:] = sorted(name for name in names if name[:1] != "." and Path(folder, name) != target)
        for path in (Path(folder, name) for name in files):
            if path.suffix in wanted and path.is_file() and not path.is_symlink():
                copy = target / path.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)


class Writer(writers.Writer):
    """Writes the records of a trainer to one destination.

    A subclass must define `write_scalar`, `write_image` and `write_config`; otherwise it cannot be instantiated. If it
    creates files in the folder of a run, it names them in `files`. It opens them in `begin` or at the first write,
    because by then the files of an earlier run have been moved away.

    Args:
        log_dir: The folder to write to.
    """

    def __init__(self, log_dir: str | Path) -> None:
        self.logfolder = Path(log_dir)

    def finish(self) -> None:
        """Close the writer after the last record."""
        self.close()


class NativeWriter(Writer):
    """Several of hookline's writers as one. Records are checked, and a failure in one writer does not end the run.

    The first write opens the files. A trainer opens them itself, once it knows whether it resumes from a checkpoint.
    Records that are written earlier wait until then.

    Args:
        log_dir: The folder of the run.
        native: The writers.
        experiment_name: The name of the run. The default is the name of the folder.
        logcfg: The config of the run, which is written first.
    """

    def __init__(
        self, log_dir: str | Path, *native: writers.Writer, experiment_name: str = "", logcfg: Any = None
    ) -> None:
        super().__init__(log_dir)
        self.native = Writers(native)
        self.experiment_name = experiment_name or self.logfolder.resolve().name
        self._open = self._held = False
        self._waiting: list[tuple[str, tuple[Any, ...]]] = []
        #: True if the config of the run was passed to the constructor.
        self.knows_config = bool(logcfg)
        if logcfg:
            self._waiting.append(("write_config", ("config", config_to_primitive(logcfg), 0)))

    def hold(self) -> None:
        """Hold records back until `begin`."""
        self._held = not self._open

    def begin(self, work_dir: Path, experiment_name: str, resuming: bool = False) -> None:
        """Open the files for a run. When resuming, only the config may be written before `load_state_dict`."""
        self.native.begin(work_dir, experiment_name, resuming)
        waiting, self._waiting, self._open, self._held = self._waiting, [], True, False
        for method, arguments in waiting:
            getattr(self.native, method)(*arguments)

    def _write(self, method: str, *arguments: Any) -> None:
        if self._held:
            self._waiting.append((method, arguments))
            return
        if not self._open:
            self.begin(self.logfolder, self.experiment_name)
        getattr(self.native, method)(*arguments)

    def write_scalar(self, name: str, scalar: Any, step: int) -> None:
        """Write one number of a step; a tensor with one element counts as a number."""
        self._write("write_scalar", name, scalar, step)

    def write_scalars(self, scalars: Mapping[str, Any], step: int) -> None:
        """Write all numbers of a step at once."""
        self._write("write_scalars", scalars, step)

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """Write one image of a step, in any form that `hookline.record.images` supports."""
        self._write("write_image", name, image, step, caption)

    def write_config(self, name: str, config_dict: Mapping[str, Any], step: int) -> None:
        """Write a config."""
        self._write("write_config", name, config_to_primitive(config_dict), step)

    def write_histogram(self, name: str, values: Any, step: int) -> None:
        """Write the distribution of numbers of a step."""
        self._write("write_histogram", name, values, step)

    def write_text(self, name: str, text: str, step: int) -> None:
        """Write a text of a step."""
        self._write("write_text", name, text, step)

    def write_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        """Write a table of a step."""
        self._write("write_table", name, columns, rows, step)

    def flush(self) -> None:
        """Write out buffered records."""
        self.native.flush()

    def close(self) -> None:
        """Close the files at the end of a run. A later write opens them again."""
        if self._open:
            self._open = False
            self.native.close()

    def files(self) -> Iterable[str]:
        """Return the names of the files that the writers create in the folder."""
        return self.native.files()

    def state_dict(self) -> dict[str, Any]:
        """Return how far the records were written."""
        return self.native.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Drop the records that were written after the checkpoint."""
        self.native.load_state_dict(state)


class TensorboardWriter(NativeWriter):
    """Writes event files for TensorBoard, in `tensorboard/` in the folder.

    Args:
        log_dir: The folder of the run.
        experiment_name: The name of the run.
        logcfg: The config of the run, which is written as a text.
    """

    def __init__(self, log_dir: str | Path, experiment_name: str = "", logcfg: Any = None) -> None:
        from hookline.writers.tensorboard import TensorboardWriter

        super().__init__(log_dir, TensorboardWriter(), experiment_name=experiment_name, logcfg=logcfg)


class WandbWriter(NativeWriter):
    """Writes to a Weights & Biases run.

    Args:
        log_dir: The folder of the run.
        experiment_name: The name of the run.
        project_name: The project.
        logcfg: The config of the run.
        more: Other parameters of hookline's writer: entity, id, group, tags, mode.
    """

    def __init__(
        self,
        log_dir: str | Path,
        experiment_name: str = "",
        project_name: str = "pointrix-project",
        logcfg: Any = None,
        **more: Any,
    ) -> None:
        from hookline.writers.wandb import WandbWriter

        native = WandbWriter(project=project_name, name=experiment_name or None, **more)
        super().__init__(log_dir, native, experiment_name=experiment_name, logcfg=logcfg)


class JsonlWriter(NativeWriter):
    """Writes one record per line to `metrics.jsonl` in the folder. It needs no other library.

    Args:
        log_dir: The folder of the run.
        experiment_name: The name of the run.
    """

    def __init__(self, log_dir: str | Path, experiment_name: str = "") -> None:
        from hookline.writers.jsonl import JsonlWriter

        super().__init__(log_dir, JsonlWriter(), experiment_name=experiment_name)
