"""The renderer: Gaussians to pixels, tile by tile, with a hand-written backward pass.

A picture is divided into tiles of 8 x 8 pixels. Every tile has a list of the Gaussians that are visible in it, front to
back. Lists are padded to the same length, so that all tiles form one tensor of shape (tiles, length, pixels).

The logarithm of a Gaussian is a polynomial in the pixel position, and all tiles have the same pixel positions relative
to their centers. Evaluating all Gaussians in all pixels is therefore one matrix product: (Gaussians, 6 coefficients) @
(6, pixels of a tile).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

TILE = 8
#: A Gaussian is invisible where it is weaker than this: half a level of an 8-bit channel.
INVISIBLE = 0.5 / 255
#: The lowest logarithm of an alpha. Much lower values become subnormal float32 numbers, which take five times as long.
NOTHING = -16.0


class Blend(torch.autograd.Function):
    """Blends layers of color, with the first layer in front.

    The weight of a layer is its alpha times the light that all layers in front of it let through. The backward pass of
    torch's own operations would store and read four times as much memory. Here it is a running sum of the light from
    behind each layer.
    """

    @staticmethod
    def forward(ctx: Any, log_alpha: Tensor, color: Tensor) -> Tensor:
        """Blend (tiles, layers, pixels) and (tiles, layers, 3) into (tiles, 3, pixels)."""
        alpha = log_alpha.clamp(min=NOTHING).exp_()
        clear = 1 - alpha
        weight = alpha.clone()
        weight[:, 1:] *= clear.cumprod(1)[:, :-1]
        blended = color.mT @ weight
        ctx.save_for_backward(alpha, clear, weight, color, blended)
        return blended

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients: a larger alpha shows more of the layer's own color and less of everything behind it."""
        alpha, clear, weight, color, blended = ctx.saved_tensors
        (grad,) = grads
        own = (color @ grad).mul_(weight)
        behind = own.cumsum(1).neg_().add_((blended * grad).sum(1, keepdim=True))
        return own.addcdiv_(behind.mul_(alpha), clear, value=-1), weight @ grad.mT


class Renderer:
    """Renders pictures of one size.

    Args:
        height: Of the picture, in pixels.
        width: Of the picture, in pixels.
    """

    def __init__(self, height: int, width: int) -> None:
        self.height, self.width = height, width
        self.rows, self.columns = -(-height // TILE), -(-width // TILE)
        self._x = (torch.arange(self.columns) + 0.5) * TILE
        self._y = (torch.arange(self.rows) + 0.5) * TILE
        self._centers = torch.cartesian_prod(self._y, self._x).flip(1)
        v, u = torch.cartesian_prod(*[torch.arange(TILE) + 0.5 - TILE / 2] * 2).T
        self._polynomial = torch.stack([torch.ones_like(u), u, v, u * u, u * v, v * v])

    def update_sh_degree(self, step: int) -> None:
        """Do nothing: colors do not depend on the viewing direction here."""

    def render_batch(self, points: dict[str, Tensor], batch: dict[str, Any]) -> dict[str, Tensor]:
        """Return the picture as `rgb`: (3, height, width). Later points are painted over earlier ones."""
        cos, sin = points["rotation"].cos(), points["rotation"].sin()
        axes, log_opacity = points["scale"], points["opacity"].log()
        shape = _quadratic(cos, sin, axes**-2)
        with torch.no_grad():
            lists = self._lists(points["position"], _quadratic(cos, sin, axes**2), log_opacity)
        tiles, length = lists.shape
        table = torch.cat([points["position"], torch.stack([*shape, log_opacity], 1), points["color"]], 1)
        padding = table.new_tensor([[0, 0, 0, 0, 0, NOTHING, 0, 0, 0]])
        listed = torch.cat([table, padding]).index_select(0, lists.flatten())
        log_alpha = self._coefficients(listed, length) @ self._polynomial
        layers = log_alpha.view(tiles, length, -1), listed[:, 6:].reshape(tiles, length, 3)
        blended = Blend.apply(*layers)  # type: ignore[no-untyped-call]  # torch does not type it
        return {"rgb": self._assembled(blended)}

    def _lists(self, position: Tensor, covariance: tuple[Tensor, Tensor, Tensor], log_opacity: Tensor) -> Tensor:
        """Return the indices of every tile's Gaussians, front to back, padded with an index past the last Gaussian."""
        reach = (2 * (log_opacity - math.log(INVISIBLE))).clamp(min=0).sqrt()
        xx, _, yy = covariance
        across = (position[:, 0] - self._x[:, None]).abs() < reach * xx.sqrt() + TILE / 2
        down = (position[:, 1] - self._y[:, None]).abs() < reach * yy.sqrt() + TILE / 2
        seen = (down[:, None] & across).flatten(0, 1).flip(1)
        tile, backwards = seen.nonzero(as_tuple=True)
        counts = seen.sum(1)
        place = torch.arange(len(tile)) - (counts.cumsum(0) - counts)[tile]
        lists = torch.full((len(seen), max(int(counts.max()), 1)), len(position))
        lists[tile, place] = len(position) - 1 - backwards
        return lists

    def _coefficients(self, listed: Tensor, length: int) -> Tensor:
        """Return the coefficients of log(opacity) - (p - position) · shape · (p - position) / 2.

        The pixel position p is relative to the center of the tile.
        """
        x, y = (listed[:, :2] - self._centers.repeat_interleave(length, 0)).unbind(1)
        xx, xy, yy, log_opacity = listed[:, 2:6].unbind(1)
        along_x, along_y = xx * x + xy * y, xy * x + yy * y
        constant = log_opacity - (along_x * x + along_y * y) / 2
        return torch.stack([constant, along_x, along_y, -xx / 2, -xy, -yy / 2], 1)

    def _assembled(self, tiles: Tensor) -> Tensor:
        """Return the tiles as one picture."""
        picture = tiles.view(self.rows, self.columns, 3, TILE, TILE).permute(2, 0, 3, 1, 4)
        return picture.reshape(3, self.rows * TILE, self.columns * TILE)[:, : self.height, : self.width]


def _quadratic(cos: Tensor, sin: Tensor, axes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the entries xx, xy, yy of the symmetric matrix with these eigenvalues along rotated axes."""
    first, second = axes.unbind(1)
    return cos**2 * first + sin**2 * second, cos * sin * (first - second), sin**2 * first + cos**2 * second
