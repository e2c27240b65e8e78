"""Turn arrays and tensors into images."""

from hookline.record.images import as_grid, as_image, as_png

__all__ = ["as_grid", "as_image", "as_png"]
