"""The examples of Pointrix's document about hooks, written as user code; only the imports differ."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from hookline.dialects.pointrix.hook.base_hook import HOOK_REGISTRY, Hook
from hookline.dialects.pointrix.logger import Logger
from hookline.dialects.pointrix.logger.writer import Writer
from hookline.screen.terminal import Terminal
from tests.dialects.pointrix.scene import SceneTrainer, config

if TYPE_CHECKING:
    from hookline.dialects.pointrix.engine.default_trainer import DefaultTrainer


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HOOK_REGISTRY, "_registered", {})
    monkeypatch.setattr(Logger, "terminal", Terminal(quiet=True))


class ListWriter(Writer):
    """A writer with only the three required methods."""

    def __init__(self, log_dir: Path) -> None:
        super().__init__(log_dir)
        self.scalars: list[tuple[str, float, int]] = []

    def write_scalar(self, name: str, scalar: Any, step: int) -> None:
        self.scalars.append((name, round(float(scalar), 4), step))

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None: ...

    def write_config(self, name: str, config_dict: Any, step: int) -> None: ...


def test_a_custom_log_hook_under_the_built_in_name(tmp_path: Path) -> None:
    @HOOK_REGISTRY.register()
    class LogHook(Hook):
        def __init__(self) -> None:
            self.smooth = 0.0
            self.shown: dict[str, str] = {}

        def after_train_iter(self, trainner: Any) -> None:
            rate = next(g["lr"] for g in trainner.optimizer.param_groups if g["name"] == "point_cloud.position")
            numbers = {"num_pt": len(trainner.model.point_cloud), "pos_lr": rate, **trainner.loss_dict}
            for key, value in numbers.items():
                if key == "loss":
                    self.smooth = 0.4 * value.item() + 0.6 * self.smooth
                    self.shown[key] = f"{self.smooth:.{7}f}"
                if trainner.logger and key != "optimizer_params":
                    trainner.logger.write_scalar(key, value, trainner.global_step)

    trainer = SceneTrainer(config(max_steps=2, hooks={"log": {"name": "LogHook"}}), tmp_path)
    trainer.writer = writer = ListWriter(tmp_path)
    trainer.train_loop()
    (hook,) = trainer.hooks
    assert type(hook) is LogHook
    losses = [value for name, value, _ in writer.scalars if name == "loss"]
    assert [(name, step) for name, _, step in writer.scalars] == [
        (name, step) for step in (1, 2) for name in ("num_pt", "pos_lr", "loss", "L1_loss")
    ]
    assert [value for name, value, _ in writer.scalars if name in ("num_pt", "pos_lr")] == [6, 0.1, 6, 0.05]
    assert float(hook.shown["loss"]) == pytest.approx(0.4 * losses[1] + 0.6 * 0.4 * losses[0], abs=1e-4)


def test_the_trainer_of_the_document_written_out(tmp_path: Path) -> None:
    """Check that a subclass with the loop and the validation of the document trains exactly as DefaultTrainer does."""

    class Written(SceneTrainer):
        @torch.no_grad()
        def validation(self) -> None:
            self.val_dataset_size = len(self.datapipeline.validation_dataset)
            for i in range(0, self.val_dataset_size):
                self.call_hook("before_val_iter")
                batch = self.datapipeline.next_val(i)
                results = self.renderer.render_batch(self.model(batch), batch)
                self.metric_dict = self.model.get_metric_dict(results, batch)
                self.call_hook("after_val_iter")

        def train_loop(self) -> None:
            self.global_step = self.start_steps
            self.call_hook("before_train")
            for iteration in range(self.start_steps, self.cfg.max_steps + 1):
                self.call_hook("before_train_iter")
                batch = self.datapipeline.next_train(self.global_step)
                self.renderer.update_sh_degree(iteration)
                self.schedulers.step(self.global_step, self.optimizer)
                self.train_step(batch)
                self.optimizer.update_model(**self.optimizer_dict)
                self.call_hook("after_train_iter")
                self.global_step += 1
                if iteration % self.cfg.val_interval == 0 or iteration == self.cfg.max_steps:
                    self.call_hook("before_val")
                    self.validation()
                    self.call_hook("after_val")
            self.call_hook("after_train")

    class Notes(Hook):
        def __init__(self) -> None:
            self.steps: list[Any] = []

        def after_train_iter(self, trainner: DefaultTrainer) -> None:
            self.steps.append(trainner.global_step)

        def after_val(self, trainner: DefaultTrainer) -> None:
            self.steps.append(float(trainner.metric_dict["psnr"]))

    ended = []
    for kind in (Written, SceneTrainer):
        trainer = kind(config(), tmp_path / kind.__name__)
        trainer.white_bg = False
        trainer.register_hook(notes := Notes())
        trainer.train_loop()
        ended.append((notes.steps, trainer.model.state_dict()))
    assert ended[0][0] == ended[1][0]
    assert [step for step in ended[0][0] if isinstance(step, int)] == [1, 2, 3, 4, 5]
    assert all(torch.equal(ended[0][1][name], ended[1][1][name]) for name in ended[0][1])
