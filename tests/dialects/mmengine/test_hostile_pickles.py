"""Files that would do harm if they were read without checks."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hookline.dialects.mmengine import fileio
from hookline.errors import StorageError


class Forged:
    """A pickle that calls numpy's array class, which would use the bytes as memory addresses."""

    def __reduce__(self) -> Any:
        return np.ndarray, ((1,), np.dtype("O"), b"\1" * 8)


def test_a_pickle_cannot_make_an_array_out_of_forged_addresses(tmp_path: Path) -> None:
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(Forged()))
    with pytest.raises(TypeError, match="'object' object is not callable"):
        fileio.load(tmp_path / "x.pkl")


def test_a_pickle_cannot_reconstruct_another_class(tmp_path: Path) -> None:
    class Other:
        def __reduce__(self) -> Any:
            return np.zeros(1).__reduce__()[0], (set, (0,), b"b")

    (tmp_path / "x.pkl").write_bytes(pickle.dumps(Other()))
    with pytest.raises(
        StorageError, match="^the pickle creates an array of the class <class 'set'>, but only plain numpy arrays"
    ):
        fileio.load(tmp_path / "x.pkl")


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_arrays_are_read_as_ever(tmp_path: Path, protocol: int) -> None:
    data: dict[str, Any] = {"a": np.arange(6.0).reshape(2, 3), "b": np.float32(1.5), "c": np.array(["x", "yy"])}
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(data, protocol))
    found = fileio.load(tmp_path / "x.pkl")
    assert all(np.array_equal(found[name], data[name]) for name in data)


@pytest.mark.parametrize("protocol", [2, 4])
def test_tensors_are_read_as_well(tmp_path: Path, protocol: int) -> None:
    data = {
        "a": torch.arange(6.0).reshape(2, 3).t(),
        "b": torch.tensor(3),
        "c": torch.zeros(0, 2),
        "d": torch.ones(2) > 0,
    }
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(data, protocol))
    found = fileio.load(tmp_path / "x.pkl")
    assert all(torch.equal(found[name], value) and found[name].dtype == value.dtype for name, value in data.items())


class Call:
    """A pickle that calls a function with these arguments."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> Any:
        return self.function, self.arguments


def test_a_tensor_in_a_pickle_runs_no_code_and_stays_within_its_numbers(tmp_path: Path) -> None:
    inner = pickle.dumps(Call(print, "code"), 2)
    numbers = torch.arange(4.0)
    typed: Any = torch.storage.TypedStorage
    storage = typed(wrap_storage=numbers.untyped_storage(), dtype=numbers.dtype, _internal=True)
    rebuild = torch._utils._rebuild_tensor_v2
    for given, message in (
        (Call(torch.storage._load_from_bytes, inner), "^a tensor in the pickle cannot be read: "),
        (Call(rebuild, storage, 0, (3, 2), (2, 1), False, {}), "a tensor with more numbers than the file has: 6, 4$"),
        (Call(rebuild, storage, 0, (2,), (-1,), False, {}), "or with a shape that is not made of numbers$"),
        (Call(rebuild, [1, 2], 0, (2,), (1,), False, {}), "^the pickle holds a tensor without numbers, or with"),
    ):
        (tmp_path / "x.pkl").write_bytes(pickle.dumps(given, 2))
        with pytest.raises(StorageError, match=message):
            fileio.load(tmp_path / "x.pkl")
