"""Try what users of MMEngine report, with the real mmengine or with hookline's dialect.

    python complaints.py mmengine|hookline [PROJECT] OUT

OUT gets the outcome of each case: a result, or the type of the error. outcomes.py has what
is expected, and docs/coming-from/mmengine.md has the table.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, ClassVar

if sys.argv[1] == "hookline":
    from hookline.dialects import alias

    alias("mmengine")

import numpy as np
import torch
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch import nn

ITERS = 12


class Data(torch.utils.data.Dataset[Any]):
    """Eight samples. It counts how many were read; the original copies the object."""

    read: ClassVar = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        Data.read += 1
        return torch.full((4,), float(index)), index % 2


class Model(BaseModel):
    """A linear classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 2)

    def forward(self, inputs: Any, labels: Any, mode: str = "tensor") -> Any:
        logits = self.net(inputs)
        return {"loss": nn.functional.cross_entropy(logits, labels)} if mode == "loss" else [logits]


class Half(BaseMetric):
    """Always the same number, of NumPy."""

    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results.append(0.5)

    def compute_metrics(self, results: Any) -> dict[str, float]:
        return {"accuracy": np.float64(0.5)}


def make(folder: str, name: str, **more: Any) -> Runner:
    """Return a runner."""
    loader = {
        "dataset": Data(),
        "batch_size": 2,
        "collate_fn": {"type": "default_collate"},
        "sampler": {"type": "DefaultSampler", "shuffle": False},
    }
    settings: dict[str, Any] = {
        "model": Model(),
        "work_dir": folder,
        "train_dataloader": {**loader, "sampler": {"type": "InfiniteSampler", "shuffle": False}},
        "val_dataloader": loader,
        "train_cfg": {"by_epoch": False, "max_iters": ITERS, "val_interval": 100},
        "val_cfg": {},
        "val_evaluator": Evaluator(Half()),
        "optim_wrapper": {"optimizer": {"type": "SGD", "lr": 0.1}},
        "default_hooks": {"checkpoint": {"type": "CheckpointHook", "by_epoch": False, "interval": 6}},
        "log_level": "ERROR",
        "experiment_name": name,
    }
    return Runner(**{**settings, **more})


def resume(folder: str, name: str, **more: Any) -> Runner:
    """Train, and resume from the middle of the run."""
    make(folder, f"{name}-first", **more).train()
    return make(folder, f"{name}-again", resume=True, load_from=str(Path(folder, "iter_6.pth")), **more)


def resumes(folder: str) -> str:
    """Resume from a checkpoint with this version of torch."""
    runner = resume(folder, "resumes")
    runner.train()
    return f"continues to iteration {runner.iter}"


def loads(folder: str) -> str:
    """Load a checkpoint that has a metric as a number of NumPy in it."""
    validating = {"train_cfg": {"by_epoch": False, "max_iters": ITERS, "val_interval": 6}}
    hooks = {"checkpoint": {"type": "CheckpointHook", "by_epoch": False, "interval": 12, "save_best": "accuracy"}}
    make(folder, "loads-first", default_hooks=hooks, **validating).train()
    return f"returns {make(folder, 'loads-again', load_from=str(Path(folder, 'iter_12.pth'))).val()}"


def reads_again(folder: str) -> str:
    """Count the samples that a run by iterations reads after it is resumed."""
    os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # the real mmengine could not resume without it
    try:
        runner = resume(folder, "reads", val_dataloader=None, val_cfg=None, val_evaluator=None)
        Data.read = 0
        runner.train()
    finally:
        del os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"]
    return f"reads {Data.read} samples"


def val_with_save_best(folder: str) -> str:
    """Validate alone, with a hook that saves the best checkpoint."""
    hooks = {"checkpoint": {"type": "CheckpointHook", "save_best": "accuracy", "rule": "greater"}}
    runner = make(folder, "val", default_hooks=hooks)
    return f"returns {runner.val()}"


def amp_on_cpu(folder: str) -> str:
    """Train in lower precision on a CPU."""
    wrapper = {"type": "AmpOptimWrapper", "dtype": "bfloat16", "optimizer": {"type": "SGD", "lr": 0.1}}
    runner = make(folder, "amp", optim_wrapper=wrapper)
    runner.train()
    return f"trains {runner.iter} iterations"


def pkg_resources(folder: str) -> str:
    """Look up an installed package with a version of setuptools that has no pkg_resources."""
    known = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "pkg_resources"}
    sys.modules["pkg_resources"] = None  # an import of it fails
    try:
        from mmengine.utils import is_installed

        return f"is_installed('torch') is {is_installed('torch')}"
    finally:
        del sys.modules["pkg_resources"]
        sys.modules.update(known)


CASES = (resumes, loads, reads_again, val_with_save_best, amp_on_cpu, pkg_resources)


def main(out: Path) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    outcomes = {}
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                outcomes[case.__name__] = case(folder)
            except Exception as error:
                outcomes[case.__name__] = f"{type(error).__name__}: {str(error).partition('. ')[0]}"
    out.write_text(json.dumps(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[-1]))
