"""Visualizer: a project's way to the writers of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.dialects.mmengine.dist import master_only
from hookline.dialects.mmengine.errors import ConfigAttributeError, ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.instances import ManagerMixin
from hookline.dialects.mmengine.registry import VISBACKENDS
from hookline.dialects.mmengine.visualization.vis_backend import FOLDER, BaseVisBackend
from hookline.errors import ConfigError
from hookline.record.images import as_image
from hookline.writers.router import Writers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hookline.engine.runner import Runner
    from hookline.writers.base import Writer


class Visualizer(ManagerMixin):
    """Takes numbers, images and the config to the writers of the run.

    Args:
        name: The name that it is found by.
        image: The image that is worked on.
        vis_backends: Backends, or dicts that describe them; a dict of them by name is possible, too.
        save_dir: The folder of a visualizer without a run; that of a run writes to the run's.
        fig_save_cfg: Accepted.
        fig_show_cfg: Accepted.
    """

    def __init__(
        self,
        name: str = "visualizer",
        image: Any = None,
        vis_backends: Any = None,
        save_dir: str | Path | None = None,
        fig_save_cfg: Mapping[str, Any] | None = None,
        fig_show_cfg: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name)
        self._dataset_meta: dict[str, Any] | None = None
        self._image: NDArray[np.uint8] | None = None
        self._save_dir = None if save_dir is None else Path(save_dir)
        self._vis_backends = _backends(vis_backends, self._save_dir)
        self._writers: Writers | None = None
        #: Whether the writers are those of a run, which begins and closes them.
        self._of_run = False
        if image is not None:
            self.set_image(image)

    # -- the writers

    def native_writers(self) -> list[Writer]:
        """The writers that the backends stand for, for a run to take."""
        return [writer for backend in self._vis_backends.values() for writer in backend.writers()]

    def join(self, runner: Runner) -> None:
        """From now on everything goes to the writers of a run, to which those of the backends are added."""
        there = runner.writers.all
        more = [writer for writer in self.native_writers() if not any(_same(writer, other) for other in there)]
        runner.writers = Writers([*there, *more], main=runner.rank == 0)
        self._writers, self._of_run = runner.writers, True
        for kind in (type(self), Visualizer):  # components ask the base class, whatever a run has
            kind.make_current(self)

    @property
    def writers(self) -> Writers:
        """Where everything goes: the writers of the run, or, without one, its own in `save_dir`."""
        if self._writers is None:
            if self._vis_backends and self._save_dir is None:
                raise ConfigValueError(f"the Visualizer '{self.instance_name}' has no run: say where with save_dir")
            self._writers = Writers(self.native_writers())
            if self._save_dir is not None:
                self._save_dir.mkdir(parents=True, exist_ok=True)
                self._writers.begin(self._save_dir, self.instance_name)
        return self._writers

    def get_backend(self, name: str) -> Any:
        """The backend of a name: that of its class, unless it was given another."""
        return self._vis_backends[name]

    @master_only
    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        """One number of a step."""
        self.writers.write_scalar(name, value, step)

    @master_only
    def add_scalars(
        self, scalar_dict: Mapping[str, Any], step: int = 0, file_path: str | None = None, **kwargs: Any
    ) -> None:
        """Numbers of a step; an entry `step` tells it, too."""
        numbers = dict(scalar_dict)
        step = int(numbers.pop("step", step))
        self.writers.write_scalars(numbers, step)

    @master_only
    def add_image(self, name: str, image: Any, step: int = 0) -> None:
        """One image of a step."""
        self.writers.write_image(name, image, step)

    @master_only
    def add_config(self, config: Any, **kwargs: Any) -> None:
        """The config of the run."""
        self.writers.write_config("config", config.to_dict() if hasattr(config, "to_dict") else dict(config), 0)

    @master_only
    def add_graph(self, model: Any, data_batch: Any, **kwargs: Any) -> None:
        """The model."""
        self.writers.write_graph("model", model, data_batch)

    def add_datasample(
        self,
        name: str,
        image: Any,
        data_sample: Any = None,
        draw_gt: bool = True,
        draw_pred: bool = True,
        show: bool = False,
        wait_time: int = 0,
        step: int = 0,
    ) -> None:
        """A sample with what was found in it: a subclass draws it; here nothing is done."""

    def close(self) -> None:
        """Write what is held back; the writers of a run are closed by the run."""
        if self._writers is not None:
            if self._of_run:
                self._writers.flush()
            else:
                self._writers.close()

    # -- the image

    @property
    def dataset_meta(self) -> dict[str, Any] | None:
        """Facts about the data."""
        return self._dataset_meta

    @dataset_meta.setter
    def dataset_meta(self, dataset_meta: dict[str, Any]) -> None:
        self._dataset_meta = dataset_meta

    def set_image(self, image: Any) -> None:
        """Take an image to work on."""
        self._image = as_image(image)

    def get_image(self) -> NDArray[np.uint8]:
        """The image."""
        if self._image is None:
            raise ConfigValueError("there is no image yet: set_image first")
        return self._image

    def show(
        self,
        drawn_img: Any = None,
        win_name: str = "image",
        wait_time: float = 0.0,
        continue_key: str = " ",
        backend: str = "matplotlib",
    ) -> None:
        """Show an image in a window, with matplotlib."""
        try:
            from matplotlib import pyplot
        except ImportError:
            raise ConfigError("Visualizer.show needs matplotlib, which is not installed; add_image writes it") from None
        pyplot.figure(win_name)
        pyplot.imshow(self.get_image() if drawn_img is None else as_image(drawn_img))
        pyplot.axis("off")
        pyplot.show(block=wait_time == 0)
        if wait_time:
            pyplot.pause(wait_time)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("draw_"):
            raise ConfigAttributeError(
                f"Visualizer.{name} is not taken over: draw with a library that you like, and hand the image to "
                "set_image or add_image"
            )
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


def _same(writer: Writer, other: Writer) -> bool:
    """Whether two writers would write the same file."""
    return type(writer) is type(other) and bool(writer.files()) and list(writer.files()) == list(other.files())


def _backends(given: Any, save_dir: Path | None) -> dict[str, Any]:
    if given is None:
        return {}
    several: Sequence[Any] = given if isinstance(given, (list, tuple)) else [given]
    found: dict[str, Any] = {}
    for each in several:
        options = dict(each) if isinstance(each, Mapping) else {}
        name = options.pop("name", None)
        if options and save_dir is not None:
            options.setdefault("save_dir", str(save_dir / FOLDER))
        backend = VISBACKENDS.build(options) if options else each
        if not isinstance(backend, BaseVisBackend):
            raise ConfigTypeError(f"a vis_backend is a BaseVisBackend, or a dict that describes one, not {each!r}")
        name = name or type(backend).__name__
        if name in found:
            raise ConfigValueError(f"two vis_backends are called '{name}'; give one a name: dict(type=..., name=...)")
        found[name] = backend
    return found
