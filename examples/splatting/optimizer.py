"""The optimizer, which takes part when points come and go, and the learning rates over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from model import PointCloud
from torch import Tensor, nn


class PointAdam(torch.optim.Adam):
    """Adam with a group a parameter, named as in `point_cloud.position`.

    Args:
        points: What to train.
        rates: The learning rate of each of its parameters.
    """

    def __init__(self, points: PointCloud, rates: dict[str, float]) -> None:
        groups = [
            {"params": [parameter], "name": f"point_cloud.{name}", "lr": rates[name], "first_lr": rates[name]}
            for name, parameter in points.named_parameters()
        ]
        super().__init__(groups, betas=(0.9, 0.99), eps=1e-15)

    def update_model(self, **_: Any) -> None:
        """One step, and no gradients afterwards."""
        self.step()
        self.zero_grad()

    def keep(self, points: PointCloud, kept: Tensor) -> None:
        """Only these points are left, with what was learnt about them."""
        self._change(points, lambda name, rows: rows[kept], lambda name, rows: rows[kept])

    def append(self, points: PointCloud, new: dict[str, Tensor]) -> None:
        """More points, about which nothing was learnt yet."""
        self._change(
            points,
            lambda name, rows: torch.cat([rows, new[name]]),
            lambda name, rows: torch.cat([rows, torch.zeros_like(new[name])]),
        )

    def _change(
        self,
        points: PointCloud,
        values: Callable[[str, Tensor], Tensor],
        moments: Callable[[str, Tensor], Tensor],
    ) -> None:
        for group in self.param_groups:
            name = group["name"].removeprefix("point_cloud.")
            old = group["params"][0]
            new = nn.Parameter(values(name, old.detach()))
            state = self.state.pop(old, {})
            for key in ("exp_avg", "exp_avg_sq"):
                if key in state:
                    state[key] = moments(name, state[key])
            self.state[new] = state
            group["params"] = [new]
            setattr(points, name, new)


class Decay:
    """Learning rates stay for the first part of the training, and then fall exponentially.

    They are a function of the step alone, so there is nothing to save.

    Args:
        steps: How long the training is.
        final: What is left of a rate in the end.
        hold: The part of the training before they fall.
    """

    def __init__(self, steps: int, final: float, hold: float = 0.3) -> None:
        self.steps, self.final, self.hold = steps, final, hold

    def step(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        """Set the rates of a step."""
        part = max(0.0, step / self.steps - self.hold) / (1 - self.hold)
        for group in optimizer.param_groups:
            group["lr"] = group["first_lr"] * self.final**part
