"""Writers: the base class for one's own, and those that stand on hookline's."""

from __future__ import annotations

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
]

LOGGER_REGISTRY = Registry(
    "LOGGER",
    builtin={
        name: f"hookline.dialects.pointrix.logger.writer:{name}"
        for name in ("JsonlWriter", "TensorboardWriter", "WandbWriter")
    },
)


class Writer(writers.Writer):
    """Takes what a trainer records to one place.

    A subclass provides `write_scalar`, `write_image` and `write_config`; one that lacks any cannot be made. One that
    makes files in the folder of a run names them in `files`, and opens them in `begin` or with the first thing that it
    writes: then those of an earlier run have made way.

    Args:
        log_dir: The folder to write to.
    """

    def __init__(self, log_dir: str | Path) -> None:
        self.logfolder = Path(log_dir)

    def finish(self) -> None:
        """There is nothing more to come."""
        self.close()


class NativeWriter(Writer):
    """Writers of hookline as one: what is written is checked, and what fails in one of them does not end a run.

    The first thing that is written opens the files. A trainer opens them itself, when it knows whether it goes on from
    a checkpoint; what is written before waits.

    Args:
        log_dir: The folder of the run.
        native: The writers.
        experiment_name: The name of the run; the folder's, unless given.
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
        #: Whether the config of the run was given to it when it was made.
        self.knows_config = bool(logcfg)
        if logcfg:
            self._waiting.append(("write_config", ("config", config_to_primitive(logcfg), 0)))

    def hold(self) -> None:
        """Keep what is written until `begin`."""
        self._held = not self._open

    def begin(self, work_dir: Path, experiment_name: str, resuming: bool = False) -> None:
        """A run starts, or goes on from a checkpoint; then only the config is written until `load_state_dict`."""
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
        """One number, or a tensor with one element, of a step."""
        self._write("write_scalar", name, scalar, step)

    def write_scalars(self, scalars: Mapping[str, Any], step: int) -> None:
        """All numbers of a step at once."""
        self._write("write_scalars", scalars, step)

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """One image of a step: anything that `hookline.record.images` knows."""
        self._write("write_image", name, image, step, caption)

    def write_config(self, name: str, config_dict: Mapping[str, Any], step: int) -> None:
        """A config."""
        self._write("write_config", name, config_to_primitive(config_dict), step)

    def write_histogram(self, name: str, values: Any, step: int) -> None:
        """How numbers are distributed."""
        self._write("write_histogram", name, values, step)

    def write_text(self, name: str, text: str, step: int) -> None:
        """A text of a step."""
        self._write("write_text", name, text, step)

    def write_table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> None:
        """A table of a step."""
        self._write("write_table", name, columns, rows, step)

    def flush(self) -> None:
        """Bring out what is still held back."""
        self.native.flush()

    def close(self) -> None:
        """The run has ended; what is written later opens the files again."""
        if self._open:
            self._open = False
            self.native.close()

    def files(self) -> Iterable[str]:
        """What it makes in the folder."""
        return self.native.files()

    def state_dict(self) -> dict[str, Any]:
        """How far the records went."""
        return self.native.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Drop what was recorded after the checkpoint."""
        self.native.load_state_dict(state)


class TensorboardWriter(NativeWriter):
    """Event files for TensorBoard, in `tensorboard/` in the folder.

    Args:
        log_dir: The folder of the run.
        experiment_name: The name of the run.
        logcfg: The config of the run, to be written as a text.
    """

    def __init__(self, log_dir: str | Path, experiment_name: str = "", logcfg: Any = None) -> None:
        from hookline.writers.tensorboard import TensorboardWriter

        super().__init__(log_dir, TensorboardWriter(), experiment_name=experiment_name, logcfg=logcfg)


class WandbWriter(NativeWriter):
    """A run of Weights & Biases.

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
    """A record a line in `metrics.jsonl` in the folder; it needs no other library.

    Args:
        log_dir: The folder of the run.
        experiment_name: The name of the run.
    """

    def __init__(self, log_dir: str | Path, experiment_name: str = "") -> None:
        from hookline.writers.jsonl import JsonlWriter

        super().__init__(log_dir, JsonlWriter(), experiment_name=experiment_name)
