"""Small data sets in the formats of the projects, made of squares on noise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

COUNT = {"train": 12, "val": 6}
SIZE = 32


def make_all(folder: Path) -> None:
    """Write all data sets."""
    make_classes(folder / "classes")
    make_masks(folder / "masks")
    make_boxes(folder / "boxes")
    make_keypoints(folder / "keypoints")
    make_videos(folder / "videos")
    make_words(folder / "words")


def make_classes(folder: Path) -> None:
    """Write images of two classes, in a folder per class: left and right."""
    for stage, count in COUNT.items():
        for number in range(count):
            image, (x, _, width, _) = _image(number, SIZE, SIZE)
            name = "left" if x + width / 2 < SIZE / 2 else "right"
            _save(image, folder / stage / name / f"{number:02d}.png")


def make_masks(folder: Path) -> None:
    """Write images, and masks with the class of each pixel."""
    for stage, count in COUNT.items():
        for number in range(count):
            image, (x, y, width, height) = _image(number, SIZE, SIZE)
            mask = np.zeros((SIZE, SIZE), np.uint8)
            mask[y : y + height, x : x + width] = 1
            _save(image, folder / "images" / stage / f"{number:02d}.png")
            _save(mask, folder / "masks" / stage / f"{number:02d}.png")


def make_boxes(folder: Path) -> None:
    """Write images, upright and wide ones in no order, and their boxes in COCO's format."""
    for stage, count in COUNT.items():
        images, boxes = [], []
        for number in range(count):
            width, height = (96, 64) if number % 3 else (64, 96)
            image, box = _image(number, width, height)
            name = f"{number:02d}.png"
            _save(image, folder / stage / name)
            images.append({"id": number, "file_name": name, "width": width, "height": height})
            area = box[2] * box[3]
            boxes.append(
                {"id": number + 1, "image_id": number, "category_id": 1 + number % 2, "bbox": box, "area": area}
                | {"iscrowd": 0}
            )
        known = [{"id": 1, "name": "even"}, {"id": 2, "name": "odd"}]
        text = json.dumps({"images": images, "annotations": boxes, "categories": known})
        (folder / f"{stage}.json").write_text(text, encoding="utf-8")


def make_keypoints(folder: Path) -> None:
    """Write images with a square, and 17 keypoints on its diagonal in COCO's format."""
    for stage, count in COUNT.items():
        images, people = [], []
        for number in range(count):
            image, (x, y, width, height) = _image(number, 64, 64)
            name = f"{number:02d}.png"
            _save(image, folder / stage / name)
            images.append({"id": number, "file_name": name, "width": 64, "height": 64})
            points = [value for step in range(17) for value in (x + width * step / 16, y + height * step / 16, 2)]
            people.append(
                {"id": number + 1, "image_id": number, "category_id": 1, "bbox": [x, y, width, height]}
                | {"area": width * height, "iscrowd": 0, "keypoints": points, "num_keypoints": 17}
            )
        known = [{"id": 1, "name": "person"}]
        text = json.dumps({"images": images, "annotations": people, "categories": known})
        (folder / f"{stage}.json").write_text(text, encoding="utf-8")


def make_videos(folder: Path) -> None:
    """Write videos of two classes, each a folder of four frames, and the list of them."""
    for stage, count in COUNT.items():
        lines = []
        for number in range(count):
            for frame in range(4):
                image, _ = _image(10 * number + frame, SIZE, SIZE)
                image[: SIZE // 2 if number % 2 else SIZE] //= 2
                _save(image, folder / stage / f"video{number}" / f"{frame + 1:02d}.png")
            lines.append(f"video{number} 4 {number % 2}")
        (folder / f"{stage}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def make_words(folder: Path) -> None:
    """Write images of words of three letters, one stripe per letter, in MMOCR's format."""
    for stage, count in COUNT.items():
        samples = []
        for number in range(count):
            word = "".join("abcd"[(number + step) % 4] for step in range(3))
            image, _ = _image(number, 100, SIZE)
            for step, letter in enumerate(word):
                image[:, 10 + 30 * step : 25 + 30 * step] = 60 * "abcd".index(letter)
            name = f"{number:02d}.png"
            _save(image, folder / stage / name)
            samples.append({"img_path": name, "instances": [{"text": word}]})
        found = {"metainfo": {"dataset_type": "TextRecogDataset", "task_name": "textrecog"}, "data_list": samples}
        (folder / f"{stage}.json").write_text(json.dumps(found), encoding="utf-8")


def _image(number: int, width: int, height: int) -> tuple[np.ndarray, list[int]]:
    """Return noise with a bright square in it, and the position and size of the square."""
    generator = np.random.default_rng(number)
    image = generator.integers(0, 80, (height, width, 3), dtype=np.uint8)
    size = int(generator.integers(10, 20))
    x, y = int(generator.integers(0, width - size)), int(generator.integers(0, height - size))
    image[y : y + size, x : x + size] += 150
    return image, [x, y, size, size]


def _save(image: np.ndarray, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path)
