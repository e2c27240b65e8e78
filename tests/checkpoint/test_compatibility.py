"""Models that have another length than their checkpoint."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn

from hookline.checkpoint.compatibility import fit_lengths, misfits, optimizer_misfits


class Points(nn.Module):
    def __init__(self, number: int, width: int = 2) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.rand(number, width))
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("seen", torch.zeros(number, dtype=torch.int64))
        self.head = nn.Linear(width, 1)


def a_step(points: Points, optimizer: torch.optim.Optimizer) -> None:
    (points.head(points.place).sum() * points.scale).backward()
    optimizer.step()
    optimizer.zero_grad()


def groups_of(optimizer: torch.optim.Optimizer) -> list[list[torch.Tensor]]:
    return [group["params"] for group in optimizer.param_groups]


def test_parameters_and_buffers_get_the_length_of_a_checkpoint_and_stay_the_same_objects() -> None:
    longer, shorter = Points(5), Points(3)
    adams = [torch.optim.Adam(each.parameters()) for each in (longer, shorter)]
    for points, adam in zip((longer, shorter), adams, strict=True):
        a_step(points, adam)
    place = shorter.place
    assert optimizer_misfits("the optimizer", groups_of(adams[1]), adams[0].state_dict()) == [
        "the optimizer: exp_avg of parameter 0 is (5, 2), but the parameter is (3, 2)",
        "the optimizer: exp_avg_sq of parameter 0 is (5, 2), but the parameter is (3, 2)",
    ]
    assert fit_lengths(shorter, longer.state_dict()) == ["place", "seen"]
    assert shorter.place is place
    assert misfits(shorter, longer.state_dict()) == []
    assert optimizer_misfits("the optimizer", groups_of(adams[1]), adams[0].state_dict()) == []
    shorter.load_state_dict(longer.state_dict())
    adams[1].load_state_dict(deepcopy(adams[0].state_dict()))
    for points, adam in zip((longer, shorter), adams, strict=True):
        a_step(points, adam)
    assert torch.equal(longer.place, shorter.place)
    assert shorter.get_buffer("seen").dtype == torch.int64


def test_nothing_but_the_first_dimension_is_changed_and_only_what_was_meant() -> None:
    points = Points(3, width=2)
    assert fit_lengths(points, Points(3, width=4).state_dict()) == []
    assert fit_lengths(points, Points(5).state_dict(), within="head.") == []
    assert fit_lengths(points, {"place": torch.zeros(5, 2), "scale": torch.zeros(1), "other": 1}) == ["place"]
    assert points.place.shape == (5, 2)
    assert points.scale.shape == ()


def test_a_state_that_is_averaged_over_a_dimension_fits() -> None:
    """Adafactor keeps one value per row and one per column."""
    points = [Points(3), Points(3), Points(5)]
    optimizers = [torch.optim.Adafactor(each.parameters()) for each in points]
    a_step(points[0], optimizers[0])
    saved = optimizers[0].state_dict()
    assert saved["state"][0]["row_var"].shape == (3, 1)
    assert optimizer_misfits("the optimizer", groups_of(optimizers[1]), saved) == []
    assert optimizer_misfits("the optimizer", groups_of(optimizers[2]), saved) == [
        "the optimizer: row_var of parameter 0 is (3, 1), but the parameter is (5, 2)"
    ]
