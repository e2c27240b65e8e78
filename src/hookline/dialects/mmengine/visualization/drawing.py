"""Drawing on an image: points, texts, lines, circles, boxes, polygons, masks and feature maps.

The figure of matplotlib is created when something is first drawn. Until then, an image is just an array.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from hookline.common.forwarding import forwarded
from hookline.dialects.mmengine.visualization import utils
from hookline.record.images import as_image

ARRAYS = (np.ndarray, Tensor)


class Canvas:
    """An image to draw on."""

    def __init__(self, fig_save_cfg: Mapping[str, Any] | None = None) -> None:
        self._image: Any = None
        self._figure: Any = None
        self.fig_save_cfg = {"frameon": False} if fig_save_cfg is None else dict(fig_save_cfg)
        self.width = self.height = 0
        self._default_font_size = 10.0

    def set_image(self, image: Any) -> None:
        """Set the image to draw on. The floats of an array may be from 0 to 255, or from 0 to 1."""
        if isinstance(image, np.ndarray) and image.dtype.kind == "f" and image.max() > 1 and image.min() >= 0:
            image = image.astype(np.uint8)
        self._image, self._figure = as_image(image), None
        self.height, self.width = self._image.shape[:2]
        self._default_font_size = max(np.sqrt(self.height * self.width) // 90, 10)

    def get_image(self) -> Any:
        """Return the image, with everything that was drawn on it."""
        assert self._image is not None, "there is no image yet; call set_image first"
        return self._image if self._figure is None else utils.img_from_canvas(self.fig_save_canvas)

    @property
    def fig_save(self) -> Any:
        """Return the figure of matplotlib, with the image on it."""
        if self._figure is None:
            utils.import_matplotlib()
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure

            self._figure = Figure(**self.fig_save_cfg)
            FigureCanvasAgg(self._figure)
            self._figure.subplots_adjust(left=0, right=1, bottom=0, top=1)
            self._figure.add_subplot().axis("off")
            if self._image is not None:
                dpi = self._figure.get_dpi()
                self._figure.set_size_inches((self.width + 1e-2) / dpi, (self.height + 1e-2) / dpi)
                self._lay(self._image, "none")
        return self._figure

    @property
    def ax_save(self) -> Any:
        """Return the axes of the figure."""
        return self.fig_save.axes[0]

    fig_save_canvas: Any = forwarded("fig_save.canvas", "Return the canvas of the figure.")

    @property
    def dpi(self) -> float:
        """Return the dots per inch of the figure."""
        return float(self.fig_save.get_dpi())

    def _lay(self, image: Any, interpolation: str) -> None:
        extent = (0, self.width, self.height, 0)
        self.ax_save.imshow(_in_color(image), extent=extent, interpolation=interpolation)

    def _warn_outside(self, what: str, positions: Any) -> None:
        inside = (positions >= 0).all() and (positions < (self.width, self.height)).all()
        if not inside:
            warnings.warn(f"a {what} is outside the image, and may not be visible", stacklevel=3)

    # -- shapes

    def draw_points(self, positions: Any, colors: Any = "g", marker: str | None = None, sizes: Any = None) -> Self:
        """Draw points (N, 2)."""
        at = _rows("positions", positions, 2)
        colors = utils.color_val_matplotlib(colors)
        self.ax_save.scatter(at[:, 0], at[:, 1], c=colors, s=utils.tensor2ndarray(sizes), marker=marker)
        return self

    def draw_texts(
        self,
        texts: str | list[str],
        positions: Any,
        font_sizes: Any = None,
        colors: Any = "g",
        vertical_alignments: Any = "top",
        horizontal_alignments: Any = "left",
        font_families: Any = "sans-serif",
        bboxes: Any = None,
        font_properties: Any = None,
    ) -> Self:
        """Draw texts at positions (N, 2). All other arguments are one value, or a list with a value per text."""
        utils.check_type("texts", texts, (str, list))
        several = [texts] if isinstance(texts, str) else texts
        at = _rows("positions", positions, 2)
        assert len(at) == len(several), f"there are {len(several)} texts, but {len(at)} positions"
        self._warn_outside("text", at)
        options = {
            "size": (self._default_font_size if font_sizes is None else font_sizes, (int, float)),
            "color": (utils.color_val_matplotlib(colors), (str, tuple)),
            "verticalalignment": (vertical_alignments, str),
            "horizontalalignment": (horizontal_alignments, str),
            "family": (font_families, str),
            "bbox": (bboxes, (dict, type(None))),
            "fontproperties": (font_properties, object if not isinstance(font_properties, list) else ()),
        }
        for name, (value, kind) in options.items():
            utils.check_length(name, value, len(several))
            options[name] = (utils.value2list(value, kind, len(several)), kind)
        for number, text in enumerate(several):
            own: dict[str, Any] = {name: value[number] for name, (value, _) in options.items()}
            self.ax_save.text(float(at[number, 0]), float(at[number, 1]), text, **own)
        return self

    def draw_lines(
        self, x_datas: Any, y_datas: Any, colors: Any = "g", line_styles: Any = "-", line_widths: Any = 2
    ) -> Self:
        """Draw lines; each row of x_datas and y_datas has the two ends of a line."""
        utils.import_matplotlib()
        from matplotlib.collections import LineCollection

        x, y = _rows("x_datas", x_datas, 2), _rows("y_datas", y_datas, 2)
        assert x.shape == y.shape, f"x_datas and y_datas must have the same shape, not {x.shape} and {y.shape}"
        lines = np.stack((x, y), axis=-1)
        self._warn_outside("line", lines)
        colors = utils.color_val_matplotlib(colors)
        self.ax_save.add_collection(
            LineCollection(lines.tolist(), colors=colors, linestyles=line_styles, linewidths=line_widths)
        )
        return self

    def draw_circles(
        self,
        center: Any,
        radius: Any,
        edge_colors: Any = "g",
        line_styles: Any = "-",
        line_widths: Any = 2,
        face_colors: Any = "none",
        alpha: float = 0.8,
    ) -> Self:
        """Draw circles around centers (N, 2)."""
        utils.import_matplotlib()
        from matplotlib.collections import PatchCollection
        from matplotlib.patches import Circle

        at, radii = _rows("center", center, 2), np.atleast_1d(utils.tensor2ndarray(radius))
        assert len(at) == len(radii), f"there are {len(at)} centers, but {len(radii)} radii"
        self._warn_outside("circle", np.concatenate((at - radii[:, None], at + radii[:, None])))
        circles = [Circle((float(x), float(y)), float(r)) for (x, y), r in zip(at, radii, strict=True)]
        self.ax_save.add_collection(
            PatchCollection(
                circles,
                alpha=alpha,
                facecolors=utils.color_val_matplotlib(face_colors),
                edgecolors=utils.color_val_matplotlib(edge_colors),
                linewidths=self._widths(line_widths, len(circles)),
                linestyles=line_styles,
            )
        )
        return self

    def draw_bboxes(
        self,
        bboxes: Any,
        edge_colors: Any = "g",
        line_styles: Any = "-",
        line_widths: Any = 2,
        face_colors: Any = "none",
        alpha: float = 0.8,
    ) -> Self:
        """Draw boxes (N, 4): the left, upper, right and lower edge of each."""
        boxes = _rows("bboxes", bboxes, 4)
        assert (boxes[:, :2] <= boxes[:, 2:]).all(), "the left and upper edges of a box come first"
        corners = boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
        return self.draw_polygons(list(corners), edge_colors, line_styles, line_widths, face_colors, alpha)

    def draw_polygons(
        self,
        polygons: Any,
        edge_colors: Any = "g",
        line_styles: Any = "-",
        line_widths: Any = 2,
        face_colors: Any = "none",
        alpha: float = 0.8,
    ) -> Self:
        """Draw polygons; each has the shape (M, 2)."""
        utils.import_matplotlib()
        from matplotlib.collections import PolyCollection

        utils.check_type("polygons", polygons, (list, *ARRAYS))
        given = polygons if isinstance(polygons, list) else [polygons]
        shapes = [_rows("a polygon", each, 2) for each in given]
        for shape in shapes:
            self._warn_outside("polygon", shape)
        self.ax_save.add_collection(
            PolyCollection(
                shapes,
                alpha=alpha,
                facecolor=utils.color_val_matplotlib(face_colors),
                edgecolors=utils.color_val_matplotlib(edge_colors),
                linewidths=self._widths(line_widths, len(shapes)),
                linestyles=line_styles,
            )
        )
        return self

    def _widths(self, given: Any, count: int) -> list[float]:
        several = utils.value2list(given, (int, float), count)
        return [min(max(width, 1), self._default_font_size / 4) for width in several]

    def draw_binary_masks(self, binary_masks: Any, colors: Any = "g", alphas: Any = 0.8) -> Self:
        """Color the pixels of boolean masks (N, H, W) or (H, W)."""
        utils.check_type("binary_masks", binary_masks, ARRAYS)
        masks = utils.tensor2ndarray(binary_masks)
        assert masks.dtype == np.bool_, f"binary_masks must be boolean, not {masks.dtype}"
        masks = masks[None] if masks.ndim == 2 else masks
        image = _in_color(self.get_image()).astype(np.float64)
        assert image.shape[:2] == masks.shape[1:], (
            f"the masks must have the size of the image, {image.shape[:2]}, not {masks.shape[1:]}"
        )
        utils.check_type_and_length("colors", colors, (str, tuple, list), len(masks))
        several = utils.value2list(colors, (str, tuple), len(masks))
        opacities = utils.value2list(alphas, (int, float), len(masks))
        for mask, color, alpha in zip(masks, several, opacities, strict=False):
            rgb = utils.color_str2rgb(color) if isinstance(color, str) else color
            utils.check_color(rgb)
            image[mask] = image[mask] * (1 - alpha) + np.array(rgb) * alpha
        self._lay(image.round().astype(np.uint8), "nearest")
        return self

    @staticmethod
    def draw_featmap(
        featmap: Tensor,
        overlaid_image: Any = None,
        channel_reduction: str | None = "squeeze_mean",
        topk: int = 20,
        arrangement: tuple[int, int] = (4, 5),
        resize_shape: tuple[int, int] | None = None,
        alpha: float = 0.5,
    ) -> Any:
        """Return a picture of a feature map (C, H, W): its mean, its strongest channel, or its `topk` channels."""
        utils.check_type("featmap", featmap, Tensor)
        assert featmap.ndim == 3, f"a feature map must have the shape (C, H, W), not {tuple(featmap.shape)}"
        assert channel_reduction in (None, "squeeze_mean", "select_max"), (
            f"channel_reduction must be 'squeeze_mean', 'select_max' or None, not {channel_reduction!r}"
        )
        image = None if overlaid_image is None else as_image(overlaid_image)
        size = resize_shape if resize_shape is not None or image is None else image.shape[:2]
        values = featmap.detach().cpu().float()
        if size is not None and tuple(size) != tuple(values.shape[1:]):
            values = interpolate(values[None], tuple(size), mode="bilinear", align_corners=False)[0]
        if image is not None and image.shape[:2] != tuple(values.shape[1:]):
            resized = interpolate(torch.tensor(image).permute(2, 0, 1)[None].float(), tuple(values.shape[1:]))
            image = resized[0].permute(1, 2, 0).numpy().astype(np.uint8)
        if channel_reduction == "squeeze_mean":
            return utils.convert_overlay_heatmap(values.mean(0), image, alpha)
        if channel_reduction == "select_max":
            return utils.convert_overlay_heatmap(values[values.sum((1, 2)).argmax()], image, alpha)
        if topk <= 0:
            assert values.shape[0] in (1, 3), f"with topk below 1, a map needs 1 or 3 channels, not {values.shape[0]}"
            return utils.convert_overlay_heatmap(values, image, alpha)
        return _grid(values, image, topk, arrangement, alpha)


def _grid(values: Tensor, image: Any, topk: int, arrangement: tuple[int, int], alpha: float) -> Any:
    """Return the strongest channels of a feature map side by side."""
    rows, columns = arrangement
    assert rows * columns >= topk, f"an arrangement of {rows} x {columns} has no room for {topk} channels"
    height, width = values.shape[1:]
    strongest = torch.topk(values.sum((1, 2)), min(topk, len(values))).indices.tolist()
    picture = np.zeros((rows * height, columns * width, 3), np.uint8)
    for place, channel in enumerate(strongest):
        y, x = divmod(place, columns)
        part = utils.convert_overlay_heatmap(values[channel], image, alpha)
        picture[y * height : (y + 1) * height, x * width : (x + 1) * width] = part
    return picture


def _in_color(image: Any) -> Any:
    return np.stack([image] * 3, axis=-1) if image.ndim == 2 else image


def _rows(name: str, given: Any, columns: int) -> Any:
    """Return an array or tensor as an array of rows with this many columns."""
    utils.check_type(name, given, ARRAYS)
    found = np.atleast_2d(utils.tensor2ndarray(given))
    assert found.shape[-1] == columns, f"{name} must have the shape (N, {columns}), not {found.shape}"
    return found
