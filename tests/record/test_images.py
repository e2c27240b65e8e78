"""Images: the exact pixels for every kind of input, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hookline.errors import DataError
from hookline.record.images import as_grid, as_image, columns_of

RAMP = [[0, 51, 102, 153, 204], [255, 1, 2, 3, 254]]
COLOURS = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)


def pixels(image: Any) -> Any:
    found = as_image(image)
    assert found.dtype == np.uint8
    assert found.flags["C_CONTIGUOUS"]
    return found.tolist()


# ---------------------------------------------------------------------------------------------------- one image


@pytest.mark.parametrize("channels", [None, "first", "last"])
@pytest.mark.parametrize("kind", [torch.tensor, np.array])
def test_gray_images_of_every_shape_have_two_dimensions(kind: Any, channels: str | None) -> None:
    image = kind(RAMP) / 255
    if channels is not None:
        image = image[None] if channels == "first" else image[..., None]
    assert pixels(image) == RAMP


@pytest.mark.parametrize("depth", [3, 4])
def test_colours_are_last_wherever_they_were(depth: int) -> None:
    last = np.arange(2 * 5 * depth, dtype=np.uint8).reshape(2, 5, depth)
    first = last.transpose(2, 0, 1).copy()
    for image in (last, first, torch.from_numpy(last), torch.from_numpy(first)):
        assert pixels(image) == last.tolist()


def test_where_both_ends_could_be_channels_a_tensor_has_them_first_and_an_array_last() -> None:
    image = np.arange(3 * 2 * 3, dtype=np.uint8).reshape(3, 2, 3)
    assert pixels(image) == image.tolist()
    assert pixels(torch.from_numpy(image)) == image.transpose(1, 2, 0).tolist()


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn], ids=str
)
def test_floats_of_every_precision(dtype: torch.dtype) -> None:
    image = torch.tensor([[0.0, 0.25, 0.5, 1.0]], requires_grad=True).to(dtype)
    assert pixels(image) == [[0, 64, 128, 255]]


def test_every_level_survives_the_way_over_floats() -> None:
    levels = torch.arange(256, dtype=torch.uint8)[None]
    assert pixels(levels.float() / 255) == levels.tolist()
    assert pixels(levels.half() / 255) == levels.tolist()
    assert pixels((levels / 255).numpy().astype(np.float32)) == levels.tolist()


def test_masks_are_black_and_white() -> None:
    assert pixels(torch.tensor([[True, False]])) == [[255, 0]]
    assert pixels(np.array([[True, False]])) == [[255, 0]]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([-2.0, 0.0, 2.0], [0, 128, 255]),
        ([0.5, 1.5, 2.5], [0, 128, 255]),
        ([0.0, 127.5, 255.0], [0, 128, 255]),
        ([0.2, 0.6, 1.001], [51, 153, 255]),  # within half a level: clipped
        ([-0.001, 0.4, 0.6], [0, 102, 153]),
        ([5.0, 5.0, 5.0], [255, 255, 255]),
        ([-5.0, -5.0, -5.0], [0, 0, 0]),
        ([float("nan"), 0.2, 1.0], [0, 51, 255]),
        ([float("nan"), 2.0, 4.0], [0, 0, 255]),
        ([float("nan"), float("nan"), float("nan")], [0, 0, 0]),
        ([float("inf"), float("-inf"), 0.2], [51, 51, 51]),
        ([float("inf"), -1.0, 1.0], [255, 0, 255]),
        ([float("inf"), float("-inf"), float("nan")], [255, 0, 0]),
        ([-3e38, 0.0, 3e38], [0, 128, 255]),
    ],
)
def test_floats_outside_of_0_to_1_are_stretched_and_odd_ones_have_a_place(
    values: list[float], expected: list[int]
) -> None:
    assert pixels(torch.tensor([values])) == [expected]
    assert pixels(np.array([values])) == [expected]


def test_alpha_is_not_stretched_with_the_colours() -> None:
    assert pixels(np.array([[[-1.0, 0.0, 1.0, 0.2], [1.0, 1.0, 1.0, 7.0]]])) == [[[0, 128, 255, 51], [255] * 4]]


def test_the_result_is_a_new_array() -> None:
    image = COLOURS.copy()
    found = as_image(image)
    image[:] = 7
    assert found.tolist() == COLOURS.tolist()


class Picture:
    """The parts of a PIL image that the code uses."""

    def __init__(self, mode: str, values: Any) -> None:
        self.mode = mode
        self.values = values

    def convert(self, mode: str) -> Picture:
        return Picture(mode, {"L": RAMP, "RGB": COLOURS, "RGBA": np.full((2, 2, 4), 9)}[mode])

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.values, np.float32 if self.mode == "F" else np.uint8)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Picture("L", RAMP), RAMP),
        (Picture("RGB", COLOURS), COLOURS.tolist()),
        (Picture("1", None), RAMP),
        (Picture("CMYK", None), COLOURS.tolist()),
        (Picture("P", None), [[[9] * 4] * 2] * 2),
        (Picture("F", [[-1.0, 1.0]]), [[0, 255]]),
    ],
    ids=lambda given: getattr(given, "mode", ""),
)
def test_images_of_pil(image: Picture, expected: Any) -> None:
    assert pixels(image) == expected


EXPECTED = (
    "is not an image; expected (H, W), (H, W, C) or (C, H, W) with 1, 3 or 4 channels, of uint8, bool or floats; for "
    "several images, (N, ...) of these, or a list"
)


@pytest.mark.parametrize(
    ("image", "found"),
    [
        (torch.zeros(2, 5, 7), "Tensor of shape (2, 5, 7) and dtype float32"),
        (np.zeros((10, 28, 28)), "ndarray of shape (10, 28, 28) and dtype float64"),
        (torch.zeros(5, dtype=torch.bfloat16), "Tensor of shape (5,) and dtype bfloat16"),
        (torch.zeros(1, 1, 3, 4, 4), "Tensor of shape (1, 1, 3, 4, 4) and dtype float32"),
        (torch.zeros(3, 0, 5), "Tensor of shape (3, 0, 5) and dtype float32"),
        (torch.zeros(4, 4, dtype=torch.int64), "Tensor of shape (4, 4) and dtype int64"),
        (np.zeros((4, 4), complex), "ndarray of shape (4, 4) and dtype complex128"),
        ("cat.png", "str"),
        (None, "NoneType"),
        ([[1, 2], [3]], "list"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_value_that_is_not_an_image_is_refused_with_its_shape_and_type(image: Any, found: str) -> None:
    with pytest.raises(DataError) as refused:
        as_image(image)
    assert str(refused.value) == f"{found} {EXPECTED}"


# ---------------------------------------------------------------------------------------------------- several


def test_a_grid_has_a_gray_border_and_gray_places_where_nothing_is() -> None:
    batch = torch.tensor([0.0, 1.0, 0.2]).reshape(3, 1, 1, 1).expand(3, 1, 1, 2)
    expected = [
        [128] * 10,
        [128] * 10,
        [128, 128, 0, 0, 128, 128, 255, 255, 128, 128],
        [128] * 10,
        [128] * 10,
        [128, 128, 51, 51, 128, 128, 128, 128, 128, 128],
        [128] * 10,
        [128] * 10,
    ]
    for images in (batch, batch[:, 0], batch.permute(0, 2, 3, 1).numpy(), list(batch), tuple(batch[:, 0].numpy())):
        assert as_grid(images).tolist() == expected
    assert pixels(batch) == expected
    assert as_grid(batch, columns=3).tolist() == [
        *([[128] * 14] * 2),
        [128, 128, 0, 0, 128, 128, 255, 255, 128, 128, 51, 51, 128, 128],
        *([[128] * 14] * 2),
    ]


def test_images_of_different_sizes_and_kinds_stand_in_one_grid() -> None:
    gray, red = np.full((1, 2), 5, np.uint8), np.array([[[255, 0, 0]], [[1, 2, 3]]], np.uint8)
    g, b = [128, 128, 128], [5, 5, 5]
    rows = [[g, g, b, b, g, g, [255, 0, 0], g, g, g], [g, g, g, g, g, g, [1, 2, 3], g, g, g]]
    assert as_grid([gray, red]).tolist() == [[g] * 10, [g] * 10, *rows, [g] * 10, [g] * 10]
    clear = np.array([[[9, 8, 7, 0]]], np.uint8)
    with_alpha = as_grid([gray, clear, red], columns=3)
    assert with_alpha.shape == (6, 14, 4)
    assert with_alpha[2, 2].tolist() == [5, 5, 5, 255]
    assert with_alpha[2, 6].tolist() == [9, 8, 7, 0]
    assert with_alpha[2, 10].tolist() == [255, 0, 0, 255]
    assert with_alpha[0, 0].tolist() == [128, 128, 128, 255]


def test_each_image_of_a_grid_is_stretched_separately() -> None:
    batch = torch.tensor([[[0.0, 10.0]], [[0.0, 1.0]], [[-1.0, 1.0]]])
    assert as_grid(batch, columns=1)[[2, 5, 8], 2:4].tolist() == [[0, 255]] * 3


def test_a_grid_is_about_as_high_as_wide() -> None:
    assert [columns_of(count) for count in range(1, 11)] == [1, 2, 2, 2, 3, 3, 3, 3, 3, 4]
    assert as_grid(torch.zeros(10, 3, 4, 6)).shape == (3 * 6 + 2, 4 * 8 + 2, 3)


@pytest.mark.parametrize(
    ("images", "found"),
    [
        (torch.zeros(4, 4), "Tensor of shape (4, 4) and dtype float32"),
        (torch.zeros(0, 3, 4, 4), "Tensor of shape (0, 3, 4, 4) and dtype float32"),
        (torch.zeros(5, 2, 4, 6), "Tensor of shape (2, 4, 6) and dtype float32"),
        ([], "list"),
        ("ab", "str"),
        (3, "int"),
        ([torch.zeros(2, 2), 3], "int"),
    ],
)
def test_a_value_that_is_not_a_batch_is_refused(images: Any, found: str) -> None:
    with pytest.raises(DataError) as refused:
        as_grid(images)
    assert str(refused.value) == f"{found} {EXPECTED}"
