"""Compare schedulers, parameter groups, configs and modes of the mmengine package and of the dialect.

    python -m tests.dialects.mmengine.side_by_side

prints the number of cases, and those in which the two differ. It runs as a separate process, so that the tests never
import both packages in one process.
"""

from __future__ import annotations

import importlib
import json
import tempfile
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hookline.dialects.mmengine import config as our_config
from hookline.dialects.mmengine import optim as our_optim
from tests.dialects.mmengine import base_changes, mode_changes

PACKAGES = ("hookline.dialects.mmengine", "mmengine")
STEPS = 20
# Metrics for which MMEngine infers a rule, right or wrong.
NAMES = [
    "acc",
    "val/ACC",
    "top-1",
    "top1_error",
    "stop_rate",
    "AR@100",
    "coco/bbox_mAP",
    "mapping_time",
    "mIoU",
    "loss",
]
NAMES += ["val/loss_ce", "accuracy_loss", "lossless_rate", "loss_scale", "iou_loss", "precision_error", "accumulated"]
PARAMETERS: dict[str, dict[str, Any]] = {
    "Constant": {"factor": 0.25},
    "CosineAnnealing": {"T_max": 5, "eta_min": 0.001},
    "CosineRestart": {"periods": [4, 6], "restart_weights": [1, 0.5], "eta_min_ratio": 0.1},
    "Exponential": {"gamma": 0.9},
    "Linear": {"start_factor": 0.1},
    "MultiStep": {"milestones": [2, 4, 4]},
    "OneCycle": {"eta_max": 0.3, "total_steps": STEPS},
    "Poly": {"power": 0.9, "eta_min": 1e-4},
    "Step": {"step_size": 3},
}
# Begin and end of two schedulers that act at the same time, one after the other, or with some overlap.
SPANS = [(0, 10, 0, 20), (2, 9, 5, 16), (0, 6, 6, 20), (3, 10**9, 0, 7)]
FURTHER: list[tuple[str, dict[str, Any]]] = [
    ("OneCycle", {"three_phase": True}),
    ("OneCycle", {"anneal_strategy": "linear", "pct_start": 0.5}),
    ("OneCycle", {"eta_max": [0.3, 0.1]}),
    ("CosineAnnealing", {"eta_min": None, "eta_min_ratio": 0.2, "T_max": None, "end": 20}),
    ("Linear", {"start_factor": 1.0, "end_factor": 0.2, "end": 8}),
]
PLATEAUS: list[dict[str, Any]] = [
    {},
    {"rule": "greater", "patience": 1, "cooldown": 2, "threshold": 0.05},
    {"patience": 0, "threshold_rule": "abs", "threshold": 0.1, "min_value": [0.03, 0.015]},
    {"rule": "greater", "threshold_rule": "abs", "patience": 1, "begin": 2, "end": 9},
]
METRICS = [1.0, 0.9, 0.95, 0.95, 0.8, 0.85, 0.85, 0.86, 0.87, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6]
PARAMWISE: list[dict[str, Any]] = [
    {"norm_decay_mult": 0.0},
    {"bias_lr_mult": 2.0, "bias_decay_mult": 0.5},
    {"dwconv_decay_mult": 0.3, "flat_decay_mult": 0.1},
    {"norm_decay_mult": 0.0, "bias_decay_mult": 0.5, "dwconv_decay_mult": 0.3, "flat_decay_mult": 0.1},
    {"custom_keys": {"backbone": {"lr_mult": 0.1}, "backbone.1": {"decay_mult": 0.0}, "head": {"momentum": 0.5}}},
    {"custom_keys": {"head": {"lr_mult": 10.0}}, "bias_lr_mult": 2.0},
]
BASE = "model = dict(type='Net', depth=10, norm=dict(type='BN', eps=1e-5))\nlr = 0.1\nstages = [1, 2]\n"
CHILD = """\
_base_ = ['../base.py']
import os.path as osp
def twice(x):
    return 2 * x
lr2 = twice(_base_.lr)
lr3 = {{_base_.lr}}
here = '{{ fileDirname }}'
model = dict(depth=20, norm=dict(_delete_=True, type='GN'))
optimizer = dict(type='SGD', lr=_base_.lr, nested=[dict(a=1), (2, 3)])
stages = []
stages.append(7)
"""


def optimizer_of(kind: str = "SGD", **more: Any) -> torch.optim.Optimizer:
    first, second = (nn.Parameter(torch.ones(2)) for _ in range(2))
    groups = [{"params": [first]}, {"params": [second], "lr": 0.02}]
    made: torch.optim.Optimizer = getattr(torch.optim, kind)(groups, lr=0.1, **more)
    return made


def values(optimizer: torch.optim.Optimizer, name: str) -> list[Any]:
    return [group[name] for group in optimizer.param_groups]


def course(package: Any, *specs: tuple[str, dict[str, Any]], name: str = "lr", kind: str = "SGD", **more: Any) -> Any:
    """Return the values of all groups after every step."""
    optimizer = optimizer_of(kind, **more)
    schedulers = [getattr(package.scheduler, which)(optimizer, **parameters) for which, parameters in specs]
    found = [values(optimizer, name)]
    for _ in range(STEPS):
        for each in schedulers:
            each.step()
        found.append(values(optimizer, name))
    return found


def plateau(package: Any, parameters: dict[str, Any]) -> Any:
    optimizer = optimizer_of()
    scheduler = package.scheduler.ReduceOnPlateauLR(optimizer, monitor="loss", **{"patience": 2, **parameters})
    found = []
    for metric in METRICS:
        scheduler.step()
        scheduler.step({"loss": metric})
        found.append(values(optimizer, "lr"))
    return found


def by_iterations(package: Any, kind: str) -> Any:
    optimizer = optimizer_of()
    cls = getattr(package.scheduler, f"{kind}LR")
    scheduler = cls.build_iter_from_epoch(optimizer=optimizer, **PARAMETERS[kind], begin=1, end=6, epoch_length=3)
    found = []
    for _ in range(STEPS):
        scheduler.step()
        found.append(values(optimizer, "lr"))
    return found


class Varied(nn.Module):
    """Has parameters of all kinds that paramwise_cfg distinguishes."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1, groups=4))
        self.neck = nn.ModuleDict({"norm": nn.GroupNorm(2, 4), "scale": nn.PReLU(4)})
        self.head = nn.Linear(4, 2)


def groups(package: Any, model: nn.Module, paramwise: dict[str, Any]) -> Any:
    """Return the parameter groups, with the names of their parameters."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    optimizer = {"type": "SGD", "lr": 0.1, "weight_decay": 0.01, "momentum": 0.9}
    made = package.build_optim_wrapper(model, {"optimizer": optimizer, "paramwise_cfg": paramwise})
    return [{**group, "params": [names[id(one)] for one in group["params"]]} for group in made.optimizer.param_groups]


def rules(hooks: Any, name: str) -> list[str]:
    """Return the rules of the hooks that infer one from the name of a metric."""
    saves = hooks.CheckpointHook(save_best=name)
    own = hooks.CheckpointHook(save_best=name, greater_keys=["o"], less_keys="a")
    found = [each.rules[0] if each.rules else each._watch(name).monitor.rule for each in (saves, own)]
    stops = hooks.EarlyStoppingHook(name)
    return [*found, stops.rule if hasattr(stops, "rule") else stops.best.monitor.rule]


def read(package: Any, path: Path) -> Any:
    options = {"allow_python_config": True} if package is our_config else {}
    return package.Config.fromfile(path, **options).to_dict()


def cases(folder: Path, their_optim: Any, their_config: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of each case and the results of both packages."""
    for first, second in product(PARAMETERS, repeat=2):
        for begin, end, other_begin, other_end in SPANS:
            specs = (
                (f"{first}LR", {**PARAMETERS[first], "begin": begin, "end": end}),
                (f"{second}LR", {**PARAMETERS[second], "begin": other_begin, "end": other_end}),
            )
            name = f"{first}LR from {begin} to {end}, {second}LR from {other_begin} to {other_end}"
            yield name, course(our_optim, *specs), course(their_optim, *specs)
    for kind, parameters in FURTHER:
        spec = (f"{kind}LR", {**PARAMETERS[kind], **parameters})
        yield f"{kind}LR {parameters}", course(our_optim, spec), course(their_optim, spec)
    for kind in PARAMETERS:
        yield f"{kind}LR by iterations", by_iterations(our_optim, kind), by_iterations(their_optim, kind)
        if kind == "OneCycle":
            continue
        spec = (f"{kind}ParamScheduler", {"param_name": "weight_decay", **PARAMETERS[kind], "end": 15})
        options: Any = {"name": "weight_decay", "weight_decay": 0.4}
        yield spec[0], course(our_optim, spec, **options), course(their_optim, spec, **options)
        spec = (f"{kind}Momentum", {**PARAMETERS[kind], "begin": 1, "end": 12})
        for options in ({"momentum": 0.9, "name": "momentum"}, {"kind": "Adam", "name": "betas"}):
            yield f"{spec[0]} {options}", course(our_optim, spec, **options), course(their_optim, spec, **options)
    for parameters in PLATEAUS:
        yield f"ReduceOnPlateauLR {parameters}", plateau(our_optim, parameters), plateau(their_optim, parameters)
    model = Varied()
    for paramwise in PARAMWISE:
        yield f"{paramwise}", groups(our_optim, model, paramwise), groups(their_optim, model, paramwise)
    (folder / "sub").mkdir()
    (folder / "base.py").write_text(BASE)
    (folder / "sub" / "child.py").write_text(CHILD)
    yield (
        "a Python config",
        read(our_config, folder / "sub" / "child.py"),
        read(their_config, folder / "sub" / "child.py"),
    )
    for change, path in base_changes.write(folder):
        yield f"{path.name}: {change}", read(our_config, path), read(their_config, path)
    for name in NAMES:
        ours, theirs = (rules(importlib.import_module(f"{each}.hooks"), name) for each in PACKAGES)
        yield f"the rule of {name}", ours, theirs
    for train_cfg, hooked in product(mode_changes.CONFIGS, (False, True)):
        ours, theirs = (mode_changes.modes(each, dict(train_cfg), hooked) for each in PACKAGES)
        yield f"modes, {train_cfg}, with a hook that changes them: {hooked}", ours, theirs


def main() -> None:
    """Print the results."""
    count, different = 0, {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from the mmengine package with current versions of torch
        real = [importlib.import_module(f"mmengine.{name}") for name in ("optim", "config")]
        for name, ours, theirs in cases(Path(folder), *real):
            count += 1
            if ours != theirs:
                different[name] = [repr(ours), repr(theirs)]
    print(json.dumps({"cases": count, "different": different}))


if __name__ == "__main__":
    main()
