"""Hooks of this example: two at a point of its own, where Gaussians go and come, and one that keeps pictures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from model import points_at
from torch import Tensor

from hookline.dialects.pointrix.hook import HOOK_REGISTRY, Hook
from hookline.images import as_grid, as_png


@HOOK_REGISTRY.register()
class PruneHook(Hook):
    """Removes Gaussians that are not worth their time.

    Args:
        min_opacity: Fainter ones go.
        max_scale: Larger ones go; a standard deviation in pixels.
    """

    def __init__(self, min_opacity: float = 0.01, max_scale: float = 64.0) -> None:
        self.min_opacity = min_opacity
        self.max_scale = max_scale

    @torch.no_grad()
    def refine_points(self, trainer: Any) -> None:
        """Keep the others."""
        points = trainer.model.point_cloud
        kept = (points.opacity.sigmoid() >= self.min_opacity) & (points.scaling.amax(1) <= math.log(self.max_scale))
        if not kept.all():
            trainer.optimizer.keep(points, kept)


@HOOK_REGISTRY.register()
class GrowHook(Hook):
    """Adds Gaussians where the picture is wrong: drawn at random, a pixel as likely as its squared error.

    The room that is left is shared out evenly over the calls that are still to come.

    Args:
        max_points: The most that there may be.
        scale: How large new ones are; a standard deviation in pixels.
    """

    def __init__(self, max_points: int, scale: float = 1.5) -> None:
        self.max_points = max_points
        self.scale = scale

    @torch.no_grad()
    def refine_points(self, trainer: Any, rendered: Tensor, photograph: Tensor, calls_left: int) -> None:
        """Add this call's share."""
        points = trainer.model.point_cloud
        share = math.ceil((self.max_points - len(points)) / calls_left)
        if share <= 0:
            return
        error = (rendered - photograph).square().sum(0)
        pixels = torch.multinomial(error.flatten(), share)
        where = torch.stack([pixels % error.shape[1], pixels // error.shape[1]], 1) + 0.5
        trainer.optimizer.append(points, points_at(where, photograph, self.scale))


@HOOK_REGISTRY.register()
class PictureHook(Hook):
    """Keeps the photograph and its rendering side by side, after every validation: `progress/00100.png`.

    Args:
        zoom: How many pixels wide and high a pixel is.
    """

    def __init__(self, zoom: int = 3) -> None:
        self.zoom = zoom

    def before_train(self, trainer: Any) -> None:
        """Pictures of steps that are still to come are of another run."""
        for path in self._folder(trainer).glob("*.png"):
            if int(path.stem) >= trainer.start_steps:
                path.unlink()

    def after_val_iter(self, trainer: Any) -> None:
        """One more picture."""
        pair = [trainer.metric_dict[name] for name in ("gt_images", "images")]
        large = [each.repeat_interleave(self.zoom, 1).repeat_interleave(self.zoom, 2) for each in pair]
        path = self._folder(trainer) / f"{trainer.iter:05d}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(as_png(as_grid(large, columns=2)))

    def _folder(self, trainer: Any) -> Path:
        return Path(trainer.exp_dir) / "progress"
