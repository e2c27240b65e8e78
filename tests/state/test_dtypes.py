"""Weights of another dtype: a resume refuses those that would change, and reports the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from hookline.checkpoint.compatibility import converted
from hookline.errors import StorageError
from hookline.testing import toy_model, toy_runner
from tests.engine.spoiled import spoil

if TYPE_CHECKING:
    from hookline import Runner


def saved(folder: Path, dtype: torch.dtype, *names: str) -> None:
    """Save a run, and give the named weights of its checkpoint another dtype."""

    def change(checkpoint: dict[str, Any]) -> None:
        weights = checkpoint["state_dict"]
        weights.update({name: weights[name].to(dtype) for name in names or list(weights)})

    toy_runner(work_dir=folder, max_epochs=1).train()
    spoil(folder, change)


def resume(folder: Path) -> Runner:
    runner = toy_runner(work_dir=folder, max_epochs=2, resume=True)
    runner.train()
    return runner


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.int8, torch.int64])
def test_a_resume_refuses_weights_whose_numbers_would_change(tmp_path: Path, dtype: torch.dtype) -> None:
    saved(tmp_path, dtype)
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(StorageError) as refused:
        resume(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path / 'epoch_1.pth'} does not fit this run; nothing was loaded:\n"
        f"  0.weight and 3 more: the model has float32, the checkpoint {name}, so the numbers would change; build the "
        f"model with {name}, or use load_from to start from its weights"
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_resume_reports_weights_that_become_wider(tmp_path: Path, dtype: torch.dtype) -> None:
    saved(tmp_path, dtype, "2.weight", "2.bias")
    assert resume(tmp_path).iter == 8
    name = str(dtype).removeprefix("torch.")
    line = (
        f"dtype of 2.weight and 1 more: checkpoint {name}, config float32: the config wins (no choice: the model is "
        "built with it)"
    )
    assert line in (tmp_path / "run.log").read_text()
    differences = json.loads((tmp_path / "resume.json").read_text())["differences"]
    assert [each["key"] for each in differences] == ["max_epochs", "dtype"]


def test_load_from_warns_about_weights_whose_numbers_change(tmp_path: Path) -> None:
    weights = {name: value.double() for name, value in toy_model().state_dict().items()}
    torch.save(weights | {"0.bias": weights["0.bias"].bfloat16()}, tmp_path / "weights.pth")
    runner = toy_runner(load_from=tmp_path / "weights.pth", max_epochs=1, work_dir=tmp_path / "run")
    runner.train()
    lines = (tmp_path / "run" / "run.log").read_text().splitlines()
    assert [line.split("  ", 1)[1] for line in lines if "numbers" in line] == [
        f"warning: {tmp_path / 'weights.pth'}: 0.weight and 2 more of the model has float32, the file float64, so the "
        "numbers were changed"
    ]


@pytest.mark.parametrize(
    ("then", "now", "is_lossy"),
    [
        (torch.bfloat16, torch.float16, True),
        (torch.float16, torch.bfloat16, True),
        (torch.int8, torch.int64, False),
        (torch.int64, torch.int32, True),
        (torch.uint8, torch.int8, True),
        (torch.bool, torch.uint8, False),
        (torch.float32, torch.int64, True),
        (torch.int64, torch.float64, True),
        (torch.float32, torch.complex64, False),
        (torch.float8_e4m3fn, torch.float32, True),
    ],
)
def test_a_wider_dtype_of_the_same_kind_holds_all_numbers(then: torch.dtype, now: torch.dtype, is_lossy: bool) -> None:
    own, state = ({"a": torch.zeros(2).to(dtype), "b": torch.zeros(1)} for dtype in (now, then))
    assert [(each.names, each.is_lossy) for each in converted(own, state)] == [(["a"], is_lossy)]


def test_a_model_with_the_dtype_of_the_checkpoint_resumes(tmp_path: Path) -> None:
    def make(**parts: Any) -> Runner:
        model = nn.Sequential(*toy_model()).double()
        return toy_runner(
            model=model,
            step=lambda model, batch: nn.functional.cross_entropy(model(batch[0].double()), batch[1]),
            val=None,
            work_dir=tmp_path,
            **parts,
        )

    make(max_epochs=1).train()
    resumed = make(max_epochs=2, resume=True)
    resumed.train()
    differences = json.loads((tmp_path / "resume.json").read_text())["differences"]
    assert (resumed.iter, [each["key"] for each in differences]) == (8, ["max_epochs"])
