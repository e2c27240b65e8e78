"""Images of any common kind as what every writer can show: uint8 arrays of shape (H, W), (H, W, 3) or (H, W, 4).

    as_image(tensor)             one image
    as_grid(batch, columns=4)    several, side by side
    as_png(as_image(tensor))     as the bytes of a file

An image is a torch tensor of any device and float type, a numpy array, or one of PIL. It has the shape (H, W),
(H, W, C) or (C, H, W) with 1, 3 or 4 channels (gray, RGB, RGBA). Where both ends of a shape could be the channels, as
in (3, 32, 3), a tensor has them first and an array has them last, as torch and numpy do.

uint8 is shown as it is, bool as black and white, floats as 0..1. Floats outside of that, which normalised data has, are
stretched: the least of the image becomes 0 and the greatest 1, alpha left out; an image that is all one number is only
cut off. NaN is black; Inf is the greatest or the least of the image.
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
#: Pixels between the images of a grid and around them; they and empty places have this gray.
BORDER = 2
GRAY = 128
# Resizing leaves floats a little outside of 0..1: up to half a level of 255 they are cut off, not stretched.
SLACK = 0.5 / 255

EXPECTED = (
    "an image is (H, W), (H, W, C) or (C, H, W) with 1, 3 or 4 channels, of uint8, bool or floats; several are "
    "(N, ...) of these, or a list"
)
# What PIL's other modes become; those that are left out hold plain numbers, and are read as such.
MODES = {"1": "L", "LA": "RGBA", "P": "RGBA", "PA": "RGBA"}
MODES |= dict.fromkeys(("CMYK", "YCbCr", "LAB", "HSV"), "RGB")


def as_image(image: Any) -> NDArray[np.uint8]:
    """One image as a new array; several (four dimensions) as a grid of them.

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
    """Several images side by side, row after row, with a thin gray border; about as many rows as columns, unless told.

    Given as (N, C, H, W), (N, H, W, C), (N, H, W), or as a list of images, which need not be of one size or kind: they
    stand at the upper left of their places, and the grid has colours, or alpha, if any of them has.
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
        grid[top : top + cell.shape[0], left : left + cell.shape[1]] = _with_depth(cell, depth)
    return grid[..., 0] if depth == 1 else grid


def as_png(pixels: NDArray[np.uint8]) -> bytes:
    r"""What `as_image` and `as_grid` give, as a PNG file.

    >>> import numpy as np
    >>> as_png(np.zeros((1, 1), np.uint8))[:8]
    b'\x89PNG\r\n\x1a\n'
    """
    import numpy as np

    height, width = pixels.shape[:2]
    colours = {1: 0, 3: 2, 4: 6}[pixels.size // (height * width)]
    rows = np.zeros((height, pixels.size // height + 1), np.uint8)  # every row begins with its filter: none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, colours, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def columns_of(count: int) -> int:
    """How many columns a grid of so many images has.

    >>> [columns_of(count) for count in (1, 2, 4, 5, 8, 9, 10)]
    [1, 2, 2, 3, 3, 3, 4]
    """
    return math.isqrt(count - 1) + 1


def _with_depth(cell: NDArray[np.uint8], depth: int) -> NDArray[np.uint8]:
    """The same picture with more channels: gray in all colours, and no part of it transparent."""
    import numpy as np

    if cell.ndim == 2:
        cell = np.repeat(cell[..., None], min(depth, 3), axis=2)
    if cell.shape[2] < depth:
        cell = np.concatenate([cell, np.full((*cell.shape[:2], 1), 255, np.uint8)], axis=2)
    return cell


def _as_array(image: Any) -> NDArray[Any]:
    """The numbers of an image, on the CPU; floats in double precision."""
    import numpy as np

    if hasattr(image, "detach"):
        tensor = image.detach().cpu()
        return (tensor.double() if tensor.is_floating_point() else tensor).numpy()  # type: ignore[no-any-return]  # a tensor
    if hasattr(image, "convert") and hasattr(image, "mode"):
        image = image.convert(MODES[image.mode]) if image.mode in MODES else image
    try:
        found = np.asarray(image)
    except Exception:  # whatever an object that is no image says to this
        raise _refusal(image) from None
    return found.astype(np.float64) if found.dtype.kind == "f" else found


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
    colours, alpha = (array[..., :3], array[..., 3:]) if has_alpha else (array, array[..., :0])
    scaled = np.concatenate([_stretched(colours), np.nan_to_num(alpha)], axis=-1)
    levels: NDArray[np.uint8] = np.floor(np.clip(scaled, 0, 1) * 255 + 0.5).astype(np.uint8)
    return levels


def _stretched(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Floats of one image within 0..1: as they are, where they are there already."""
    import numpy as np

    finite = array[np.isfinite(array)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    array = np.nan_to_num(array, nan=min(low, 0.0), posinf=high, neginf=low)
    if (low >= -SLACK and high <= 1 + SLACK) or low == high:
        return array
    return (array - low) / (high - low)


def describe(image: Any) -> str:
    """What somebody gave for an image: its kind, shape and type, for messages.

    >>> import numpy as np
    >>> describe(np.zeros((2, 5, 7))), describe([1])
    ('ndarray of shape (2, 5, 7) and dtype float64', 'list')
    """
    kind = type(image).__name__
    shape, dtype = getattr(image, "shape", None), getattr(image, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:  # a torch.Size is a tuple, too
        return f"{kind} of shape {tuple(shape)} and dtype {str(dtype).removeprefix('torch.')}"
    return f"{kind} of mode {image.mode}" if hasattr(image, "mode") and hasattr(image, "convert") else kind


def _refusal(image: Any) -> DataError:
    return DataError(f"{describe(image)} is no image; {EXPECTED}")
