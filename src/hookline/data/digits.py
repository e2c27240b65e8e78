"""The bundled data: 1,797 handwritten digits of 8 x 8 pixels, and a small network that classifies them.

The images are the test part of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak, UCI Machine
Learning Repository, https://doi.org/10.24432/C50P49, licensed under CC BY 4.0. The values 0..16 are scaled to 0..1.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from hookline.errors import ConfigError, did_you_mean

# The images are shuffled once, always the same way, and split into about 60, 20 and 20 percent.
SPLITS = {"train": (0, 1079), "val": (1079, 1438), "test": (1438, 1797)}


class Digits(TensorDataset):
    """One split of the digits: pairs of an image `(1, 8, 8)` and its class.

    Args:
        split: `train` (1,079 images), `val` (359) or `test` (359).
    """

    #: The loader does not have to seed the generators for these samples.
    draws_random_numbers = False

    def __init__(self, split: Literal["train", "val", "test"] = "train") -> None:
        if split not in SPLITS:
            raise ConfigError(f"Digits: unknown split '{split}'; {did_you_mean(split, SPLITS)}")
        with np.load(str(files("hookline.data") / "digits.npz")) as stored:
            images, classes = stored["images"], stored["labels"]
        order = np.random.RandomState(0).permutation(len(classes))[slice(*SPLITS[split])]
        inputs = torch.from_numpy(images[order].astype(np.float32) / 16).unsqueeze(1)
        super().__init__(inputs, torch.from_numpy(classes[order].astype(np.int64)))


class DigitsNet(nn.Module):
    """A small convolutional network for the digits.

    Args:
        width: Channels of the first layer; the second has twice as many.
        dropout: The fraction of features that is dropped in training.
    """

    def __init__(self, width: int = 16, dropout: float = 0.25) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Sequential(nn.Dropout(dropout), nn.Linear(2 * width * 16, 10))

    def forward(self, images: Tensor) -> Tensor:
        """Return the class scores `(n, 10)` of images `(n, 1, 8, 8)`."""
        scores: Tensor = self.classify(self.features(images).flatten(1))
        return scores
