"""What later releases of RoboOrchard have: their module paths, `save_root`, and their trainer tutorials."""

from __future__ import annotations

import logging
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torchmetrics  # noqa: F401  # before a stand-in for torchvision is there, which it would look for
from torch import nn

from hookline.dialects import alias
from hookline.dialects.robo_orchard_core.utils.logging import LoggerManager, wrap_log_fmt_with_rank
from hookline.dialects.robo_orchard_lab.pipeline import HookBasedTrainer, SimpleTrainer
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor import SimpleBatchProcessor
from hookline.dialects.robo_orchard_lab.pipeline.folders import link_files
from hookline.dialects.robo_orchard_lab.pipeline.hooks import (
    HookContext,
    PipelineHooks,
    SaveCheckpoint,
    SaveCheckpointConfig,
)
from hookline.dialects.robo_orchard_lab.utils.huggingface import (
    accelerator_load_state,
    get_accelerate_project_last_checkpoint_id,
)
from tests.dialects.robo_orchard_lab import parts


def test_links_replace_neither_files_of_the_user_nor_stay_without_their_file(tmp_path: Path) -> None:
    for number, names in ((0, ("a", "b")), (1, ("a", "c"))):
        (tmp_path / f"checkpoint_{number}").mkdir()
        for name in names:
            (tmp_path / f"checkpoint_{number}" / name).write_text(f"{name}{number}")
    (tmp_path / "c").write_text("mine")
    (tmp_path / "d").symlink_to("elsewhere")
    link_files(tmp_path / "checkpoint_0")
    link_files(tmp_path / "checkpoint_1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c", "checkpoint_0", "checkpoint_1", "d"]
    assert ((tmp_path / "a").read_text(), (tmp_path / "c").read_text()) == ("a1", "mine")


def test_a_save_root_that_has_no_effect_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = parts.trainer(tmp_path, hooks=SaveCheckpointConfig(save_root="ignored"))
    trainer()
    lines = [each.getMessage() for each in caplog.records if "save_root" in each.getMessage()]
    assert lines == [
        "SaveCheckpoint: save_root='ignored' is ignored, because the Accelerator has automatic_checkpoint_naming: "
        f"saves are in its project_dir, {tmp_path}"
    ]
    (saves,) = (hook for hook in trainer.hooks.members() if isinstance(hook, SaveCheckpoint))
    assert (saves.save_root, saves.save_epoch_freq, saves.save_step_freq) == ("ignored", 1, None)


def test_a_processor_knows_the_accelerator_of_its_training() -> None:
    class Own(SimpleBatchProcessor):
        seen: Any = None

        def forward(self, model: Any, batch: Any) -> Any:
            self.seen = self.accelerator
            return parts.forward(model, batch)

    processor = Own()
    assert processor.accelerator is None
    trainer = parts.trainer(batch_processor=processor, max_step=1)
    trainer()
    assert processor.seen is processor.accelerator is trainer.accelerator


def test_micro_steps_count_finished_batches() -> None:
    seen: list[tuple[int, int]] = []

    class Counts(PipelineHooks):
        def __init__(self) -> None:
            note = lambda args: seen.append((args.micro_step.epoch_step_id, args.micro_step.global_step_id))  # noqa: E731
            self.register_hook("on_step", HookContext.from_callable(before=note, after=note))

    parts.trainer(hooks=Counts(), max_step=parts.STEPS + 1)()
    assert seen[:4] == [(0, 0), (1, 1), (1, 1), (2, 2)]
    assert seen[-2:] == [(0, parts.STEPS), (1, parts.STEPS + 1)]


def test_the_modules_of_later_releases_have_the_same_classes() -> None:
    from hookline.dialects.robo_orchard_lab.pipeline.training.hook_based_trainer import HookBasedTrainer as Later
    from hookline.dialects.robo_orchard_lab.pipeline.training.trainer import SimpleTrainer as LaterSimple
    from hookline.dialects.robo_orchard_lab.processing import step_processor

    assert (Later, LaterSimple) == (HookBasedTrainer, SimpleTrainer)
    assert step_processor.SimpleStepProcessor is SimpleBatchProcessor
    made = SimpleBatchProcessor.from_callable(parts.forward)
    assert isinstance(made, step_processor.StepProcessorFromCallable)
    with pytest.raises(TypeError, match="io_processor"):
        step_processor.SimpleStepProcessor(io_processor=object())  # type: ignore[call-arg]


def test_the_state_of_an_accelerator_is_loaded_from_a_folder_of_this_machine(tmp_path: Path) -> None:
    assert get_accelerate_project_last_checkpoint_id(tmp_path) == -1
    trainer = parts.trainer(tmp_path, hooks=SaveCheckpointConfig())
    trainer()
    assert get_accelerate_project_last_checkpoint_id(tmp_path) == 2
    loaded = parts.trainer()
    accelerator_load_state(loaded.accelerator, tmp_path / "checkpoints/checkpoint_2")
    assert parts.equal(parts.weights(loaded), parts.weights(trainer))
    for wrong, message in (("s3://bucket/x", "copy it to this machine first"), (tmp_path / "no", "does not exist")):
        with pytest.raises(ValueError, match=message):
            accelerator_load_state(loaded.accelerator, wrong)


@pytest.fixture
def fresh_manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(LoggerManager, "_instance", None)
    monkeypatch.setattr(logging.getLogger("LoggerManager"), "handlers", [])
    yield
    logging.getLogger("LoggerManager").setLevel(logging.NOTSET)


def test_there_is_one_logger_manager(fresh_manager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    class Keeps(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    manager = LoggerManager("%rank %(name)s: %(message)s", logging.WARNING, [Keeps()])
    assert LoggerManager(level=logging.DEBUG) is manager
    child = manager.get_child("mine")
    child.info("no")
    child.warning("yes")
    manager.set_level(logging.INFO).set_format("%(message)s")
    child.info("now")
    assert lines == ["LoggerManager.mine: yes", "now"]
    assert manager.get_logger() is child.parent
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")
    assert wrap_log_fmt_with_rank("%rank %(message)s") == "Rank[3/4] %(message)s"


# The parts that the three tutorials have in common, with a small net in the place of torchvision's.
COMMON = """
import logging, os
from typing import Any
import torch
from robo_orchard_core.utils.logging import LoggerManager
logger = LoggerManager(level=logging.INFO).get_child(__name__)
from pydantic import Field
from robo_orchard_core.utils.cli import SettingConfig
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

class DatasetConfig(SettingConfig):
    data_root: str | None = Field(description="Image dataset directory.", default=None)
    pipeline_test: bool = Field(description="Use dummy data.", default=False)
    dummy_train_imgs: int = Field(description="Number of dummy images.", default=8)

    def __post_init__(self):
        if self.pipeline_test is False and self.data_root is None:
            raise ValueError("data_root must be specified when pipeline_test is False.")

    def get_dataset(self):
        return datasets.FakeData(self.dummy_train_imgs, (3, 8, 8), 10, transforms.ToTensor())

class TrainerConfig(SettingConfig):
    dataset: DatasetConfig = Field(description="Dataset configuration.")
    batch_size: int = Field(description="Batch size.", default=128)
    max_epoch: int = Field(description="Epochs.", default=90)
    workspace_root: str = Field(description="Workspace.", default="./workspace/")

cfg = TrainerConfig(dataset=DatasetConfig(pipeline_test=True), batch_size=2, max_epoch=1, workspace_root="workspace")
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
accelerator = Accelerator(cpu=True, step_scheduler_with_optimizer=False, project_config=ProjectConfiguration(
    project_dir=cfg.workspace_root, logging_dir=os.path.join(cfg.workspace_root, "logs"),
    automatic_checkpoint_naming=True, total_limit=32))
from robo_orchard_lab.processing.step_processor import SimpleStepProcessor

class MyBatchProcessor(SimpleStepProcessor):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.criterion = torch.nn.CrossEntropyLoss()

    def forward(self, model, batch):
        images, target = batch
        output = model(images)
        return output, self.criterion(output, target) if self.need_backward else None

train_dataloader = DataLoader(cfg.dataset.get_dataset(), batch_size=cfg.batch_size, shuffle=True)
model = models.resnet18()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
from robo_orchard_lab.pipeline.hooks import StatsMonitorConfig
hooks = [StatsMonitorConfig(step_log_freq=64)]
"""

BUILT_IN = """
from torchmetrics import Accuracy
from robo_orchard_lab.pipeline.hooks import MetricEntry, MetricTracker, MetricTrackerConfig, SaveCheckpointConfig

class MyMetricTracker(MetricTracker):
    def update_metric(self, batch, model_outputs):
        for metric in self.metrics:
            metric(model_outputs, batch[1])

class MyMetricTrackerConfig(MetricTrackerConfig):
    class_type: type[MyMetricTracker] = MyMetricTracker

entry = MetricEntry(names=["top1_acc"], metric=Accuracy(task="multiclass", num_classes=10, top_k=1))
hooks += [MyMetricTrackerConfig(metric_entrys=[entry], step_log_freq=64, log_main_process_only=False),
          SaveCheckpointConfig(save_step_freq=1024)]
"""

CUSTOM = """
from robo_orchard_lab.pipeline.hooks.mixin import HookContext, PipelineHookArgs, PipelineHooks, PipelineHooksConfig
logged = []

class MyHook(PipelineHooks):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.register_hook(channel="on_step", hook=HookContext.from_callable(before=self.begin, after=self.end))

    def begin(self, args: PipelineHookArgs):
        if (args.micro_step.epoch_step_id + 1) % self.cfg.log_step_freq == 0:
            logged.append(f"begin {args.micro_step.epoch_step_id + 1}")

    def end(self, args: PipelineHookArgs):
        if args.micro_step.epoch_step_id % self.cfg.log_step_freq == 0:
            logged.append(f"end {args.micro_step.epoch_step_id}")

class MyHookConfig(PipelineHooksConfig[MyHook]):
    class_type: type[MyHook] = MyHook
    log_step_freq: int = 2

hooks.append(MyHookConfig())
"""

TRAIN = """
from robo_orchard_lab.pipeline import HookBasedTrainer
trainer = HookBasedTrainer(model=model, dataloader=train_dataloader, optimizer=optimizer, lr_scheduler=lr_scheduler,
    accelerator=accelerator, batch_processor=MyBatchProcessor(need_backward=True), max_epoch=cfg.max_epoch, hooks=hooks)
shown = repr(trainer.hooks)
trainer()
"""


def vision() -> ModuleType:
    """Return a stand-in for torchvision: random images and a small net."""

    class FakeData(torch.utils.data.Dataset[Any]):
        def __init__(self, size: int, shape: tuple[int, ...], classes: int, transform: Any) -> None:
            self.size, self.shape, self.classes = size, shape, classes

        def __len__(self) -> int:
            return self.size

        def __getitem__(self, index: int) -> Any:
            generator = torch.Generator().manual_seed(index)
            return torch.rand(self.shape, generator=generator), index % self.classes

    module, net = ModuleType("torchvision"), nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
    content: dict[str, dict[str, Any]] = {
        "datasets": {"FakeData": FakeData},
        "models": {"resnet18": lambda: net},
        "transforms": {"ToTensor": lambda: None},
    }
    for name, values in content.items():
        setattr(module, name, inner := ModuleType(f"torchvision.{name}"))
        vars(inner).update(values)
    return module


@pytest.mark.parametrize("chapter", [[], [BUILT_IN], [CUSTOM]], ids=["first_run", "built_in_hooks", "custom_hook"])
def test_the_trainer_tutorials_run(
    chapter: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_manager: None
) -> None:
    alias("robo_orchard_lab")
    monkeypatch.setitem(sys.modules, "torchvision", vision())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tutorial.py").write_text("".join([COMMON, *chapter, TRAIN]))
    ran = runpy.run_path("tutorial.py")
    assert ran["trainer"].trainer_progress_state.global_step_id == 4
    assert "StatsMonitor" in ran["shown"]
    written = sorted(path.name for path in tmp_path.glob("workspace/checkpoints/*"))
    assert written == (["checkpoint_0", "checkpoint_1"] if BUILT_IN in chapter else [])
    assert ran.get("logged", []) == (["begin 2", "end 2", "begin 4", "end 4"] if CUSTOM in chapter else [])
