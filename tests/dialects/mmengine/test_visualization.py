"""The Visualizer: what is added goes to the writers of the run."""

from __future__ import annotations

import gc
import json
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hookline.dialects.mmengine.config import Config
from hookline.dialects.mmengine.hooks import Hook
from hookline.dialects.mmengine.registry import VISBACKENDS
from hookline.dialects.mmengine.visualization import (
    BaseVisBackend,
    LocalVisBackend,
    MLflowVisBackend,
    TensorboardVisBackend,
    Visualizer,
    WandbVisBackend,
)
from hookline.dialects.mmengine.visualization.vis_backend import force_init_env
from hookline.errors import ConfigError
from hookline.writers.jsonl import JsonlWriter
from hookline.writers.mlflow import MlflowWriter
from hookline.writers.tensorboard import TensorboardWriter
from hookline.writers.wandb import WandbWriter
from tests.dialects.mmengine.parts import TRAIN, VAL, runner_of


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@VISBACKENDS.register_module()
class Noted(BaseVisBackend):
    """A backend of a project, which keeps what it is given."""

    def __init__(self, save_dir: str | None = None) -> None:
        super().__init__(save_dir)
        self.seen: list[Any] = []

    def _init_env(self) -> None:
        self.seen.append("begun")

    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        self.seen.append((name, value, step))

    def add_image(self, name: str, image: Any, step: int = 0, **kwargs: Any) -> None:
        self.seen.append((name, image.shape, step))

    def add_config(self, config: Config, **kwargs: Any) -> None:
        self.seen.append(config.to_dict())

    def add_graph(self, model: Any, data_batch: Any, **kwargs: Any) -> None:
        self.seen.append(type(model).__name__)

    def close(self) -> None:
        self.seen.append("closed")


def test_alone_it_writes_to_its_own_folder(tmp_path: Path) -> None:
    visualizer = Visualizer("alone", vis_backends=[{"type": "LocalVisBackend"}, {"type": "Noted"}], save_dir=tmp_path)
    visualizer.add_scalar("loss", torch.tensor(0.5), step=3)
    visualizer.add_scalars({"acc": np.float32(0.25), "lr": 0.1, "step": 4})
    visualizer.add_image("photo", np.zeros((2, 3, 3), np.uint8), step=5)
    visualizer.add_config(Config({"a": {"b": 1}}))
    visualizer.add_graph(torch.nn.Linear(1, 1), None)
    visualizer.close()
    assert records(tmp_path / "metrics.jsonl") == [{"step": 3, "loss": 0.5}, {"step": 4, "acc": 0.25, "lr": 0.1}]
    assert (tmp_path / "vis_image" / "photo_5.png").read_bytes().startswith(b"\x89PNG")
    assert visualizer.get_backend("Noted").seen == [
        "begun",
        ("loss", 0.5, 3),
        ("acc", 0.25, 4),
        ("lr", 0.1, 4),
        ("photo", (2, 3, 3), 5),
        {"a": {"b": 1}},
        "Linear",
        "closed",
    ]


def test_in_a_run_it_writes_through_the_writers_of_the_run(tmp_path: Path) -> None:
    class Draws(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            runner.visualizer.add_scalar("mine/number", runner.epoch, step=runner.iter)
            runner.visualizer.add_image("mine/picture", torch.rand(3, 4, 4), step=runner.iter)

    runner = runner_of(
        tmp_path,
        visualizer={
            "type": "Visualizer",
            "vis_backends": [{"type": "LocalVisBackend"}, {"type": "TensorboardVisBackend"}, {"type": "Noted"}],
        },
        custom_hooks=[Draws()],
    )
    assert runner.visualizer.writers is runner.writers
    assert [type(writer).__name__ for writer in runner.writers.all] == [
        *("JsonlWriter", "ImageFolderWriter", "TensorboardWriter", "BackendWriter"),
    ]
    runner.train()
    mine = [record for record in records(tmp_path / "metrics.jsonl") if "mine/number" in record]
    assert mine == [{"step": 4, "mine/number": 0}, {"step": 8, "mine/number": 1}]
    assert sorted(path.name for path in (tmp_path / "vis_image" / "mine").iterdir()) == [
        "picture_4.png",
        "picture_8.png",
    ]
    assert list((tmp_path / "tensorboard").iterdir())
    seen = runner.visualizer.get_backend("Noted").seen
    assert (seen[0], seen[-1]) == ("begun", "closed")
    assert ("mine/number", 1, 8) in seen
    assert any(each[0] == "val/accuracy" for each in seen)
    runner.visualizer.close()


def test_images_go_to_the_folder_that_the_visualizer_names(tmp_path: Path) -> None:
    class Draws(Hook):
        def after_test_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            runner.visualizer.add_image("picture", np.zeros((2, 2, 3), np.uint8), step=batch_idx)

    shown = {"type": "Visualizer", "vis_backends": [{"type": "LocalVisBackend"}], "save_dir": str(tmp_path / "shown")}
    runner = runner_of(tmp_path / "run", (*TRAIN, *VAL), visualizer=shown, custom_hooks=[Draws()])
    runner.test()
    pictures = sorted(path.name for path in (tmp_path / "shown" / "vis_data" / "vis_image").iterdir())
    assert pictures == ["picture_0.png", "picture_1.png"]
    found = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert found == ["images.jsonl", "metrics.jsonl", "run.log"]  # the page of the run shows them, too


def test_without_backends_a_run_has_its_records_all_the_same(tmp_path: Path) -> None:
    runner = runner_of(tmp_path, visualizer={"type": "Visualizer", "vis_backends": None})
    runner.train()
    assert any("val/accuracy" in record for record in records(tmp_path / "metrics.jsonl"))


def test_backends_provide_native_writers(caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(LocalVisBackend().experiment, JsonlWriter)
    assert isinstance(TensorboardVisBackend("x").experiment, TensorboardWriter)
    wandb = WandbVisBackend(init_kwargs={"project": "p", "name": "n", "mode": "offline", "dir": "x"})
    writer = wandb.experiment
    assert isinstance(writer, WandbWriter)
    assert (writer.project, writer.name, writer.mode) == ("p", "n", "offline")
    mlflow = MLflowVisBackend(exp_name="e", run_name="r", tags={"a": "b"}, tracking_uri="sqlite:///x.db").experiment
    assert isinstance(mlflow, MlflowWriter)
    assert (mlflow.experiment, mlflow.name, mlflow.tags, mlflow.tracking_uri) == (
        "e",
        "r",
        {"a": "b"},
        "sqlite:///x.db",
    )
    with caplog.at_level(logging.WARNING, "hookline"):
        WandbVisBackend(watch_kwargs={"log": "all"})
    assert caplog.messages == ["WandbVisBackend: watch_kwargs is not supported and has no effect"]
    with pytest.raises(
        KeyError, match=r"^WandbVisBackend: init_kwargs does not support 'projct'; did you mean 'project'\?$"
    ):
        WandbVisBackend(init_kwargs={"projct": "p"})


@VISBACKENDS.register_module()
class Text(BaseVisBackend):
    """A backend that needs its folder, and prepares it when it is first used."""

    def __init__(self, save_dir: str) -> None:
        super().__init__(save_dir)
        self.path = Path(save_dir) / "my.txt"

    def _init_env(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)

    @force_init_env
    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        """Write a number."""
        with self.path.open("a") as file:
            file.write(f"{step} {name}\n")


def test_a_projects_backend_has_its_own_folder_which_is_archived_with_its_run(tmp_path: Path) -> None:
    own = {"type": "Visualizer", "vis_backends": [{"type": "Text"}]}
    for _ in range(2):
        runner_of(tmp_path, visualizer=own, default_hooks={"logger": {"interval": 4}}).train()
    lines = (tmp_path / "vis_data" / "my.txt").read_text()
    assert lines.splitlines()[:2] == ["4 epoch", "4 train/lr"]
    assert (tmp_path / "old-1" / "vis_data" / "my.txt").read_text() == lines
    alone = Text(str(tmp_path / "alone"))
    alone.add_scalar("x", 1, 2)
    assert alone.path.read_text() == "2 x\n"


def test_an_image_can_be_worked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    visualizer = Visualizer("image")
    with pytest.raises(AssertionError, match=r"^there is no image yet; call set_image first$"):
        visualizer.get_image()
    visualizer.set_image(torch.zeros(3, 2, 2))
    assert visualizer.get_image().shape == (2, 2, 3)
    visualizer.dataset_meta = {"classes": ["a"]}
    assert visualizer.dataset_meta == {"classes": ["a"]}
    visualizer.add_datasample("x", visualizer.get_image())
    with pytest.raises(AttributeError, match=r"^'Visualizer' object has no attribute 'add_sclar'$"):
        visualizer.add_sclar("x", 1)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (visualizer.show, lambda: visualizer.draw_bboxes(torch.zeros(1, 4))):
        with pytest.raises(
            ConfigError,
            match=r"^drawing needs matplotlib, which is not installed: pip install 'hookline\[mmengine\]'$",
        ):
            draw()


class Loud(Visualizer):
    """A project's own visualizer."""


def test_the_visualizer_of_a_run_is_found_by_its_base_class_too(tmp_path: Path) -> None:
    runner = runner_of(tmp_path, visualizer={"type": Loud, "vis_backends": []})
    assert Visualizer.get_current_instance() is Loud.get_current_instance() is runner.visualizer
    mine = Loud.get_instance("mine")
    runner = runner_of(tmp_path, visualizer=mine)
    del runner
    gc.collect()
    assert Loud.get_instance("mine") is mine


def test_visualizers_are_found_by_name_and_wrong_ones_refused() -> None:
    assert Visualizer.get_instance("found", vis_backends=[LocalVisBackend()]) is Visualizer.get_instance("found")
    with pytest.raises(
        ValueError, match=r"^two vis_backends are named 'LocalVisBackend'; give one of them another name"
    ):
        Visualizer("twice", vis_backends=[LocalVisBackend(), LocalVisBackend()])
    two = Visualizer("two", vis_backends=[LocalVisBackend(), {"type": "LocalVisBackend", "name": "other"}])
    assert isinstance(two.get_backend("other"), LocalVisBackend)
    with pytest.raises(
        TypeError, match=r"^a vis_backend must be a BaseVisBackend, or a dict that describes one, not 'local'$"
    ):
        Visualizer("wrong", vis_backends="local")
    with pytest.raises(ValueError, match=r"^the Visualizer 'nowhere' has no run; set save_dir to say where it writes$"):
        Visualizer("nowhere", vis_backends=[LocalVisBackend()]).add_scalar("x", 1)


def test_shapes_are_drawn_on_the_image() -> None:
    visualizer = Visualizer("drawing")
    visualizer.set_image(np.zeros((40, 60, 3), np.uint8))
    visualizer.draw_bboxes(torch.tensor([[5, 5, 20, 20]]), edge_colors=(255, 0, 0))
    visualizer.draw_binary_masks(np.pad(np.ones((8, 8), bool), ((30, 2), (50, 2))), colors=(0, 0, 250), alphas=1.0)
    visualizer.draw_texts("a", torch.tensor([40, 5]), colors="w").draw_circles(
        torch.tensor([30, 30]), torch.tensor([5])
    )
    visualizer.draw_lines(torch.tensor([0, 59]), torch.tensor([25, 25])).draw_points(torch.tensor([[50, 10]]))
    image = visualizer.get_image()
    assert image.shape == (40, 60, 3)
    assert image[5, 12, 0] > 100  # the upper edge of the box
    assert image[12, 12].tolist() == [0, 0, 0]  # inside of it
    assert image[34, 54].tolist() == [0, 0, 250]  # the mask
    assert image[25, 5, 1] > 60  # the line
    assert image[5:15, 40:50].max() == 255  # the text
    with pytest.warns(UserWarning, match="^a polygon is outside the image, and may not be visible$"):
        visualizer.draw_bboxes(np.array([[50, 30, 70, 39]]))
    visualizer.set_image(np.full((4, 4), 7, np.uint8))
    assert visualizer.get_image().tolist() == [[7] * 4] * 4  # nothing is drawn on the new one
    assert visualizer.draw_featmap(torch.rand(8, 4, 4), topk=4, arrangement=(2, 2), channel_reduction=None).shape == (
        8,
        8,
        3,
    )
