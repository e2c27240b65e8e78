"""The model: a cloud of 2D Gaussians, its input for the renderer, the loss and the metrics."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


class PointCloud(nn.Module):
    """The Gaussians: one row per Gaussian in each of five unconstrained parameters.

    position  x and y in pixels
    scaling   logarithm of the standard deviations along both axes
    rotation  rotation of the axes in radians
    color    red, green and blue, before a sigmoid
    opacity   opacity before a sigmoid
    """

    position: nn.Parameter
    scaling: nn.Parameter
    rotation: nn.Parameter
    color: nn.Parameter
    opacity: nn.Parameter

    def __init__(self, rows: dict[str, Tensor]) -> None:
        super().__init__()
        for name, values in rows.items():
            self.register_parameter(name, nn.Parameter(values))

    def __len__(self) -> int:
        return len(self.position)


def points_at(where: Tensor, photograph: Tensor, scale: float) -> dict[str, Tensor]:
    """Return new Gaussians at these (x, y): round, half transparent, and with the color of the photograph there."""
    x, y = where.long().unbind(1)
    color = photograph[:, y, x].mT.clamp(0.02, 0.98)
    return {
        "position": where.clone(),
        "scaling": torch.full((len(where), 2), math.log(scale)),
        "rotation": torch.rand(len(where)) * math.pi,
        "color": color.logit(),
        "opacity": torch.zeros(len(where)),
    }


class Splats(nn.Module):
    """A picture that consists of Gaussians.

    Args:
        photograph: The target picture: (3, height, width), from 0 to 1.
        points: The initial number of Gaussians, which are placed at random.
    """

    def __init__(self, photograph: Tensor, points: int) -> None:
        super().__init__()
        _, height, width = photograph.shape
        where = torch.rand(points, 2) * torch.tensor([width, height])
        self.point_cloud = PointCloud(points_at(where, photograph, scale=0.6 * math.sqrt(height * width / points)))

    def forward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        """Return the input of the renderer: the parameters converted to their actual values."""
        points = self.point_cloud
        return {
            "position": points.position,
            "scale": points.scaling.clamp(-0.7, 5.0).exp(),  # thinner than half a pixel would miss all pixels
            "rotation": points.rotation,
            "color": points.color.sigmoid(),
            "opacity": 0.99 * points.opacity.sigmoid(),  # never fully opaque, so that Gaussians behind still learn
        }

    def get_loss_dict(self, rendered: dict[str, Tensor], batch: dict[str, Any]) -> dict[str, Tensor]:
        """Return the squared error, which is what PSNR measures."""
        return {"loss": (rendered["rgb"] - batch["image"]).square().mean()}

    def get_metric_dict(self, rendered: dict[str, Tensor], batch: dict[str, Any]) -> dict[str, Any]:
        """Return the error of the rendering and both pictures; LogHook writes all of it."""
        image, truth = rendered["rgb"].clamp(0, 1), batch["image"]
        return {
            "L1_loss": (image - truth).abs().mean(),
            "psnr": -10 * (image - truth).square().mean().log10(),
            "images": image,
            "gt_images": truth,
            "rgb_file_name": batch["name"],
        }
