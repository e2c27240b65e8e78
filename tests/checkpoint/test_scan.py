from __future__ import annotations

import io
import re
import warnings
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._utils import _rebuild_parameter
from torch.serialization import safe_globals

from hookline.checkpoint import store
from hookline.checkpoint.scan import scan
from hookline.checkpoint.seal import Note
from hookline.checkpoint.zip_entries import DAMAGED, UnreadableError
from hookline.common import plain
from hookline.errors import StorageError
from tests.checkpoint import bombs
from tests.checkpoint.bombs import Calls, in_state_dict

CODE = "it holds more than tensors and plain data, and hookline never runs code from a file"
REPEATS = "it repeats the same lists or dicts, to more than {} entries"
DEEP = "it has more than 300 levels of lists and dicts inside each other"
NESTED = "it holds a nested tensor, which a checkpoint cannot store"

# With other versions of torch, the lengths of the files differ. So {} stands for numbers that depend on them.
BOMBS: dict[str, tuple[Callable[[], Any], str]] = {
    "shared_lists": (bombs.shared_lists, REPEATS),
    "shared_dicts": (bombs.shared_dicts, REPEATS),
    "wide_tuples": (bombs.wide_tuples, REPEATS),
    "late_lists": (bombs.late_lists, REPEATS),
    "slow_key": (bombs.slow_key, REPEATS),
    "slow_keys": (bombs.slow_keys, "its keys have more than {} entries"),
    "cyclic": (bombs.cyclic, "a list or dict in it contains itself"),
    "deep_lists": (bombs.deep_lists, DEEP),
    "deep_tuples": (bombs.deep_tuples, DEEP),
    "called_list": (bombs.called_list, CODE),
    "compressed": (bombs.compressed, "its archive is compressed, which torch never does"),
    "overlapping": (bombs.overlapping, "the entries of its archive overlap"),
    "beyond_the_end": (bombs.beyond_the_end, "its archive claims more data than the file has"),
    "same_name": (bombs.twice_the_same_name, "its archive has two entries with the same name"),
    "other_directory": (bombs.other_directory, "its archive is compressed, which torch never does"),
    "expanded": (bombs.expanded, "its tensors claim 4,398,046,511,104 bytes, but the file has only {}"),
    "overlapping_strides": (
        bombs.overlapping_strides,
        "its tensors claim 360,000,000,000 bytes, but the file has only {}",
    ),
    "repeated_tensor": (bombs.repeated_tensor, "its tensors claim {} bytes, but the file has only {}"),
    "repeated_views": (bombs.repeated_views, "its tensors claim {} bytes, but the file has only {}"),
    "larger_than_its_storage": (bombs.larger_than_its_storage, "a tensor in it has more elements than its storage"),
    "other_storage": (bombs.other_storage, "a tensor in it claims other data than the file has"),
    "changed_tensor": (bombs.changed_tensor, CODE),
    "wrong_indices": (bombs.wrong_indices, "it was cut short or damaged"),
    "bytearray": (lambda: in_state_dict(Calls(bytearray, 10**12)), CODE),
    "legacy_constructor": (lambda: in_state_dict(Calls(torch.Tensor, 10**6, 10**6)), CODE),
    "storage": (lambda: in_state_dict(Calls(torch.UntypedStorage, 10**12)), CODE),
    "through_another": (bombs.called_through_another, CODE),
    "elements_as_list": (lambda: in_state_dict(Calls(set, torch.zeros(1).expand(1 << 26))), CODE),
    "elements_as_pair": (lambda: in_state_dict(Calls(OrderedDict, [torch.zeros(1).expand(1 << 26)])), CODE),
    "elements_in_tuple": (lambda: in_state_dict(Calls(OrderedDict, (torch.zeros(1).expand(1 << 26),))), CODE),
    "elements_as_state": (lambda: in_state_dict(Calls(OrderedDict, state=torch.zeros(1).expand(1 << 26))), CODE),
    "elements_in_state": (lambda: in_state_dict(Calls(OrderedDict, state=[torch.zeros(1).expand(1 << 26)])), CODE),
    "encoded_again": (bombs.encoded_again, CODE),
    "without_memory": (bombs.without_memory, CODE),
    "converted": (bombs.converted, "its tensors claim 4,294,967,296 bytes, but the file has only {}"),
    "quantized": (bombs.quantized, "its tensors claim 1,000,000,000,000 bytes, but the file has only {}"),
    "meta": (
        lambda: in_state_dict(torch.zeros(2, device="meta")),
        "it holds a tensor on the device 'meta', which has no data",
    ),
    "hooks": (lambda: in_state_dict(Calls(_rebuild_parameter, torch.zeros(1), True, Counter)), DAMAGED),
    "nested": (bombs.nested, NESTED),
    "jagged": (bombs.jagged, NESTED),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_that_claims_more_than_it_has_is_refused(tmp_path: Path, name: str) -> None:
    make, expected = BOMBS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors warn that they are a prototype
        made = make()
    path = tmp_path / "a.pth"
    path.write_bytes(bombs.sealed(made if isinstance(made, bytes) else bombs.saved(made)))
    with pytest.raises(StorageError) as refused:
        store.read(path, sealed=True)
    reason = re.escape(expected).replace(r"\{\}", "[0-9,]+")
    assert re.fullmatch(re.escape(f"{path} cannot be read as a checkpoint: ") + reason, str(refused.value))


def test_python_and_torch_find_different_directories_in_a_forged_archive() -> None:
    with zipfile.ZipFile(io.BytesIO(bombs.other_directory())) as archive:
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}


# ------------------------------------------------------------------------------------------- honest checkpoints


class Marked(torch.Tensor):
    pass


def with_attributes(value: Any, **attributes: Any) -> Any:
    for name, attribute in attributes.items():
        setattr(value, name, attribute)
    return value


def deeply_nested(levels: int) -> Any:
    found: list[Any] = []
    for _ in range(levels - 1):
        found = [found]
    return found


DTYPES = [
    *(torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.bool),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
]
NEW_DTYPES = [torch.float8_e4m3fn, torch.uint16, torch.uint32, torch.uint64]

HONEST: dict[str, Callable[[], Any]] = {
    "empty": dict,
    "plain": lambda: {"a": [1, -1, 300, 70000, 2**2039 - 1, -(2**2039), 1.5, 1j, None, True, "\udc80", b"\xff"]},
    "types": lambda: {"a": [torch.Size([2]), torch.float32, torch.device("cpu"), torch.bits8]},
    "containers": lambda: {"a": Counter("aab"), "b": (1, (2, [3])), "c": {(1, (2, 3)): 4, None: 5}, "d": {1, 2}},
    "bytes": lambda: {"a": bytearray(b"ab"), "b": bytearray()},
    "attributes": lambda: {"a": with_attributes(OrderedDict(b=1), _metadata={"": {"version": 1}})},
    "tensors": lambda: {"a": torch.ones(2, 3), "b": torch.zeros(0, 5), "c": torch.tensor(1.0), "d": torch.ones(3)[1:]},
    "dtypes": lambda: {str(kind): torch.ones(2).to(kind) for kind in DTYPES},
    "new_dtypes": lambda: {str(kind): torch.ones(2).to(kind) for kind in NEW_DTYPES},
    "strides": lambda: {
        "a": torch.arange(12).reshape(3, 4).t(),
        "b": torch.arange(9)[::2],
        "c": torch.zeros(5, 5)[:, 1],
    },
    "parameters": lambda: {
        "a": nn.Parameter(torch.ones(2)),
        "b": with_attributes(nn.Parameter(torch.ones(2)), c={"d": 1}),
    },
    "buffers": lambda: {"a": nn.Buffer(torch.ones(2)), "b": with_attributes(torch.ones(2), c=torch.zeros(2))},
    "views_of_complex": lambda: {
        "a": torch.ones(2, dtype=torch.complex64).conj(),
        "b": (torch.ones(2) * 1j).conj().imag,
    },
    "sparse": lambda: {"a": torch.eye(3).to_sparse(), "b": torch.eye(3).to_sparse_csr()},
    "quantized": lambda: {
        "a": torch.quantize_per_tensor(torch.ones(5), 1.0, 0, torch.qint8),
        "b": torch.quantize_per_channel(torch.ones(2, 2), torch.ones(2), torch.zeros(2), 0, torch.quint8),
        "c": torch.quantize_per_tensor(torch.ones(5), 1.0, 0, torch.quint4x2),
    },
    "expanded": lambda: {"mask": torch.ones(1).expand(4096, 4096)},
    "tied": lambda: dict.fromkeys(map(str, range(90)), torch.zeros(1 << 20)),
    "shared": lambda: {"a": [[0.0] * 50] * 10_000},
    "deep": lambda: {"a": deeply_nested(plain.DEPTH - 1)},
}


@pytest.mark.filterwarnings("ignore:(?i).*(deprecated|beta state)")
@pytest.mark.parametrize(
    ("name", "legacy"),
    # torch's old format does not have the new types
    [(name, legacy) for name in HONEST for legacy in (False, True) if not legacy or name != "new_dtypes"],
)
def test_an_honest_file_is_read(tmp_path: Path, name: str, legacy: bool) -> None:
    path = tmp_path / "a.pth"
    torch.save(HONEST[name](), path, _use_new_zipfile_serialization=not legacy)
    assert str(store.read(path, sealed=False)) == str(torch.load(path, weights_only=True))


@pytest.mark.filterwarnings("ignore:(?i).*(deprecated|beta state)")
def test_everything_that_can_be_saved_can_be_read_and_vice_versa(tmp_path: Path) -> None:
    for name, make in HONEST.items():
        if name not in ("containers", "bytes"):  # a run cannot save a set or a bytearray
            plain.check_plain(make(), name)
            store.write(make(), tmp_path / f"{name}.pth", Note())


def test_a_dict_that_python_2_wrote_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    torch.save(Calls(OrderedDict, [["a", torch.ones(2)], ["b", torch.zeros(2)]]), path)
    assert [value.tolist() for value in store.read(path, sealed=False).values()] == [[1, 1], [0, 0]]


def test_a_class_that_the_user_declares_safe_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    torch.save({"a": torch.ones(2).as_subclass(Marked)}, path)
    with pytest.raises(StorageError):
        store.read(path, sealed=False)
    with safe_globals([Marked]):
        assert type(store.read(path, sealed=False)["a"]) is Marked


@pytest.mark.parametrize("legacy", [False, True])
def test_every_cut_is_found(tmp_path: Path, legacy: bool) -> None:
    path = tmp_path / "a.pth"
    torch.save({"state_dict": {"a": torch.ones(3)}}, path, _use_new_zipfile_serialization=not legacy)
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 17), *range(len(whole) - 100, len(whole))]:
        path.write_bytes(whole[:length])
        with pytest.raises(
            StorageError, match=r"a.pth cannot be read as a checkpoint: it (was cut short|is not a tor)"
        ):
            store.read(path, sealed=False)


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    for content in (b"", b"text", b"{}", bombs.saved({})[1:]):
        path.write_bytes(content)
        with pytest.raises(UnreadableError, match=r"^it is not a torch file$"):
            scan(path)
