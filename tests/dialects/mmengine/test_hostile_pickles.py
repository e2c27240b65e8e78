"""Files that would do harm if they were read without checks."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
