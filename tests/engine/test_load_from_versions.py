"""`load_from` keeps the versions of modules, which tell a module whether it has to convert its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hookline.errors import StorageError
from hookline.state.snapshot import load_fitting
from hookline.testing import toy_runner


class Versioned(nn.Module):
    """Notes the version of the weights that it gets."""

    _version = 3

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 2)
        self.seen: list[Any] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.net(inputs)
        return out

    def _load_from_state_dict(self, state: Any, prefix: str, metadata: Any, *more: Any) -> None:
        self.seen.append(metadata.get("version"))
        if "before.weight" in state:
            state["net.weight"] = state.pop("before.weight")
        super()._load_from_state_dict(state, prefix, metadata, *more)


def test_a_module_gets_its_version_with_load_from_and_when_a_run_resumes(tmp_path: Path) -> None:
    toy_runner(model=Versioned(), work_dir=tmp_path / "one", max_epochs=1).train()
    loaded, resumed = Versioned(), Versioned()
    toy_runner(model=loaded, work_dir=tmp_path / "two", max_epochs=1, load_from=tmp_path / "one/epoch_1.pth").train()
    toy_runner(model=resumed, work_dir=tmp_path / "one", max_epochs=2, resume=True).train()
    assert (loaded.seen, resumed.seen) == ([3], [3])


def test_a_module_may_convert_names_that_the_model_does_not_have() -> None:
    model, weight = Versioned(), torch.full((2, 4), 7.0)
    left_out = load_fitting(model, {"before.weight": weight, "net.bias": torch.zeros(2), "net.scale": weight}, "x.pth")
    assert torch.equal(model.net.weight, weight)
    assert left_out == ["missing: net.weight (2, 4)", "surplus: before.weight", "surplus: net.scale"]


def test_a_model_that_converts_nothing_gets_only_what_fits() -> None:
    with pytest.raises(StorageError, match=r"nothing in x\.pth fits the model"):
        load_fitting(nn.Linear(4, 2), {"other": torch.zeros(1)}, "x.pth")
