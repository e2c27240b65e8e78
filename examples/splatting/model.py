"""The model: a cloud of 2D Gaussians, what it says to the renderer, and how good a rendering is."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


class PointCloud(nn.Module):
    """The Gaussians: a row each in five parameters, which are free to be any number.

    position  x and y in pixels
    scaling   the logarithm of the standard deviations along both axes
    rotation  of the axes, in radians
    colour    red, green and blue, before a sigmoid
    opacity   before a sigmoid
    """

    position: nn.Parameter
    scaling: nn.Parameter
    rotation: nn.Parameter
    colour: nn.Parameter
    opacity: nn.Parameter

    def __init__(self, rows: dict[str, Tensor]) -> None:
        super().__init__()
        for name, values in rows.items():
            self.register_parameter(name, nn.Parameter(values))

    def __len__(self) -> int:
        return len(self.position)


def points_at(where: Tensor, photograph: Tensor, scale: float) -> dict[str, Tensor]:
    """New Gaussians at these (x, y): round, half transparent, and as the photograph is there."""
    x, y = where.long().unbind(1)
    colour = photograph[:, y, x].mT.clamp(0.02, 0.98)
    return {
        "position": where.clone(),
        "scaling": torch.full((len(where), 2), math.log(scale)),
        "rotation": torch.rand(len(where)) * math.pi,
        "colour": colour.logit(),
        "opacity": torch.zeros(len(where)),
    }


class Splats(nn.Module):
    """A picture made of Gaussians.

    Args:
        photograph: What it is to look like: (3, height, width), from 0 to 1.
        points: How many Gaussians to begin with; they are strewn at random.
    """

    def __init__(self, photograph: Tensor, points: int) -> None:
        super().__init__()
        _, height, width = photograph.shape
        where = torch.rand(points, 2) * torch.tensor([width, height])
        self.point_cloud = PointCloud(points_at(where, photograph, scale=0.6 * math.sqrt(height * width / points)))

    def forward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        """What the renderer needs: the parameters as what they mean."""
        points = self.point_cloud
        return {
            "position": points.position,
            "scale": points.scaling.clamp(-0.7, 5.0).exp(),  # thinner than half a pixel would fall between pixels
            "rotation": points.rotation,
            "colour": points.colour.sigmoid(),
            "opacity": 0.99 * points.opacity.sigmoid(),  # something of what is behind is always seen, and can learn
        }

    def get_loss_dict(self, rendered: dict[str, Tensor], batch: dict[str, Any]) -> dict[str, Tensor]:
        """The squared error, which is what PSNR measures."""
        return {"loss": (rendered["rgb"] - batch["image"]).square().mean()}

    def get_metric_dict(self, rendered: dict[str, Tensor], batch: dict[str, Any]) -> dict[str, Any]:
        """How near the rendering is, and the two pictures; LogHook writes all of it."""
        image, truth = rendered["rgb"].clamp(0, 1), batch["image"]
        return {
            "L1_loss": (image - truth).abs().mean(),
            "psnr": -10 * (image - truth).square().mean().log10(),
            "images": image,
            "gt_images": truth,
            "rgb_file_name": batch["name"],
        }
