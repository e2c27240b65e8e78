"""Visualizer: passes a project's records to the writers of the run, and draws on images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common.forwarding import forwarded
from hookline.dialects.mmengine.dist import master_only
from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.instances import ManagerMixin
from hookline.dialects.mmengine.registry import VISBACKENDS
from hookline.dialects.mmengine.visualization.drawing import Canvas
from hookline.dialects.mmengine.visualization.utils import import_matplotlib, wait_continue
from hookline.dialects.mmengine.visualization.vis_backend import FOLDER, BaseVisBackend, ImageFolderWriter
from hookline.record.images import as_image
from hookline.writers.router import Writers

if TYPE_CHECKING:
    from hookline.runner.runner import Runner
    from hookline.writers.base import Writer

VisBackendsType = object


class Visualizer(ManagerMixin, Canvas):
    """Passes numbers, images and the config to the writers of the run, and draws on an image (`draw_bboxes`, ...).

    Args:
        name: The name to look it up by.
        image: The image to work on.
        vis_backends: One or more backends: objects, or dicts that describe them, which may include a `name`.
        save_dir: The folder of a visualizer without a run. The visualizer of a run writes numbers to the run's folder,
            and images to `vis_data/vis_image` in this one, if it is another.
        fig_save_cfg: Options of the figure of matplotlib that it draws on.
        fig_show_cfg: Options of the window that `show` opens.
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
        ManagerMixin.__init__(self, name)
        Canvas.__init__(self, fig_save_cfg)
        self.fig_show_cfg = {"frameon": False} if fig_show_cfg is None else dict(fig_show_cfg)
        self._dataset_meta: dict[str, Any] | None = None
        self._save_dir = None if save_dir is None else Path(save_dir)
        self._vis_backends = _build_backends(vis_backends, self._save_dir)
        self._writers: Writers | None = None
        #: Whether the writers belong to a run, which starts and closes them.
        self._of_run = False
        if image is not None:
            self.set_image(image)

    # -- the writers

    def native_writers(self) -> list[Writer]:
        """Return the writers that the backends provide for a run."""
        return [writer for backend in self._vis_backends.values() for writer in backend.writers()]

    def join(self, runner: Runner) -> None:
        """Add the backends' writers to a run's writers, and send everything to the run's writers from now on."""
        present, own = runner.writers.all, self.native_writers()
        if self._save_dir is not None and self._save_dir.resolve() != runner.work_dir.resolve():
            for writer in own:
                if isinstance(writer, ImageFolderWriter):
                    writer.write_to(self._save_dir)
        more = [writer for writer in own if not any(_writes_same_files(writer, other) for other in present)]
        runner._host.use_writers(Writers([*present, *more], main=runner.rank == 0))
        self._writers, self._of_run = runner.writers, True
        for kind in (type(self), Visualizer):  # components look it up in the base class, whatever class the run uses
            kind.make_current(self)

    @property
    def writers(self) -> Writers:
        """Return the writers that receive everything: the run's writers or, without a run, its own in `save_dir`."""
        if self._writers is None:
            if self._vis_backends and self._save_dir is None:
                raise ConfigValueError(
                    f"the Visualizer '{self.instance_name}' has no run; set save_dir to say where it writes"
                )
            self._writers = Writers(self.native_writers())
            if self._save_dir is not None:
                self._save_dir.mkdir(parents=True, exist_ok=True)
                self._writers.begin(self._save_dir, self.instance_name)
        return self._writers

    def get_backend(self, name: str) -> Any:
        """Return the backend with this name; the default name is the name of its class."""
        return self._vis_backends[name]

    @master_only
    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        """Write one number of a step."""
        self.writers.write_scalar(name, value, step)

    @master_only
    def add_scalars(
        self, scalar_dict: Mapping[str, Any], step: int = 0, file_path: str | None = None, **kwargs: Any
    ) -> None:
        """Write several numbers of a step; an entry `step` overrides the argument."""
        numbers = dict(scalar_dict)
        step = int(numbers.pop("step", step))
        self.writers.write_scalars(numbers, step)

    @master_only
    def add_image(self, name: str, image: Any, step: int = 0) -> None:
        """Write one image of a step."""
        self.writers.write_image(name, image, step)

    @master_only
    def add_config(self, config: Any, **kwargs: Any) -> None:
        """Write the config of the run."""
        self.writers.write_config("config", config.to_dict() if hasattr(config, "to_dict") else dict(config), 0)

    @master_only
    def add_graph(self, model: Any, data_batch: Any, **kwargs: Any) -> None:
        """Write the model."""
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
        """Draw a sample with its predictions; a subclass implements this, here it does nothing."""

    def close(self) -> None:
        """Flush the writers of a run, which the run itself closes; without a run, close the writers."""
        if self._writers is not None:
            if self._of_run:
                self._writers.flush()
            else:
                self._writers.close()

    # -- the image

    dataset_meta: dict[str, Any] | None = forwarded(
        "_dataset_meta", "Return the metadata of the dataset.", settable=True
    )

    def show(
        self,
        drawn_img: Any = None,
        win_name: str = "image",
        wait_time: float = 0.0,
        continue_key: str = " ",
        backend: str = "matplotlib",
    ) -> None:
        """Show an image in a window until the key is pressed or the time is over."""
        if backend != "matplotlib":
            raise ConfigValueError(f"images are shown with matplotlib, not with {backend!r}")
        import_matplotlib()
        from matplotlib import pyplot

        figure = pyplot.figure(win_name, **self.fig_show_cfg)
        figure.clear()
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        axes.imshow(self.get_image() if drawn_img is None else as_image(drawn_img))
        wait_continue(figure, wait_time, continue_key)


def _writes_same_files(writer: Writer, other: Writer) -> bool:
    """Return whether two writers would write the same files."""
    return type(writer) is type(other) and bool(writer.files()) and list(writer.files()) == list(other.files())


def _build_backends(given: Any, save_dir: Path | None) -> dict[str, Any]:
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
            raise ConfigTypeError(f"a vis_backend must be a BaseVisBackend, or a dict that describes one, not {each!r}")
        name = name or type(backend).__name__
        if name in found:
            raise ConfigValueError(
                f"two vis_backends are named '{name}'; give one of them another name: dict(type=..., name=...)"
            )
        found[name] = backend
    return found
