"""Backends: each stands for writers of hookline, which a run gives its records to."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from hookline.dialects.mmengine.config import Config
from hookline.dialects.mmengine.errors import ConfigKeyError
from hookline.errors import did_you_mean
from hookline.record.images import as_png
from hookline.writers.base import Writer
from hookline.writers.jsonl import JsonlWriter

log = logging.getLogger("hookline")

#: Where backends of a project write, in the folder of the run.
FOLDER = "vis_data"
F = TypeVar("F", bound=Callable[..., Any])


def force_init_env(method: F) -> F:
    """Make a method of a backend get it ready first, as `_init_env` says, if nobody has yet."""

    @functools.wraps(method)
    def ready(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not getattr(self, "_env_initialized", False):
            self._env_initialized = True
            self._init_env()
        return method(self, *args, **kwargs)

    return cast("F", ready)


class BaseVisBackend:
    """The base of all backends. One of a project has `add_scalar` and so on; those here have a writer that does it.

    Args:
        save_dir: The folder that a backend of a project writes to. Those here write to the folder of the run.
    """

    def __init__(self, save_dir: str | None = None) -> None:
        self._save_dir = save_dir
        self._env_initialized = False
        self._writers: list[Writer] = []

    def writers(self) -> list[Writer]:
        """The writers of a run that this backend stands for."""
        return self._writers or [BackendWriter(self)]

    @property
    def experiment(self) -> Any:
        """What writes."""
        return self._writers[0] if self._writers else self

    def _init_env(self) -> Any:
        """Get ready, before the first record; a backend of a project may need it."""

    def add_config(self, config: Config, **kwargs: Any) -> None:
        """The config of the run."""

    def add_graph(self, model: Any, data_batch: Any, **kwargs: Any) -> None:
        """The model."""

    def add_image(self, name: str, image: Any, step: int = 0, **kwargs: Any) -> None:
        """One image of a step."""

    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        """One number of a step."""

    def add_scalars(
        self, scalar_dict: Mapping[str, Any], step: int = 0, file_path: str | None = None, **kwargs: Any
    ) -> None:
        """Numbers of a step."""
        for name, value in scalar_dict.items():
            self.add_scalar(name, value, step)

    def close(self) -> None:
        """The run has ended."""


class BackendWriter(Writer):
    """Gives the records of a run to a backend of a project."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """A run starts."""
        if getattr(self.backend, "_save_dir", None) is None:
            self.backend._save_dir = str(work_dir / FOLDER)
        if not getattr(self.backend, "_env_initialized", True):
            self.backend._env_initialized = True
            self.backend._init_env()

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """One number."""
        self.backend.add_scalar(name, value, step)

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """All numbers of a step."""
        self.backend.add_scalars(dict(scalars), step)

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """One image."""
        self.backend.add_image(name, image, step)

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """The config."""
        self.backend.add_config(Config(dict(config)))

    def write_graph(self, name: str, model: Any, inputs: Any) -> None:
        """The model."""
        self.backend.add_graph(model, inputs)

    def files(self) -> Iterable[str]:
        """The folder that a backend writes to, unless it was told otherwise."""
        return [FOLDER]

    def close(self) -> None:
        """The run has ended."""
        self.backend.close()


class ImageFolderWriter(Writer):
    """Images as PNG files: `vis_image/<name>_<step>.png` in the run's folder."""

    def __init__(self, folder: str = "vis_image") -> None:
        self.folder = folder
        self._path: Path | None = None

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """The folder is made when there is an image."""
        self._path = work_dir / self.folder

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """Numbers are elsewhere."""

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """Numbers are elsewhere."""

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """The config is elsewhere."""

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """One file; the steps that a resumed run makes again replace theirs."""
        assert self._path is not None, "begin() says where"
        path = self._path / f"{name}_{step}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(as_png(image))

    def files(self) -> Iterable[str]:
        """The folder."""
        return [self.folder]


class LocalVisBackend(BaseVisBackend):
    """Files in the run's folder: numbers in `metrics.jsonl`, a record a line, and images in `vis_image/`.

    Args:
        save_dir: For a Visualizer without a run.
        img_save_dir: The folder of images.
        config_save_file: Accepted; the config of a run is in its folder anyway.
        scalar_save_file: The file of numbers; `metrics.jsonl`, which `hookline compare` reads, unless given.
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
    """Event files for TensorBoard in `tensorboard/`."""

    def __init__(self, save_dir: str | None = None) -> None:
        from hookline.writers.tensorboard import TensorboardWriter

        super().__init__(save_dir)
        self._writers = [TensorboardWriter()]


class WandbVisBackend(BaseVisBackend):
    """A run of Weights & Biases.

    Args:
        save_dir: For a Visualizer without a run.
        init_kwargs: What `wandb.init` gets: project, entity, name, id, group, tags, mode.
        define_metric_cfg: Not taken over, which is said.
        commit: Accepted; every step is one row.
        log_code_name: Not taken over, which is said.
        watch_kwargs: Not taken over, which is said.
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
        chosen = _chosen("WandbVisBackend", init_kwargs or {}, known, ignored=("dir", "resume", "allow_val_change"))
        _say_unused(
            "WandbVisBackend",
            define_metric_cfg=define_metric_cfg,
            log_code_name=log_code_name,
            watch_kwargs=watch_kwargs,
        )
        self._writers = [WandbWriter(**chosen)]


class MLflowVisBackend(BaseVisBackend):
    """A run of MLflow.

    Args:
        save_dir: For a Visualizer without a run.
        exp_name: The experiment.
        run_name: The name of the run.
        tags: Tags of the run.
        params: Not taken over, which is said: the config is written as params.
        tracking_uri: Where runs are tracked.
        artifact_suffix: Accepted; what a run leaves stays in its folder.
        tracked_config_keys: Not taken over, which is said: all of the config is written.
        artifact_location: Not taken over, which is said.
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
        _say_unused(
            "MLflowVisBackend",
            params=params,
            tracked_config_keys=tracked_config_keys,
            artifact_location=artifact_location,
        )
        experiment = {} if exp_name is None else {"experiment": exp_name}
        self._writers = [MlflowWriter(tracking_uri=tracking_uri, name=run_name, tags=tags, **experiment)]


def _chosen(who: str, given: Mapping[str, Any], known: Sequence[str], ignored: Sequence[str]) -> dict[str, Any]:
    for name in given:
        if name not in known and name not in ignored:
            raise ConfigKeyError(f"{who}: init_kwargs has no '{name}' here; {did_you_mean(name, known)}")
    return {name: given[name] for name in known if name in given}


def _say_unused(who: str, **given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            log.warning("%s: %s is not taken over, and has no effect", who, name)
