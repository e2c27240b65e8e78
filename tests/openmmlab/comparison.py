"""Read what runs of the real mmengine and of hookline left, and compare it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from PIL import Image

COMPARED = ("state_dict", "optimizer", "param_schedulers", "rng")


def losses_of_mmengine(work_dir: str) -> dict[int, dict[str, float]]:
    """Return the losses, rates and norms that mmengine logged, by iteration."""
    (file,) = Path(work_dir).glob("*/vis_data/scalars.json")
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {each["step"]: _numbers(each) for each in records if "loss" in each}


def losses_of_hookline(work_dir: str) -> dict[int, dict[str, float]]:
    """Return the same from the records of hookline."""
    lines = (Path(work_dir) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return {
        each["step"]: _numbers({name.removeprefix("train/"): value for name, value in each.items()})
        for each in records
        if "train/loss" in each
    }


def _numbers(record: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in record.items() if "loss" in name or name in ("lr", "grad_norm")}


def metrics_of(work_dir: str, stage: str) -> dict[str, float]:
    """Return the last metrics of a stage that hookline recorded."""
    found: dict[str, float] = {}
    for line in (Path(work_dir) / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        mine = {name.removeprefix(f"{stage}/"): value for name, value in record.items() if name.startswith(f"{stage}/")}
        found = {name: value for name, value in mine.items() if "time" not in name} or found
    return found


def metrics_of_mmengine(work_dir: str) -> dict[str, float]:
    """Return the metrics of the last validation or test that mmengine logged."""
    (file,) = [*Path(work_dir).glob("*/vis_data/scalars.json"), *Path(work_dir).glob("*/[0-9]*_[0-9]*.json")]
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    last = [each for each in records if "loss" not in each][-1]
    return {name: value for name, value in last.items() if "time" not in name and name not in ("step", "epoch")}


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return all values of a checkpoint by their paths."""
    if isinstance(value, dict):
        return {key: each for name, inner in value.items() for key, each in flat(inner, f"{path}/{name}").items()}
    if isinstance(value, (list, tuple)):
        return flat(dict(enumerate(value)), path)
    return {path: value}


def same_bits(one: Path, other: Path) -> bool:
    """Return whether two checkpoints have the same weights, optimizers, schedules and random states."""
    both = [flat({name: torch.load(path, weights_only=True).get(name) for name in COMPARED}) for path in (one, other)]
    equal = [
        torch.equal(value, both[1][name]) if isinstance(value, torch.Tensor) else value == both[1][name]
        for name, value in both[0].items()
        if name in both[1]
    ]
    return both[0].keys() == both[1].keys() and all(equal)


def same_weights(of_mmengine: Path, of_hookline: Path) -> bool:
    """Return whether two checkpoints have the same weights and buffers. Ours are trusted: this run wrote them."""
    one = torch.load(of_mmengine, weights_only=False)["state_dict"]
    other = torch.load(of_hookline, weights_only=True)["state_dict"]
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def modes_of(path: str) -> tuple[list[Any], set[str]]:
    """Return the point, the iteration and the modes of all modules of each call of a hook, and the modes of saves.

    A save is not at a given place of the sequence: hookline saves when an iteration or epoch is done.
    """
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    loops = [row for row in rows if "checkpoint" not in row[0]]
    return loops, {row[2] for row in rows if row[0] == "before_save_checkpoint"}


def same_modes(one: str, other: str) -> str:
    """Return whether the modes of two runs are equal, with the number of points, modules and changes."""
    (mine, saved), (theirs, also_saved) = modes_of(one), modes_of(other)
    if mine != theirs or saved != also_saved:
        return "DIFFERENT"
    return f"equal, {len(mine)} calls, {len(mine[0][2])} modules"


def same_pictures(one: Path, other: Path) -> str:
    """Return whether two folders have the same pictures, pixel by pixel, in files of any name."""
    found = [
        sorted((image.size, image.tobytes()) for image in (Image.open(path).convert("RGB") for path in _images(folder)))
        for folder in (one, other)
    ]
    if not found[0] or found[0] != found[1]:
        return f"DIFFERENT: {len(found[0])} and {len(found[1])} pictures"
    return f"equal, {len(found[0])}"


def _images(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix in (".png", ".jpg")]
