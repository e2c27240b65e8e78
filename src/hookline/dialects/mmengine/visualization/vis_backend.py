"""Visualization backends: each one provides hookline writers, which receive the records of a run."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from hookline.common.files import replacing
from hookline.dialects.exports import export_defined
from hookline.dialects.mmengine.config import Config
from hookline.dialects.mmengine.errors import ConfigKeyError
from hookline.dialects.mmengine.not_included import not_included
from hookline.errors import did_you_mean
from hookline.record.images import as_png
from hookline.writers.base import Writer
from hookline.writers.jsonl import JsonlWriter

log = logging.getLogger("hookline")

#: The subfolder of the run that a project's own backends write to.
FOLDER = "vis_data"
F = TypeVar("F", bound=Callable[..., Any])


def force_init_env(method: F) -> F:
    """Decorate a backend's method so that it first calls `_init_env`, if that has not been called yet."""

    @functools.wraps(method)
    def ready(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not getattr(self, "_env_initialized", False):
            self._env_initialized = True
            self._init_env()
        return method(self, *args, **kwargs)

    return cast("F", ready)


class BaseVisBackend:
    """The base of all backends. A project's own backend defines `add_scalar` and so on; those here use a writer.

    Args:
        save_dir: The folder that a project's own backend writes to. Those here write to the folder of the run.
    """

    def __init__(self, save_dir: str | None = None) -> None:
        self._save_dir = save_dir
        self._env_initialized = False
        self._writers: list[Writer] = []

    def writers(self) -> list[Writer]:
        """Return the writers that this backend provides for a run."""
        return self._writers or [BackendWriter(self)]

    @property
    def experiment(self) -> Any:
        """Return the object that writes."""
        return self._writers[0] if self._writers else self

    def _init_env(self) -> Any:
        """Prepare for writing, before the first record; a project's own backend may need this."""

    def add_config(self, config: Config, **kwargs: Any) -> None:
        """Write the config of the run."""

    def add_graph(self, model: Any, data_batch: Any, **kwargs: Any) -> None:
        """Write the model."""

    def add_image(self, name: str, image: Any, step: int = 0, **kwargs: Any) -> None:
        """Write one image of a step."""

    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        """Write one number of a step."""

    def add_scalars(
        self, scalar_dict: Mapping[str, Any], step: int = 0, file_path: str | None = None, **kwargs: Any
    ) -> None:
        """Write several numbers of a step."""
        for name, value in scalar_dict.items():
            self.add_scalar(name, value, step)

    def close(self) -> None:
        """Close the backend at the end of the run."""


class BackendWriter(Writer):
    """Passes the records of a run to a project's own backend."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """Prepare the backend at the start of a run."""
        if getattr(self.backend, "_save_dir", None) is None:
            self.backend._save_dir = str(work_dir / FOLDER)
        if not getattr(self.backend, "_env_initialized", True):
            self.backend._env_initialized = True
            self.backend._init_env()

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """Write one number."""
        self.backend.add_scalar(name, value, step)

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """Write all numbers of a step."""
        self.backend.add_scalars(dict(scalars), step)

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """Write one image."""
        self.backend.add_image(name, image, step)

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """Write the config."""
        self.backend.add_config(Config(dict(config)))

    def write_graph(self, name: str, model: Any, inputs: Any) -> None:
        """Write the model."""
        self.backend.add_graph(model, inputs)

    def files(self) -> Iterable[str]:
        """Return the folder that a backend writes to by default."""
        return [FOLDER]

    def close(self) -> None:
        """Close the backend at the end of the run."""
        self.backend.close()


class ImageFolderWriter(Writer):
    """Writes images as PNG files: `vis_image/<name>_<step>.png` in the run's folder, or in another one."""

    def __init__(self, folder: str = "vis_image") -> None:
        self.folder = folder
        self._path: Path | None = None
        self._elsewhere: Path | None = None

    def write_to(self, save_dir: Path) -> None:
        """Write to `save_dir/vis_data`, and not to the run's folder: `tools/test.py --show-dir` asks for this."""
        self._elsewhere = save_dir / FOLDER / self.folder

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """Set the folder, which is created with the first image."""
        self._path = work_dir / self.folder if self._elsewhere is None else self._elsewhere

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """Do nothing: another writer records numbers."""

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """Do nothing: another writer records numbers."""

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """Do nothing: another writer records the config."""

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """Write one file; a resumed run that repeats a step replaces the step's file."""
        assert self._path is not None, "set by begin()"
        path = self._path / f"{name}_{step}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(as_png(image))

    def files(self) -> Iterable[str]:
        """Return the folder, if it is in the run's."""
        return [self.folder] if self._elsewhere is None else []


class LocalVisBackend(BaseVisBackend):
    """Writes files to the run's folder: numbers to `metrics.jsonl`, one record per line, and images to `vis_image/`.

    Args:
        save_dir: The folder to write to for a Visualizer without a run.
        img_save_dir: The folder for images.
        config_save_file: Accepted, but has no effect: the config of a run is always in its folder.
        scalar_save_file: The file for numbers. The default is `metrics.jsonl`, which `hookline compare` reads.
    """

    def __init__(
        self,
        save_dir: str | None = None,
        img_save_dir: str = "vis_image",
        config_save_file: str = "config.py",
        scalar_save_file: str = "metrics.jsonl",
    ) -> None:
        super().__init__(save_dir)
        self._writers = [JsonlWriter(scalar_save_file), ImageFolderWriter(img_save_dir)]


class TensorboardVisBackend(BaseVisBackend):
    """Writes event files for TensorBoard to `tensorboard/`."""

    def __init__(self, save_dir: str | None = None) -> None:
        from hookline.writers.tensorboard import TensorboardWriter

        super().__init__(save_dir)
        self._writers = [TensorboardWriter()]


class WandbVisBackend(BaseVisBackend):
    """Writes to a run of Weights & Biases.

    Args:
        save_dir: The folder to write to for a Visualizer without a run.
        init_kwargs: Arguments of `wandb.init`: project, entity, name, id, group, tags, mode.
        define_metric_cfg: Not supported: ignored with a warning.
        commit: Accepted, but has no effect: every step is one row.
        log_code_name: Not supported: ignored with a warning.
        watch_kwargs: Not supported: ignored with a warning.
    """

    def __init__(
        self,
        save_dir: str | None = None,
        init_kwargs: Mapping[str, Any] | None = None,
        define_metric_cfg: Any = None,
        commit: bool | None = True,
        log_code_name: str | None = None,
        watch_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        from hookline.writers.wandb import WandbWriter

        super().__init__(save_dir)
        known = ("project", "entity", "name", "id", "group", "tags", "mode")
        chosen = _select("WandbVisBackend", init_kwargs or {}, known, ignored=("dir", "resume", "allow_val_change"))
        _warn_unsupported(
            "WandbVisBackend",
            define_metric_cfg=define_metric_cfg,
            log_code_name=log_code_name,
            watch_kwargs=watch_kwargs,
        )
        self._writers = [WandbWriter(**chosen)]


class MLflowVisBackend(BaseVisBackend):
    """Writes to a run of MLflow.

    Args:
        save_dir: The folder to write to for a Visualizer without a run.
        exp_name: The name of the experiment.
        run_name: The name of the run.
        tags: The tags of the run.
        params: Not supported: ignored with a warning. The config is written as params.
        tracking_uri: The URI of the tracking server.
        artifact_suffix: Accepted, but has no effect: the files of a run stay in its folder.
        tracked_config_keys: Not supported: ignored with a warning. The whole config is written.
        artifact_location: Not supported: ignored with a warning.
    """

    def __init__(
        self,
        save_dir: str | None = None,
        exp_name: str | None = None,
        run_name: str | None = None,
        tags: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        tracking_uri: str | None = None,
        artifact_suffix: str | Sequence[str] = (),
        tracked_config_keys: Any = None,
        artifact_location: str | None = None,
    ) -> None:
        from hookline.writers.mlflow import MlflowWriter

        super().__init__(save_dir)
        _warn_unsupported(
            "MLflowVisBackend",
            params=params,
            tracked_config_keys=tracked_config_keys,
            artifact_location=artifact_location,
        )
        experiment = {} if exp_name is None else {"experiment": exp_name}
        self._writers = [MlflowWriter(tracking_uri=tracking_uri, name=run_name, tags=tags, **experiment)]


def _select(who: str, given: Mapping[str, Any], known: Sequence[str], ignored: Sequence[str]) -> dict[str, Any]:
    for name in given:
        if name not in known and name not in ignored:
            raise ConfigKeyError(f"{who}: init_kwargs does not support '{name}'; {did_you_mean(name, known)}")
    return {name: given[name] for name in known if name in given}


def _warn_unsupported(who: str, **given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            log.warning("%s: %s is not supported and has no effect", who, name)


not_included(globals(), "AimVisBackend", "ClearMLVisBackend", "DVCLiveVisBackend", "NeptuneVisBackend")
export_defined(globals())
