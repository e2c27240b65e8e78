"""The memory of a process, and the tensors that objects hold."""

from __future__ import annotations

import os
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hookline.common import memory
from hookline.common.memory import ELEMENTS, Search, on_device, resident


class Holder:
    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


def bytes_of(*held: Any) -> float:
    return Search().look_into(*held).tensors


def test_tensors_are_found_in_attributes_containers_modules_closures_and_gradients() -> None:
    tensor, linear = torch.zeros(100), nn.Linear(10, 10, bias=False)
    linear(torch.zeros(1, 10)).sum().backward()
    assert bytes_of(Holder(a=tensor)) == 400
    assert bytes_of(Holder(a=[{"b": (tensor, deque([torch.zeros(5)]))}])) == 420
    assert bytes_of(Holder(net=linear)) == 2 * 400
    assert bytes_of(Holder(method=Holder(a=tensor).__init__)) == 400  # type: ignore[misc]  # any bound method
    assert bytes_of(lambda: tensor) == 400
    assert bytes_of(Holder(number=3, text="x", nothing=None, torch=torch)) == 0


def test_a_storage_counts_once_for_the_first_object_that_holds_it() -> None:
    tensor = torch.zeros(100)
    search = Search()
    assert search.look_into(tensor).tensors == 400
    assert search.look_into(Holder(view=tensor[:10], more=torch.zeros(1))).tensors == 4


def test_long_containers_are_estimated_from_some_of_their_elements() -> None:
    tensors = [torch.zeros(10) for _ in range(100 * ELEMENTS + 7)]
    assert bytes_of(Holder(kept=tensors)) == pytest.approx(40 * len(tensors))
    assert bytes_of(Holder(kept=dict(enumerate(tensors)))) == pytest.approx(40 * len(tensors))


def test_loops_depth_and_objects_that_raise_are_harmless() -> None:
    class Raises:
        @property  # type: ignore[misc]  # a mock does this, too
        def __class__(self) -> Any:
            raise RuntimeError("not now")

    loop = Holder()
    loop.itself = loop  # type: ignore[attr-defined]  # any attribute
    deep: Any = torch.zeros(10)
    for _ in range(50):
        deep = [deep]
    assert bytes_of(loop, Raises(), partial(int), Holder(raises=Raises(), sparse=torch.eye(3).to_sparse())) == 0
    assert bytes_of(deep) == 0


def test_the_size_of_the_process_grows_with_its_memory() -> None:
    before = resident()
    kept = torch.ones(16_000_000)
    assert resident() - before > 32_000_000
    assert kept[0] == 1


@pytest.mark.parametrize("device", [None, "cpu", torch.device("cpu"), "meta"])
def test_only_accelerators_have_memory_of_their_own(device: Any) -> None:
    assert on_device(device) is None


def test_the_size_of_the_process_is_found_again_after_its_file_was_closed_or_replaced(tmp_path: Path) -> None:
    """A program that becomes a daemon closes all descriptors, and other files may get their numbers."""
    (tmp_path / "other").write_text("no numbers")
    before, file = resident(), memory._statm()
    assert file is not None
    os.close(file)
    assert resident() == pytest.approx(before, rel=0.5)
    file = memory._statm()
    assert file is not None
    other = os.open(tmp_path / "other", os.O_RDONLY)
    os.dup2(other, file)
    assert resident() == pytest.approx(before, rel=0.5)
    os.close(other)
    os.close(file)
    memory._statm.cache_clear()
