"""The Python work of a batch of 64 samples has fixed limits. Unlike a time, it is the same on every machine."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from hookline.data import ResumableLoader
from tests.performance.counting import count_instructions

BATCH = 64
TOLERANCE = 1.0 if sys.version_info[:2] == (3, 11) else 1.3


class Draws(Dataset[Any]):
    """Samples that draw one number."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw

    def __len__(self) -> int:
        return 4 * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(self.draw())


#: The data, and the most instructions of a batch as a share of torch's loader.
CASES: dict[str, tuple[Any, float]] = {
    "tensors": (TensorDataset(torch.rand(4 * BATCH, 3), torch.arange(4 * BATCH)), 0.42),
    "samples that draw from torch": (Draws(lambda: torch.rand(()).item()), 3.4),
    "samples that draw from random": (Draws(random.random), 5.3),
    "samples that draw nothing": (Draws(lambda: 1.0), 4.1),
}


def instructions(loader: Any) -> int:
    """Return the instructions of the third batch of a pass: the first one finds out what is drawn."""
    random.seed(0), np.random.seed(0)  # a normal number that an earlier test has left over would be one more case
    batches = iter(loader)
    next(batches), next(batches)
    return count_instructions(lambda: next(batches))


@pytest.mark.parametrize("name", CASES)
def test_a_batch_makes_python_do_no_more_than_its_limit(name: str) -> None:
    data, most = CASES[name]
    found, plain = instructions(ResumableLoader(data, BATCH)), instructions(DataLoader(data, BATCH))
    assert found <= plain * most * TOLERANCE, f"{found} instructions, and torch's loader {plain}"
