"""Conversion of images to what every writer can show: uint8 arrays of shape (H, W), (H, W, 3) or (H, W, 4).

    as_image(tensor)             one image
    as_grid(batch, columns=4)    several, side by side
    as_png(as_image(tensor))     as the bytes of a file

An image is a torch tensor on any device and of any float type, a numpy array, or a PIL image. It has the shape (H, W),
(H, W, C) or (C, H, W) with 1, 3 or 4 channels (gray, RGB, RGBA). If both ends of a shape could be the channels, as in
(3, 32, 3), they come first in a tensor and last in an array, as is usual in torch and numpy.

uint8 is shown unchanged, bool as black and white, and floats as 0..1. Floats outside 0..1, as in normalized data, are
stretched: the minimum of the image becomes 0 and the maximum 1. Alpha is not stretched, and an image of one constant
value is only clipped. NaN is black. Inf becomes the maximum or the minimum of the image.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hookline.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CHANNELS = (1, 3, 4)
#: The width in pixels of the border between and around the images of a grid; GRAY fills it and empty places.
BORDER = 2
GRAY = 128
# Resizing leaves floats slightly outside 0..1. Up to half a level of 255, they are clipped, not stretched.
SLACK = 0.5 / 255

EXPECTED = (
    "expected (H, W), (H, W, C) or (C, H, W) with 1, 3 or 4 channels, of uint8, bool or floats; for several images, "
    "(N, ...) of these, or a list"
)
# Conversions for PIL's modes. Modes not listed hold plain numbers and need no conversion.
MODES = {"1": "L", "LA": "RGBA", "P": "RGBA", "PA": "RGBA"}
MODES |= dict.fromkeys(("CMYK", "YCbCr", "LAB", "HSV"), "RGB")


def as_image(image: Any) -> NDArray[np.uint8]:
    """Return one image as a new array, or several (four dimensions) as a grid.

    >>> import numpy as np
    >>> as_image(np.array([[0.0, 0.5, 1.0]])).tolist()
    [[0, 128, 255]]
    """
    import numpy as np

    if getattr(image, "ndim", None) == 4:
        return as_grid(image)
    pixels = _as_bytes(_channels_last(_as_array(image), image), image)
    return np.array(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels, order="C")


def as_grid(images: Any, columns: int | None = None) -> NDArray[np.uint8]:
    """Arrange several images in a grid with a thin gray border; by default with about as many rows as columns.

    The images are given as (N, C, H, W), (N, H, W, C), (N, H, W), or as a list. Images in a list may differ in size and
    kind: each is placed at the upper left of its cell, and the grid has color, or alpha, if any of them has.
    """
    import numpy as np

    if getattr(images, "ndim", 4) not in (3, 4) or not isinstance(images, Iterable) or isinstance(images, (str, bytes)):
        raise _refusal(images)
    cells = [as_image(image) for image in images]
    if not cells:
        raise _refusal(images)
    columns = columns_of(len(cells)) if columns is None else columns
    depth = max(1 if cell.ndim == 2 else cell.shape[2] for cell in cells)
    height = max(cell.shape[0] for cell in cells) + BORDER
    width = max(cell.shape[1] for cell in cells) + BORDER
    rows = -(-len(cells) // columns)
    grid = np.full((rows * height + BORDER, columns * width + BORDER, depth), GRAY, np.uint8)
    grid[..., 3:] = 255
    for number, cell in enumerate(cells):
        top, left = number // columns * height + BORDER, number % columns * width + BORDER
        grid[top : top + cell.shape[0], left : left + cell.shape[1]] = _add_channels(cell, depth)
    return grid[..., 0] if depth == 1 else grid


def as_png(pixels: NDArray[np.uint8]) -> bytes:
    r"""Return the result of `as_image` or `as_grid` as the bytes of a PNG file.

    >>> import numpy as np
    >>> as_png(np.zeros((1, 1), np.uint8))[:8]
    b'\x89PNG\r\n\x1a\n'
    """
    import numpy as np

    height, width = pixels.shape[:2]
    colors = {1: 0, 3: 2, 4: 6}[pixels.size // (height * width)]
    rows = np.zeros((height, pixels.size // height + 1), np.uint8)  # every row begins with its filter type, 0 for none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, colors, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def columns_of(count: int) -> int:
    """Return the number of columns of a grid with this many images.

    >>> [columns_of(count) for count in (1, 2, 4, 5, 8, 9, 10)]
    [1, 2, 2, 3, 3, 3, 4]
    """
    return math.isqrt(count - 1) + 1


def _add_channels(cell: NDArray[np.uint8], depth: int) -> NDArray[np.uint8]:
    """Return the image with more channels: gray copied to all colors, and opaque alpha."""
    import numpy as np

    if cell.ndim == 2:
        cell = np.repeat(cell[..., None], min(depth, 3), axis=2)
    if cell.shape[2] < depth:
        cell = np.concatenate([cell, np.full((*cell.shape[:2], 1), 255, np.uint8)], axis=2)
    return cell


def _as_array(image: Any) -> NDArray[Any]:
    """Return the numbers of an image, on the CPU, with floats in double precision."""
    import numpy as np

    if hasattr(image, "detach"):
        tensor = image.detach().cpu()
        return (tensor.double() if tensor.is_floating_point() else tensor).numpy()  # type: ignore[no-any-return]  # a tensor
    if hasattr(image, "convert") and hasattr(image, "mode"):
        image = image.convert(MODES[image.mode]) if image.mode in MODES else image
    try:
        array = np.asarray(image)
    except Exception:  # an object that is not an image may raise anything
        raise _refusal(image) from None
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _channels_last(array: NDArray[Any], image: Any) -> NDArray[Any]:
    if array.size and array.ndim == 2:
        return array
    if not array.size or array.ndim != 3:
        raise _refusal(image)
    first, last = array.shape[0] in CHANNELS, array.shape[2] in CHANNELS
    if first and (hasattr(image, "detach") or not last):
        return array.transpose(1, 2, 0)
    if not last:
        raise _refusal(image)
    return array


def _as_bytes(array: NDArray[Any], image: Any) -> NDArray[np.uint8]:
    import numpy as np

    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype.kind != "f":
        raise _refusal(image)
    has_alpha = array.ndim == 3 and array.shape[2] == 4
    colors, alpha = (array[..., :3], array[..., 3:]) if has_alpha else (array, array[..., :0])
    scaled = np.concatenate([_stretch(colors), np.nan_to_num(alpha)], axis=-1)
    levels: NDArray[np.uint8] = np.floor(np.clip(scaled, 0, 1) * 255 + 0.5).astype(np.uint8)
    return levels


def _stretch(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Stretch the floats of one image to 0..1, unless they are already in that range."""
    import numpy as np

    finite = array[np.isfinite(array)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    array = np.nan_to_num(array, nan=min(low, 0.0), posinf=high, neginf=low)
    if (low >= -SLACK and high <= 1 + SLACK) or low == high:
        return array
    return (array - low) / (high - low)


def describe(image: Any) -> str:
    """Describe what was passed as an image, for messages: its class, shape and dtype.

    >>> import numpy as np
    >>> describe(np.zeros((2, 5, 7))), describe([1])
    ('ndarray of shape (2, 5, 7) and dtype float64', 'list')
    """
    kind = type(image).__name__
    shape, dtype = getattr(image, "shape", None), getattr(image, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:  # torch.Size is a tuple, too
        return f"{kind} of shape {tuple(shape)} and dtype {str(dtype).removeprefix('torch.')}"
    return f"{kind} of mode {image.mode}" if hasattr(image, "mode") and hasattr(image, "convert") else kind


def _refusal(image: Any) -> DataError:
    return DataError(f"{describe(image)} is not an image; {EXPECTED}")
