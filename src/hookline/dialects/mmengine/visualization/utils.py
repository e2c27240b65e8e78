"""Helpers for drawing: colors, checks, and pictures of figures. matplotlib is imported when something is drawn."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from torch import Tensor

from hookline.writers.extras import require_libraries


def import_matplotlib() -> Any:
    """Return matplotlib; if it is missing, raise an error that names the extra."""
    require_libraries("drawing", "mmengine", "matplotlib")
    import matplotlib

    return matplotlib


def tensor2ndarray(value: Any) -> Any:
    """Return a tensor as an array, and anything else unchanged."""
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def value2list(value: Any, valid_type: Any, expand_dim: int) -> Any:
    """Return a single value of a type as a list that repeats it, and anything else unchanged."""
    return [value] * expand_dim if isinstance(value, valid_type) else value


def check_type(name: str, value: Any, valid_type: Any) -> None:
    """Refuse a value of another type."""
    if not isinstance(value, valid_type):
        raise TypeError(f"{name} must be of the type {valid_type}, not {type(value).__name__}")


def check_length(name: str, value: Any, valid_length: int) -> None:
    """Refuse a list that is too short."""
    assert not isinstance(value, list) or len(value) >= valid_length, (
        f"{name} must have at least {valid_length} entries, not {len(value)}"
    )


def check_type_and_length(name: str, value: Any, valid_type: Any, valid_length: int) -> None:
    """Refuse a value of another type, and a list that is too short."""
    check_type(name, value, valid_type)
    check_length(name, value, valid_length)


def check_color(color: tuple[int, ...]) -> None:
    """Refuse a color that is not red, green and blue from 0 to 255."""
    valid = len(color) == 3 and all(0 <= part <= 255 for part in color)
    assert valid, f"a color has red, green and blue between 0 and 255, not {color}"


def color_val_matplotlib(colors: Any) -> Any:
    """Return colors as matplotlib takes them: names unchanged, red, green and blue from 0 to 255 as fractions.

    >>> color_val_matplotlib(["g", (255, 0, 51)])
    ['g', (1.0, 0.0, 0.2)]
    """
    if isinstance(colors, str):
        return colors
    if isinstance(colors, list):
        return [color_val_matplotlib(color) for color in colors]
    if not isinstance(colors, tuple):
        raise TypeError(f"a color must be a name or a tuple of red, green and blue, not a {type(colors).__name__}")
    check_color(colors)
    return tuple(part / 255 for part in colors)


def color_str2rgb(color: str) -> tuple[int, ...]:
    """Return red, green and blue, from 0 to 255, of a color that matplotlib knows."""
    import_matplotlib()
    from matplotlib import colors

    return tuple(int(part * 255) for part in colors.to_rgb(color))


def convert_overlay_heatmap(feat_map: Any, img: Any = None, alpha: float = 0.5) -> Any:
    """Return a feature map as a picture in false colors; over an image, if there is one."""
    matplotlib = import_matplotlib()
    values = np.asarray(tensor2ndarray(feat_map), dtype=np.float64)
    assert values.ndim == 2 or (values.ndim == 3 and values.shape[0] in (1, 3)), (
        f"a feature map must have the shape (H, W), (1, H, W) or (3, H, W), not {values.shape}"
    )
    span = values.max() - values.min()
    scaled = (values - values.min()) / span if span else np.zeros_like(values)
    colors = matplotlib.colormaps["jet"]
    if values.ndim == 3 and values.shape[0] == 3:  # each channel in its own color
        heat = np.stack([colors(part)[..., channel] for channel, part in enumerate(scaled)], axis=-1)
    else:
        heat = colors(scaled.reshape(values.shape[-2:]))[..., :3]
    picture = (heat * 255).round().astype(np.uint8)
    if img is None:
        return picture
    return (img * (1 - alpha) + picture * alpha).round().astype(np.uint8)


def img_from_canvas(canvas: Any) -> Any:
    """Return the picture on a canvas of matplotlib, as an array (H, W, 3)."""
    buffer, (width, height) = canvas.print_to_buffer()
    return np.frombuffer(buffer, dtype=np.uint8).reshape(height, width, 4)[..., :3].copy()


def wait_continue(figure: Any, timeout: float = 0, continue_key: str = " ") -> int:
    """Show a figure until the key is pressed or the time is over (0), or the window is closed (1)."""
    import_matplotlib()
    from matplotlib import pyplot
    from matplotlib.backend_bases import CloseEvent

    if "inline" in pyplot.get_backend():
        return 0
    if figure.canvas.manager:
        figure.show()
    seen: list[Any] = []

    def notice(event: Any) -> None:
        if isinstance(event, CloseEvent) or getattr(event, "key", None) == continue_key:
            seen.append(event)
            figure.canvas.stop_event_loop()

    connected = [figure.canvas.mpl_connect(name, notice) for name in ("key_press_event", "close_event")]
    end = time.monotonic() + timeout if timeout else None
    try:
        while not seen and (end is None or time.monotonic() < end):
            figure.canvas.start_event_loop(timeout)
    finally:
        for each in connected:
            figure.canvas.mpl_disconnect(each)
    return int(any(isinstance(event, CloseEvent) for event in seen))
