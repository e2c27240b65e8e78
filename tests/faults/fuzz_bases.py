"""Good configs to be edited, and options to be added to them."""

from __future__ import annotations

from typing import Any

_LOADER = {"dataset": {"type": "mynet:Data"}, "batch_size": 4}
_EVALUATION = {"dataloader": _LOADER, "step": "mynet:predict", "metrics": {"accuracy": "accuracy"}}

#: Good configs. Together they have every section.
BASES: dict[str, dict[str, Any]] = {
    "usual": {
        "model": {"type": "mynet:Net", "hidden": 3},
        "train": {"dataloader": _LOADER, "step": "mynet:loss_of", "max_epochs": 1},
        "val": _EVALUATION,
        "test": _EVALUATION,
        "optim": {"optimizer": {"type": "SGD", "lr": 0.1}},
        "work_dir": "runs/run",
        "seed": 1,
    },
    "by_iterations": {
        "model": {"type": "mynet:Net"},
        "train": {
            "dataloader": {**_LOADER, "shuffle": True, "drop_last": True},
            "step": "mynet:loss_of",
            "max_iters": 3,
            "val_interval": 2,
            "val_begin": 1,
        },
        "val": {**_EVALUATION, "limit_batches": 1, "loss": "mynet:loss_of"},
        "optim": {
            "optimizer": {"type": "AdamW", "lr": 0.001},
            "schedulers": [{"type": "CosineAnnealingLR", "T_max": "auto", "when": "step"}],
            "param_groups": [{"match": "*.bias", "weight_decay": 0}],
            "accumulate": 2,
            "clip_norm": 1.0,
        },
        "default_hooks": {"logger": {"interval": 1}, "checkpoint": {"interval": 2, "save_best": "accuracy"}},
        "custom_hooks": [{"type": "EMAHook", "momentum": 0.1}, {"type": "CheckInvalidLossHook", "priority": "LOW"}],
        "writers": ["jsonl", {"type": "csv", "filename": "metrics.csv"}],
        "work_dir": "runs/run",
    },
    "several": {
        "imports": ["mynet"],
        "model": {"type": "mynet:Net"},
        "train": {"dataloader": _LOADER, "step": "mynet:loss_of", "max_epochs": 1, "limit_batches": 1},
        "val": {"a": _EVALUATION, "b": _EVALUATION},
        "optim": {"optimizer": {"type": "SGD", "lr": 0.1}},
        "points": {"after_render": ["image"]},
        "work_dir": "runs/run",
        "experiment_name": "several",
        "device": "cpu",
        "strategy": "auto",
        "precision": "bf16",
        "resume": False,
    },
}

#: More options of the sections, each with a good value. The number of workers is never changed to a large one.
OPTIONS: dict[str, dict[str, Any]] = {
    "train": {"val_interval": 1, "val_begin": 1, "limit_batches": 2},
    "train.dataloader": {"shuffle": True, "drop_last": False, "pin_memory": False, "collate_fn": "mynet:loss_of"},
    "val": {"limit_batches": 1, "loss": "mynet:loss_of"},
    "optim": {"accumulate": 2, "clip_norm": 1.0, "clip_value": 1.0, "norm_type": 2.0, "keep_gradients": True},
    "optim.optimizer": {"weight_decay": 0.1, "maximize": True, "foreach": False, "betas": [0.9, 0.99], "momentum": 0.9},
    "default_hooks.checkpoint": {"interval": 1, "by_epoch": True, "max_keep_ckpts": 1, "save_best": "accuracy"},
    "default_hooks.logger": {"interval": 1, "smoothing_factor": 2},
    "default_hooks": {"timer": None, "param_scheduler": None, "runtime_info": None, "sampler_seed": {}},
    "model": {"hidden": 2},
}
