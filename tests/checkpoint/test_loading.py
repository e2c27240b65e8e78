from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import _utils
from torch._weights_only_unpickler import _get_allowed_globals
from torch.serialization import safe_globals

from hookline.checkpoint import loading, scan, store
from hookline.checkpoint.seal import Note
from hookline.checkpoint.zip_entries import UnreadableError
from hookline.errors import StorageError
from hookline.testing import toy_runner
from tests.checkpoint.bombs import Calls


def rebuild_in_2030(layout: dict[str, Any], memory: Any, *, version: int = 9) -> torch.Tensor:
    return _utils._rebuild_tensor(memory, layout["offset"], layout["shape"], layout["stride"])  # type: ignore[no-any-return, no-untyped-call]


@pytest.fixture
def next_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch write tensors with a function that does not exist yet, and load them."""
    name = "_rebuild_tensor_in_2030"
    monkeypatch.setattr(rebuild_in_2030, "__module__", "torch._utils")
    monkeypatch.setattr(rebuild_in_2030, "__qualname__", name)
    monkeypatch.setattr(_utils, name, rebuild_in_2030, raising=False)
    monkeypatch.setitem(_get_allowed_globals(), f"torch._utils.{name}", rebuild_in_2030)

    def reduce(self: torch.Tensor, protocol: int) -> Any:
        layout = {"offset": self.storage_offset(), "shape": tuple(self.shape), "stride": self.stride()}
        return rebuild_in_2030, (layout, self._typed_storage())  # type: ignore[no-untyped-call]

    monkeypatch.setattr(torch.Tensor, "__reduce_ex__", reduce)


@pytest.mark.usefixtures("next_torch")
def test_fault_45_tensors_that_the_next_torch_writes_are_saved_verified_and_resumed(tmp_path: Path) -> None:
    whole = toy_runner(max_epochs=3, work_dir=tmp_path / "whole")
    whole.train()
    toy_runner(max_epochs=2, work_dir=tmp_path / "run").train()
    assert b"_rebuild_tensor_in_2030" in (tmp_path / "run" / "epoch_2.pth").read_bytes()
    assert b"_rebuild_tensor_v2" not in (tmp_path / "run" / "epoch_2.pth").read_bytes()
    resumed = toy_runner(max_epochs=3, work_dir=tmp_path / "run", resume=True)
    resumed.train()
    for name, expected in whole.model.state_dict().items():
        assert resumed.model.state_dict()[name].equal(expected)


@pytest.mark.usefixtures("next_torch")
def test_a_save_does_not_need_hookline_to_read_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: Any, entries: Any) -> Any:
        raise UnreadableError("hookline cannot read the archives of this torch")

    monkeypatch.setattr(scan, "read_pickle", fail)
    for value in (torch.ones(2), [torch.zeros(3)]):
        store.write_verified({"state_dict": {"a": value}}, tmp_path / "a.pth", Note())
    with pytest.raises(StorageError, match="could not be loaded again"):
        store.write({"state_dict": {"a": len}}, tmp_path / "a.pth", Note())


class Loads(list[Path]):
    """Notes the files that torch loads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        load = torch.load

        def note_and_load(path: Path, **options: Any) -> Any:
            self.append(path)
            return load(path, **options)

        monkeypatch.setattr(loading, "_proven", set())
        monkeypatch.setattr(loading, "_looked", set())
        monkeypatch.setattr(torch, "load", note_and_load)

    def during_a_save_of(self, value: Any, path: Path) -> int:
        self.clear()
        store.write({"more": value}, path, Note())
        return len(self)


def test_torch_loads_a_written_file_if_it_has_not_loaded_one_with_the_same_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads, path = Loads(monkeypatch), tmp_path / "a.pth"
    assert [loads.during_a_save_of(value, path) for value in (1, [2.5], torch.ones(2), torch.zeros(3))] == [1, 0, 1, 0]
    assert [loads.during_a_save_of(value, path) for value in (torch.ones(2).long(), torch.Size([2]))] == [1, 1]
    assert [loads.during_a_save_of(2**2000, path), loads.during_a_save_of([1, -(2**2039)], path)] == [0, 0]


class Marked(torch.Tensor):
    pass


def test_a_class_that_is_no_longer_declared_safe_is_refused(tmp_path: Path) -> None:
    marked = {"state_dict": {"a": torch.ones(2).as_subclass(Marked)}}
    with safe_globals([Marked]):
        store.write(marked, tmp_path / "a.pth", Note())
    with pytest.raises(StorageError, match="could not be loaded again"):
        store.write(marked, tmp_path / "b.pth", Note())


def test_the_names_in_a_file_are_read_without_calling_them(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    entries = OrderedDict({torch.float16: torch.ones(2), torch.Size([2]): torch.eye(2).to_sparse(), "b": {1, 2}})
    torch.save({"a": entries, "c": Calls(print, "called", state={"a": 1}), Calls(len, "key"): 1}, path)
    assert loading._names_in(loading._pickle_in(path)) == {
        *("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_sparse_tensor", "torch.serialization._get_layout"),
        *("torch.FloatStorage", "torch.LongStorage", "torch.Size", "torch.float16", "collections.OrderedDict"),
        *("__builtin__.set", "__builtin__.print", "__builtin__.len"),
    }
