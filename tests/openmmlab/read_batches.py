"""Train with every sampler and batch sampler of a project, with the real mmengine or with hookline's dialect.

    python read_batches.py mmengine|hookline PROJECT OUT

OUT gets the indices of all batches, by the name of the case. The samplers of a project choose their own order. Those of
mmengine do not shuffle, because the order of a shuffled epoch is hookline's own.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

if sys.argv[1] == "hookline":
    from hookline.dialects import alias

    alias("mmengine")

from mmengine.dataset import BaseDataset
from mmengine.model import BaseModel
from mmengine.registry import DATA_SAMPLERS
from mmengine.runner import Runner
from torch.utils.data import Sampler

EPOCHS, ITERS = 3, 17
#: Three videos, of this many frames, and their sizes.
FRAMES, SIZES = (3, 4, 2), ((96, 64), (64, 96), (80, 80))
SOURCES = {"type": "ConcatDataset", "datasets": [{"type": "Images", "count": 13}, {"type": "Images", "count": 8}]}
IMAGES = {"type": "Images", "count": 13}
VIDEOS = {"type": "Videos"}
GIVEN = {"type": "Given"}


class Images(BaseDataset):
    """Upright and wide images in no order, with one or two of three classes."""

    METAINFO: ClassVar = {"classes": ("first", "second", "third")}

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__()

    def load_data_list(self) -> list[dict[str, Any]]:
        return [{"width": 64 + 7 * (number % 5), "height": 78, "number": number} for number in range(self.count)]

    def get_cat_ids(self, idx: int) -> list[int]:
        return [idx % 3, 2] if idx % 4 == 0 else [idx % 2]

    def __getitem__(self, idx: int) -> int:
        return idx


class Given(Sampler):
    """Yields an order that is given, another one in every epoch."""

    def __init__(self, dataset: Any, seed: int | None = None) -> None:
        self.dataset, self.epoch = dataset, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.RandomState(self.epoch).permutation(len(self.dataset)).tolist())

    def __len__(self) -> int:
        return len(self.dataset)


class Choices:
    """Replaces `numpy.random.choice`, which one sampler calls: the numbers of a run are hookline's own."""

    def __init__(self) -> None:
        self.state = np.random.RandomState(5)

    def __call__(self, values: Any, p: Any = None) -> Any:
        return self.state.choice(values, p=p)


def videos() -> type:
    """Return a dataset of videos, whose samples are pairs: the number of a video, and of a frame in it."""
    from mmdet.datasets.base_video_dataset import BaseVideoDataset

    class Videos(BaseVideoDataset):
        def __init__(self, test_mode: bool = False, pipeline: Any = ()) -> None:
            self.test_mode, self._metainfo, self._fully_initialized = test_mode, {}, True

        def full_init(self) -> None:
            """There is nothing to load."""

        def __len__(self) -> int:
            return len(FRAMES)

        def get_len_per_video(self, idx: int) -> int:
            return FRAMES[idx]

        def get_data_info(self, idx: int) -> dict[str, Any]:
            width, height = SIZES[idx]
            return {"video_id": idx, "images": [{"width": width, "height": height}], "video_length": FRAMES[idx]}

        def __getitem__(self, idx: Any) -> Any:
            return [int(number) for number in idx] if isinstance(idx, tuple) else int(idx)

    return Videos


def sources_of() -> type:
    """Return a ConcatDataset that knows the dataset of a sample, as mmdet's."""
    from mmdet.datasets.dataset_wrappers import ConcatDataset

    class Sources(ConcatDataset):
        def __getitem__(self, idx: int) -> int:
            return idx

    return Sources


def cases() -> dict[str, list[dict[str, Any]]]:
    """Return loaders for each sampler, by its name."""
    ratio = {"batch_size": 4, "source_ratio": [1, 3], "seed": 3}
    mixed = {**SOURCES, "type": "Sources"}
    return {
        "DefaultSampler": [
            {"dataset": IMAGES, "sampler": {"type": "DefaultSampler", "shuffle": False, "round_up": round_up}}
            for round_up in (True, False)
        ],
        "InfiniteSampler": [{"dataset": IMAGES, "sampler": {"type": "InfiniteSampler", "shuffle": False}}],
        "RepeatAugSampler": [
            {"dataset": IMAGES, "sampler": {"type": "RepeatAugSampler", "num_repeats": times, "shuffle": shuffle}}
            for times in (2, 3)
            for shuffle in (True, False)
        ],
        "SequentialSampler": [
            {"dataset": IMAGES, "sampler": {"type": "SequentialSampler", "subsample_type": kind, "round_up": round_up}}
            for kind in ("default", "sequential")
            for round_up in (True, False)
        ],
        "ClassAwareSampler": [
            {"dataset": IMAGES, "sampler": {"type": "ClassAwareSampler", "num_sample_class": number}}
            for number in (1, 2)
        ],
        "CustomSampleSizeSampler": [
            {"dataset": mixed, "sampler": {"type": "CustomSampleSizeSampler", "dataset_size": sizes, **more}}
            for sizes, more in (([-1, 5], {}), ([4, 3], {"round_up": False}), ([0.5, 0.5], {"ratio_mode": True}))
        ],
        "MultiDataSampler": [
            {"dataset": mixed, "sampler": {"type": "MultiDataSampler", "dataset_ratio": [1, 2], "round_up": round_up}}
            for round_up in (True, False)
        ],
        "MultiSourceSampler": [
            {"dataset": mixed, "batch_size": 4, "sampler": {"type": "MultiSourceSampler", **ratio, "shuffle": shuffle}}
            for shuffle in (True, False)
        ],
        "GroupMultiSourceSampler": [
            {"dataset": mixed, "batch_size": 4, "sampler": {"type": "GroupMultiSourceSampler", **ratio}}
        ],
        "TrackImgSampler": [
            {"dataset": {**VIDEOS, "test_mode": test_mode}, "sampler": {"type": "TrackImgSampler"}}
            for test_mode in (False, True)
        ],
        "AspectRatioBatchSampler": [
            {
                "dataset": IMAGES,
                "sampler": sampler,
                "batch_sampler": {"type": "AspectRatioBatchSampler", "drop_last": drop_last},
            }
            for drop_last in (False, True)
            for sampler in (GIVEN, {"type": "DefaultSampler", "shuffle": False})
        ],
        "TrackAspectRatioBatchSampler": [
            {"dataset": VIDEOS, "sampler": sampler, "batch_sampler": {"type": "TrackAspectRatioBatchSampler"}}
            for sampler in (GIVEN, {"type": "TrackImgSampler"})
        ],
        "MultiDataAspectRatioBatchSampler": [
            {
                "dataset": mixed,
                "batch_size": [3, 2],
                "sampler": sampler,
                "batch_sampler": {
                    "type": "MultiDataAspectRatioBatchSampler",
                    "num_datasets": 2,
                    "drop_last": drop_last,
                },
            }
            for drop_last in (False, True)
            for sampler in (GIVEN, {"type": "MultiDataSampler", "dataset_ratio": [1, 2]})
        ],
    }


#: Samplers that never end are for training by iterations.
ENDLESS = ("InfiniteSampler", "MultiSourceSampler", "GroupMultiSourceSampler")


class Batches(BaseModel):
    """Remembers the indices of its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: list[Any] = []

    def forward(self, indices: Any, mode: str = "loss") -> dict[str, Any]:
        self.seen.append(indices)
        return {"loss": self.weight * 1.0}


def as_indices(samples: list[Any]) -> dict[str, Any]:
    """Return a batch of the indices themselves."""
    return {"indices": list(samples)}


def train(project: str, loader: dict[str, Any], train_cfg: dict[str, Any], name: str) -> list[Any]:
    """Return all batches of a run."""
    np.random.choice = Choices()
    model = Batches()
    described = {"batch_size": 3, "num_workers": 0, "collate_fn": {"type": as_indices}, **loader}
    with tempfile.TemporaryDirectory() as folder:
        Runner(
            model,
            folder,
            train_dataloader=described,
            train_cfg=train_cfg,
            optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.1}},
            default_hooks={"checkpoint": None, "logger": None},
            default_scope=project,
            randomness={"seed": 3},
            log_level="ERROR",
            experiment_name=name,
        ).train()
    return model.seen


def main(project: str, out: Path) -> None:
    """Read the batches of all samplers that the project registers, or uses from mmengine."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    time.sleep = lambda seconds: None  # mmengine waits for two seconds between the passes of training by iterations
    importlib.import_module(f"{project}.datasets")
    registry = importlib.import_module(f"{project}.registry").DATA_SAMPLERS
    names = sorted({*registry.module_dict, *DATA_SAMPLERS.module_dict, "DefaultSampler", "InfiniteSampler"})
    known = cases()
    if missing := [name for name in names if name not in known]:
        raise SystemExit(f"read_batches.py has no case for {', '.join(missing)}")
    DATA_SAMPLERS.register_module(module=Given)
    datasets = importlib.import_module("mmengine.registry").DATASETS
    datasets.register_module(module=Images)
    if project == "mmdet":
        datasets.register_module(name="Videos", module=videos())
        datasets.register_module(name="Sources", module=sources_of())
    found = {}
    for name in names:
        for number, loader in enumerate(known[name]):
            lengths = [{"by_epoch": False, "max_iters": ITERS}]
            lengths += [{"by_epoch": True, "max_epochs": EPOCHS}] if name not in ENDLESS else []
            for train_cfg in lengths:
                case = f"{name} {number} {'epochs' if train_cfg['by_epoch'] else 'iterations'}"
                found[case] = train(project, loader, train_cfg, case)
    out.write_text(json.dumps({"samplers": names, "batches": found}), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[2], Path(sys.argv[3]))
