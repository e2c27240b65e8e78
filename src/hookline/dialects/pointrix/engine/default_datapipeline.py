"""BaseDataPipeline: batches of a data set, in an order that depends only on the seed and the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hookline.data import ResumableLoader
from hookline.dialects.pointrix.dataset import parse_data_set
from hookline.dialects.pointrix.utils.config import parse_structured


class BaseDataPipeline:
    """Training and validation data of one data set class, which is called as `Class(cfg.dataset, split="train")`.

    A batch is a list of items. The batch that `next_train` returns depends only on the step. So a run that resumes from
    a checkpoint sees the same batches as a run without a break.

    Args:
        cfg: The section `datapipeline`: the fields of `Config`.
        device: The device on which the run trains.
        seed: The seed of the order.
    """

    @dataclass
    class Config:
        """The fields of the section."""

        data_path: str = "data"
        data_set: str = "BaseImageDataset"
        shuffle: bool = True
        batch_size: int = 1
        white_bg: bool = False
        num_workers: int = 0
        use_dataloader: bool = True
        dataset: dict[str, Any] = field(default_factory=dict)

    def __init__(self, cfg: Any, device: str = "cpu", seed: int = 0) -> None:
        self.cfg: Any = parse_structured(self.Config, cfg)
        self.device = device
        self.white_bg: bool = self.cfg.white_bg
        make = parse_data_set(self.cfg)
        self.training_dataset = make(self.cfg.dataset, split="train")
        self.validation_dataset = make(self.cfg.dataset, split="val")
        self.training_loader = ResumableLoader(
            self.training_dataset,
            self.cfg.batch_size,
            self.cfg.shuffle,
            self.cfg.num_workers,
            collate_fn=list,
            seed=seed,
        )
        self._batches: Iterator[Any] = iter(())
        self._next = 0

    def next_train(self, step: int) -> list[Any]:
        """Return the batch of a step, counted from 1."""
        epoch, start = divmod(step - 1, len(self.training_loader))
        if step != self._next or start == 0:
            self._batches = self.training_loader.iterate(epoch, start)
        self._next = step + 1
        batch: list[Any] = next(self._batches)
        return batch

    def next_val(self, step: int) -> list[Any]:
        """Return one item of the validation data, as a batch."""
        return [self.validation_dataset[step]]

    @property
    def training_dataset_size(self) -> int:
        """Return the number of training items."""
        return len(self.training_dataset)

    @property
    def validation_dataset_size(self) -> int:
        """Return the number of validation items."""
        return len(self.validation_dataset)
