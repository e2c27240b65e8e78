"""The plain data that is recorded for a config that holds objects."""

from __future__ import annotations

import enum
from collections import OrderedDict
from functools import partial
from pathlib import Path

import numpy as np
import torch

from hookline.dialects.plain import plain_data


class Level(enum.IntEnum):
    HIGH = 20


class Mode(str, enum.Enum):  # noqa: UP042  # as many projects still write it
    FAST = "fast"


class Name(str):
    __slots__ = ()


class Thing:
    pass


def test_plain_data_is_unchanged_and_other_objects_become_names_without_addresses() -> None:
    config = {
        "numbers": (1, 2.5, True, None, np.float64(0.5), Level.HIGH, np.int64(3)),
        "names": {"b", "a", "c"},
        "mode": Mode.FAST,
        "own": Name("mine"),
        "text": "a",
        3: OrderedDict(folder=Path("runs/a")),
        "class": Thing,
        "function": test_plain_data_is_unchanged_and_other_objects_become_names_without_addresses,
        "object": Thing(),
        "partial": partial(print, Thing()),
        "dtype": torch.float32,
    }
    found = plain_data(config)
    name = f"{__name__}:test_plain_data_is_unchanged_and_other_objects_become_names_without_addresses"
    assert found == {
        "numbers": [1, 2.5, True, None, 0.5, 20, 3],
        "names": ["a", "b", "c"],
        "mode": "fast",
        "own": "mine",
        "text": "a",
        "3": {"folder": "runs/a"},
        "class": f"{__name__}:Thing",
        "function": name,
        "object": f"{__name__}:Thing",
        "partial": "functools:partial",
        "dtype": "torch.float32",
    }
    assert [type(one) for one in found["numbers"]] == [int, float, bool, type(None), float, int, int]
    assert type(found["own"]) is str
    assert type(found["3"]) is dict
