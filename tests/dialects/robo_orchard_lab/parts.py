"""A small training: a net with dropout, shuffled data, momentum and a schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.utils import ProjectConfiguration, set_seed  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hookline.dialects.robo_orchard_lab.pipeline import HookBasedTrainer
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor import SimpleBatchProcessor
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import HookContext, PipelineHookArgs, PipelineHooks

SAMPLES, BATCH = 18, 4
#: The files that every run has in its folder, besides its saves.
RUN_FILES = {"events.jsonl", "hooks.json", "metrics.jsonl", "plan.txt", "report.html", "run.log"}
#: The number of steps per epoch.
STEPS = 5


def accelerator(folder: Path | None = None, total_limit: int | None = 32, **options: Any) -> Accelerator:
    project = ProjectConfiguration(
        project_dir=None if folder is None else str(folder),
        automatic_checkpoint_naming=folder is not None,
        total_limit=total_limit,
    )
    return Accelerator(cpu=True, project_config=project, **options)


def dataset() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(SAMPLES, 4, generator=generator)
    return TensorDataset(inputs, torch.randint(0, 3, (SAMPLES,), generator=generator))


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 3))


def forward(model: Any, batch: Any) -> tuple[Any, Tensor]:
    inputs, target = batch
    outputs = model(inputs)
    return {"logits": outputs}, nn.functional.cross_entropy(outputs, target)


def trainer(folder: Path | None = None, **options: Any) -> HookBasedTrainer:
    """Return a trainer with a default for everything that is not given."""
    set_seed(options.pop("seed", 3))
    model = options.pop("make_model", net)()
    optimizer = options.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    given = {
        "accelerator": options.pop("accelerator", None) or accelerator(folder),
        "dataloader": DataLoader(dataset(), batch_size=BATCH, shuffle=True),
        "batch_processor": SimpleBatchProcessor.from_callable(forward),
        "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5),
        "max_epoch": 2,
    }
    if "max_step" in options:
        given.pop("max_epoch")
    return HookBasedTrainer(model=model, optimizer=optimizer, **(given | options))


def weights(trainer: HookBasedTrainer) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in trainer.model.parameters()]


def equal(left: list[Tensor], right: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(left, right, strict=True))


def counters(args: PipelineHookArgs) -> str:
    return f"e{args.epoch_id} s{args.step_id} g{args.global_step_id}"


class Recorder(PipelineHooks):
    """Records every pass through some channels, with the counters and the error."""

    def __init__(self, *channels: Any) -> None:
        super().__init__()
        self.seen: list[str] = []
        for channel in channels:
            self.register_hook(
                channel, HookContext.from_callable(None, self._note(channel, ">"), self._note(channel, "<"))
            )

    def _note(self, channel: str, sign: str) -> Any:
        def note(args: PipelineHookArgs) -> None:
            failed = f" {type(args.exception).__name__}" if args.exception is not None else ""
            self.seen.append(f"{sign}{channel.removeprefix('on_')} {counters(args)}{failed}")

        return note


def folders(path: Path) -> list[str]:
    """Return the names in a folder, without the files that every run has in its folder."""
    return sorted(entry.name for entry in path.iterdir() if entry.name not in RUN_FILES) if path.is_dir() else []
