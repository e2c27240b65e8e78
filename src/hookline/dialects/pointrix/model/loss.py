"""Losses and metrics of images: L1, L2, PSNR and SSIM. Images have the shape (..., channels, height, width)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from hookline.errors import ConfigError

# The constants of SSIM for images in [0, 1], which keep its denominators away from 0.
MEANS, VARIANCES = 0.01**2, 0.03**2


def l1_loss(pred: Tensor, gt: Tensor, return_mean: bool = True) -> Tensor:
    """Return the absolute difference of two tensors of one shape, as a mean or by element."""
    _refuse_shapes(pred, gt)
    difference = (pred - gt).abs()
    return difference.mean() if return_mean else difference


def l2_loss(pred: Tensor, gt: Tensor, return_mean: bool = True) -> Tensor:
    """Return the squared difference of two tensors of one shape, as a mean or by element."""
    _refuse_shapes(pred, gt)
    difference = (pred - gt).square()
    return difference.mean() if return_mean else difference


def psnr(img_pred: Tensor, img_gt: Tensor) -> Tensor:
    """Return the peak signal-to-noise ratio in decibels, one per entry of the first dimension."""
    errors = l2_loss(img_pred, img_gt, return_mean=False).flatten(1).mean(1, keepdim=True)
    return -10 * torch.log10(errors)


def ssim(img1: Tensor, img2: Tensor, window_size: int = 11, size_average: bool = True) -> Tensor:
    """Return the structural similarity of images (batch, channels, height, width), as a mean or by image."""
    _refuse_shapes(img1, img2)
    channels = img1.size(-3)
    at = torch.arange(window_size, dtype=img1.dtype, device=img1.device) - window_size // 2
    line = torch.exp(-(at**2) / (2 * 1.5**2))
    line = line / line.sum()
    window = torch.outer(line, line).expand(channels, 1, window_size, window_size)

    def blur(image: Tensor) -> Tensor:
        return functional.conv2d(image, window, padding=window_size // 2, groups=channels)

    mean1, mean2 = blur(img1), blur(img2)
    variance1, variance2 = blur(img1 * img1) - mean1**2, blur(img2 * img2) - mean2**2
    covariance = blur(img1 * img2) - mean1 * mean2
    above = (2 * mean1 * mean2 + MEANS) * (2 * covariance + VARIANCES)
    similarity = above / ((mean1**2 + mean2**2 + MEANS) * (variance1 + variance2 + VARIANCES))
    return similarity.mean() if size_average else similarity.flatten(1).mean(1)


def _refuse_shapes(one: Tensor, other: Tensor) -> None:
    if one.shape != other.shape:
        raise ConfigError(f"two images must have one shape, not {tuple(one.shape)} and {tuple(other.shape)}")
