"""A digest of every tensor in a checkpoint, which costs nothing: the archive has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline.checkpoint import digests
from hookline.checkpoint.seal import Note
from hookline.checkpoint.store import write
from hookline.errors import StorageError
from hookline.testing import toy_runner


def saved(path: Path, **tensors: Any) -> dict[str, digests.Digest]:
    write({"meta": {}, "state_dict": tensors}, path, Note())
    return digests.read(path)


def test_every_tensor_of_a_checkpoint_has_a_digest(tmp_path: Path) -> None:
    toy_runner(work_dir=tmp_path, max_epochs=1).train()
    found = digests.read(tmp_path / "epoch_1.pth")
    weights = [f"state_dict/{name}" for name in ("0.weight", "0.bias", "2.weight", "2.bias")]
    assert [place for place in found if place.startswith("state_dict/")] == weights
    assert found["state_dict/0.weight"].view[:3] == (0, (8, 4), (4, 1))


def test_equal_runs_have_equal_digests_and_one_bit_is_seen(tmp_path: Path) -> None:
    values = torch.arange(6.0)
    changed = values.clone()
    changed.view(torch.int32)[3] ^= 1
    one, same = saved(tmp_path / "a.pth", w=values), saved(tmp_path / "b.pth", w=values.clone())
    assert one == same != saved(tmp_path / "c.pth", w=changed)


@pytest.mark.parametrize(
    "change",
    [lambda values: values.flip(0), lambda values: values.view(3, 2), lambda values: values.to(torch.float64)],
    ids=["order", "shape", "type"],
)
def test_the_order_the_shape_and_the_type_are_seen(
    tmp_path: Path, change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    values = torch.arange(6.0)
    before, after = saved(tmp_path / "a.pth", w=values), saved(tmp_path / "b.pth", w=change(values))
    assert before["state_dict/w"] != after["state_dict/w"]


def test_two_parts_of_one_storage_differ_by_their_places(tmp_path: Path) -> None:
    values = torch.zeros(6)
    found = saved(tmp_path / "a.pth", first=values[:3], second=values[3:])
    first, second = found["state_dict/first"], found["state_dict/second"]
    assert (first.crc == second.crc, first == second) == (True, False)


def test_a_file_that_is_no_checkpoint_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    path.write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(StorageError, match=r"a\.pth cannot be read: it was cut short or damaged"):
        digests.read(path)
    with pytest.raises(StorageError, match=r"b\.pth cannot be read: No such file or directory"):
        digests.read(tmp_path / "b.pth")
