"""BaseModel: the losses and metrics of a model that renders images, without a point cloud, cameras and a renderer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hookline.dialects.pointrix.model import MODEL_REGISTRY
from hookline.dialects.pointrix.model.loss import l1_loss, psnr, ssim
from hookline.dialects.pointrix.utils.base import BaseModule

__all__ = ["MODEL_REGISTRY", "BaseModel"]


class BaseModel(BaseModule):
    """A model whose `forward` returns images as `rgb`. A subclass builds its parts in `setup` and defines `forward`.

    Pointrix's own point clouds, cameras and renderers need a GPU, so `setup` here only keeps the device.
    """

    @dataclass
    class Config:
        """The fields of the section."""

        camera_model: dict[str, Any] = field(default_factory=dict)
        point_cloud: dict[str, Any] = field(default_factory=dict)
        renderer: dict[str, Any] = field(default_factory=dict)
        lambda_ssim: float = 0.2

    def setup(self, datapipeline: Any = None, device: str = "cpu") -> None:
        """Keep the device. A subclass builds its parts here."""
        self.device = device

    def get_loss_dict(
        self, render_results: Mapping[str, Any], batch: Sequence[Any], step: Any = None
    ) -> dict[str, Any]:
        """Return the L1 loss and the SSIM loss of the rendered images, and their weighted sum as `loss`."""
        images = self._images(batch)
        l1, similarity = l1_loss(render_results["rgb"], images), 1.0 - ssim(render_results["rgb"], images)
        share = self.cfg.lambda_ssim
        return {"loss": (1.0 - share) * l1 + share * similarity, "L1_loss": l1, "ssim_loss": similarity}

    def get_optimizer_dict(
        self, loss_dict: Mapping[str, Any], render_results: Mapping[str, Any], white_bg: bool
    ) -> dict[str, Any]:
        """Return what the optimizer gets: the loss, and what the renderer knows about the points."""
        known = {name: render_results[name] for name in ("uv_points", "visibility", "radii") if name in render_results}
        return {"loss": loss_dict["loss"], **known, "white_bg": white_bg}

    @torch.no_grad()
    def get_metric_dict(self, render_results: Mapping[str, Any], batch: Sequence[Any]) -> dict[str, Any]:
        """Return the metrics of the rendered images, and the images."""
        images, rgb = self._images(batch).clamp(0.0, 1.0), render_results["rgb"].clamp(0.0, 1.0)
        metrics = {"L1_loss": l1_loss(rgb, images), "psnr": psnr(rgb, images).mean(), "ssims": ssim(rgb, images)}
        kept = {name: render_results[name] for name in ("depth",) if name in render_results}
        return {**metrics, "gt_images": images, "images": rgb, **kept}

    def get_state_dict(self) -> dict[str, Any]:
        """Return the state that a checkpoint contains."""
        return self.state_dict()

    def _images(self, batch: Sequence[Any]) -> Tensor:
        return torch.stack([item["image"] for item in batch]).to(self.device)
