"""Two hooks that remove and add Gaussians at `refine_points`, a custom point that this example's trainer calls."""

from __future__ import annotations

import math
from typing import Any

import torch
from model import points_at
from torch import Tensor, nn

from hookline.dialects.pointrix.hook import HOOK_REGISTRY, Hook


@HOOK_REGISTRY.register()
class PruneHook(Hook):
    """Removes Gaussians that cost more time than they are worth.

    Args:
        min_opacity: Remove Gaussians with a lower opacity.
        max_scale: Remove Gaussians with a larger standard deviation, in pixels.
    """

    def __init__(self, min_opacity: float = 0.2, max_scale: float = 32.0) -> None:
        self.min_opacity = min_opacity
        self.max_scale = max_scale

    @torch.no_grad()
    def refine_points(self, trainer: Any) -> None:
        """Remove faint and huge Gaussians."""
        points = trainer.model.point_cloud
        kept = (points.opacity.sigmoid() >= self.min_opacity) & (points.scaling.amax(1) <= math.log(self.max_scale))
        change_points(trainer, kept, {name: rows[:0] for name, rows in points.named_parameters()})


@HOOK_REGISTRY.register()
class GrowHook(Hook):
    """Adds Gaussians at random pixels, each with a probability proportional to its squared error.

    The number of Gaussians that can still be added is divided evenly among the remaining calls.

    Args:
        max_points: The maximum number of Gaussians.
        scale: The size of new Gaussians: a standard deviation in pixels.
    """

    def __init__(self, max_points: int, scale: float = 1.0) -> None:
        self.max_points = max_points
        self.scale = scale

    @torch.no_grad()
    def refine_points(self, trainer: Any, rendered: Tensor, photograph: Tensor, calls_left: int) -> None:
        """Add this call's share of new Gaussians."""
        points = trainer.model.point_cloud
        error = (rendered - photograph).square().sum(0)
        share = min(math.ceil((self.max_points - len(points)) / calls_left), error.numel())
        if share <= 0:
            return
        pixels = torch.multinomial(error.flatten(), share)
        where = torch.stack([pixels % error.shape[1], pixels // error.shape[1]], 1) + 0.5
        keep_all = torch.ones(len(points), dtype=torch.bool)
        change_points(trainer, keep_all, points_at(where, photograph, self.scale))


def change_points(trainer: Any, kept: Tensor, new: dict[str, Tensor]) -> None:
    """Keep some of the points with their Adam state, and append new points with an empty Adam state."""
    points, adam = trainer.model.point_cloud, trainer.optimizer.optimizer
    for group in adam.param_groups:
        name = group["name"].removeprefix("point_cloud.")
        old = group["params"].pop()
        state = adam.state.pop(old)
        for moment in ("exp_avg", "exp_avg_sq"):
            state[moment] = torch.cat([state[moment][kept], torch.zeros_like(new[name])])
        parameter = nn.Parameter(torch.cat([old.detach()[kept], new[name]]))
        group["params"].append(parameter)
        adam.state[parameter] = state
        setattr(points, name, parameter)
