"""RoboOrchard's tutorial about custom hooks, from its settings to its training, with small data."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

import pytest  # noqa: TC002  # configs are created in this module
import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.utils import ProjectConfiguration  # type: ignore[import-untyped]
from pydantic import Field
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

from hookline.dialects.robo_orchard_core.utils.cli import SettingConfig
from hookline.dialects.robo_orchard_lab.pipeline import HookBasedTrainer
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor import SimpleBatchProcessor
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import (
    HookContext,
    PipelineHookArgs,
    PipelineHooks,
    PipelineHooksConfig,
)
from hookline.dialects.robo_orchard_lab.utils import log_basic_config

log = logging.getLogger(__name__)


class Pictures(SettingConfig):
    root: str | None = Field(description="Where pictures are.", default=None)
    made_up: bool = Field(description="Make them up.", default=False)
    count: int = Field(description="How many.", default=28)

    def __post_init__(self) -> None:
        if not self.made_up and self.root is None:
            raise ValueError("pictures need a root, unless they are made up")

    def tensors(self) -> TensorDataset:
        return TensorDataset(torch.randn(self.count, 6), torch.randint(0, 3, (self.count,)))


class Settings(SettingConfig):
    pictures: Pictures = Field(description="The data; there is no default.")
    batch_size: int = Field(description="Samples of a batch.", default=4)
    max_epoch: int = Field(description="Epochs.", default=90)
    workspace: str = Field(description="Where results go.", default="./workspace/")


class Classifier(SimpleBatchProcessor):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.criterion = torch.nn.CrossEntropyLoss()

    def forward(self, model: torch.nn.Module, batch: Any) -> tuple[Any, torch.Tensor | None]:  # type: ignore[override]
        pictures, target = batch
        scores = model(pictures)
        return scores, self.criterion(scores, target) if self.need_backward else None


class Announces(PipelineHooks):
    """Logs the begin and end of loops, epochs and steps, as often as its config says."""

    def __init__(self, cfg: AnnouncesConfig) -> None:
        super().__init__()
        self.cfg = cfg
        for channel, begin, end in (
            ("on_loop", self._loop_begins, self._loop_ends),
            ("on_step", self._step_begins, self._step_ends),
            ("on_epoch", self._epoch_begins, self._epoch_ends),
        ):
            self.register_hook(channel=channel, hook=HookContext.from_callable(before=begin, after=end))  # type: ignore[arg-type]

    def _loop_begins(self, args: PipelineHookArgs) -> None:
        log.info("loop begins")

    def _loop_ends(self, args: PipelineHookArgs) -> None:
        log.info("loop ends")

    def _step_begins(self, args: PipelineHookArgs) -> None:
        if (args.step_id + 1) % self.cfg.every_steps == 0:
            log.info("step %d begins", args.step_id)

    def _step_ends(self, args: PipelineHookArgs) -> None:
        if (args.step_id + 1) % self.cfg.every_steps == 0:
            log.info("step %d ends", args.step_id)

    def _epoch_begins(self, args: PipelineHookArgs) -> None:
        if (args.epoch_id + 1) % self.cfg.every_epochs == 0:
            log.info("epoch %d begins", args.epoch_id)

    def _epoch_ends(self, args: PipelineHookArgs) -> None:
        if (args.epoch_id + 1) % self.cfg.every_epochs == 0:
            log.info("epoch %d ends", args.epoch_id)


class AnnouncesConfig(PipelineHooksConfig[Announces]):
    class_type: type[Announces] = Announces
    every_steps: int = 5
    every_epochs: int = 1


def test_the_tutorial_from_settings_to_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log_basic_config(level=logging.INFO)
    caplog.set_level(logging.INFO, logger=__name__)
    cfg = Settings(pictures=Pictures(made_up=True), max_epoch=2, workspace=str(tmp_path / "tutorial"))
    accelerator = Accelerator(
        cpu=True,
        project_config=ProjectConfiguration(
            project_dir=cfg.workspace,
            logging_dir=os.path.join(cfg.workspace, "logs"),
            automatic_checkpoint_naming=True,
            total_limit=32,
        ),
    )
    model = torch.nn.Linear(6, 3)
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    hooks = []
    hooks.append(AnnouncesConfig())
    trainer = HookBasedTrainer(
        model=model,
        dataloader=DataLoader(cfg.pictures.tensors(), batch_size=cfg.batch_size, shuffle=True),
        optimizer=optimizer,
        lr_scheduler=StepLR(optimizer, step_size=30, gamma=0.1),
        accelerator=accelerator,
        batch_processor=Classifier(need_backward=True),
        max_epoch=cfg.max_epoch,
        hooks=hooks,
    )
    tree = str(trainer.hooks)
    assert [line.split(":")[0].strip() for line in tree.splitlines() if re.match(r" +on_", line)] == [
        *("on_loop", "on_epoch", "on_step")
    ]
    assert re.findall(r"(\w+)\(id=\d+\)\.(\w+) from", tree) == [
        *(("Announces", "_loop_begins"), ("Announces", "_loop_ends")),
        *(("Announces", "_epoch_begins"), ("Announces", "_epoch_ends")),
        *(("OptimizerHook", "_optimizer_step"), ("Announces", "_step_begins"), ("Announces", "_step_ends")),
    ]
    trainer()
    assert [record.message for record in caplog.records if record.name == __name__] == [
        "loop begins",
        *("epoch 0 begins", "step 4 begins", "step 4 ends", "epoch 0 ends"),
        *("epoch 1 begins", "step 4 begins", "step 4 ends", "epoch 1 ends"),
        "loop ends",
    ]


def test_its_config_can_be_written_and_read() -> None:
    for format in ("json", "yaml", "toml"):
        config = AnnouncesConfig(every_steps=7)
        assert AnnouncesConfig.from_str(config.to_str(format=format), format=format) == config
