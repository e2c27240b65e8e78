"""Checkpoints of a few kilobytes that take hours to walk through, or gigabytes to hold, or that break their readers.

Each has a valid seal: whoever can replace a checkpoint can seal it, too. No command may hang, take much memory or fail
with a traceback. A command that needs what the bomb replaces must refuse the file.
"""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.faults.cases import Case
from tests.faults.project import checkpoint, packed, put_run, sealed, unpacked, with_seal, write

FILE = "runs/run/epoch_1.pth"
#: The commands that read a checkpoint.
PLACES = {
    "inspect": ("inspect", FILE),
    "export": ("export", FILE, "--out", "runs/weights.safetensors"),
    "load_from": ("train", "config.yaml", f"load_from={FILE}"),
    "resume": ("train", "config.yaml", "train.max_epochs=2", f"resume={FILE}"),
}
#: Commands that read the same file in another way.
MORE_PLACES = {
    "newest": ("train", "config.yaml", "--resume"),
    "test": ("test", "config.yaml", "--checkpoint", FILE),
}
WEIGHT = "layers.0.weight"
SHAPE = (3, 4)


def cases() -> list[Case]:
    """Return all cases."""
    return [*_weights(), *_whole_files(), *_archives(), *_parts()]


# -- values


def shared_lists(levels: int = 40) -> Any:
    """Return a list that contains the same list twice, which contains the same list twice, and so on."""
    value: Any = [0]
    for _ in range(levels):
        value = [value, value]
    return value


def shared_dicts(levels: int = 40) -> Any:
    """Return a dict with the same dict under two keys, and so on."""
    value: Any = {"x": 0}
    for _ in range(levels):
        value = {"a": value, "b": value}
    return value


def cyclic_list() -> Any:
    """Return a list that contains itself."""
    value: list[Any] = [1]
    value.append(value)
    return value


def cyclic_dict() -> Any:
    """Return a dict that contains itself."""
    value: dict[str, Any] = {"x": 1}
    value["itself"] = value
    return value


def endless() -> Tensor:
    """Return a tensor with four bytes of memory and the shape of four terabytes."""
    return torch.zeros(1).expand(1_000_000, 1_000_000)


def quantized() -> Tensor:
    """Return a quantized tensor of the right shape."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are deprecated, but files with them exist
        return torch.quantize_per_tensor(torch.zeros(SHAPE), 0.1, 0, torch.qint8)


def nested() -> Tensor:
    """Return a nested tensor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a prototype
        return torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])


def sparse(*shape: int) -> Tensor:
    """Return a sparse tensor with one value."""
    return torch.sparse_coo_tensor(torch.zeros(len(shape), 1, dtype=torch.long), torch.ones(1), shape)


# -- bombs as weights


def _weights() -> Iterator[Case]:
    """Return cases in which a weight of the model is the bomb.

    A resume needs every weight. `load_from` may leave one out, and `export` may leave out what is not a tensor.
    """
    unusable: dict[str, Callable[[], Any]] = {
        "endless": endless,
        "endless_meta": lambda: torch.empty(1 << 40, 1 << 20, device="meta"),
        "meta": lambda: torch.empty(SHAPE, device="meta"),
        "nested": nested,
    }
    unfit: dict[str, Callable[[], Any]] = {
        "shared_lists": shared_lists,
        "shared_dicts": shared_dicts,
        "cyclic_list": cyclic_list,
        "cyclic_dict": cyclic_dict,
        "endless_sparse": lambda: sparse(1_000_000, 1_000_000),
        "no_elements": lambda: torch.zeros(0, 4),
    }
    odd: dict[str, Callable[[], Any]] = {
        "sparse": lambda: sparse(*SHAPE),
        "sparse_csr": lambda: torch.ones(SHAPE).to_sparse_csr(),
        "quantized": quantized,
        "complex": lambda: torch.zeros(SHAPE, dtype=torch.complex64),
    }
    refused = {("resume", name) for name in unusable | unfit} | {("export", name) for name in unusable}
    for name, value in (unusable | unfit | odd).items():
        for place in PLACES:
            yield _bomb(f"weight_{name}", place, 5 if (place, name) in refused else None, partial(_with_weight, value))


def _with_weight(value: Callable[[], Any]) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about formats of sparse tensors
        found = checkpoint()
        found["state_dict"][WEIGHT] = value()
        return sealed(found)


# -- bombs as whole files


def _whole_files() -> Iterator[Case]:
    """Return cases in which the file contains something else than a checkpoint."""
    files: dict[str, Callable[[], bytes]] = {
        "state_dict_is_a_list": lambda: sealed(checkpoint() | {"state_dict": [torch.zeros(SHAPE)]}),
        "state_dict_is_a_tensor": lambda: sealed(checkpoint() | {"state_dict": torch.zeros(SHAPE)}),
        "only_shared_lists": lambda: sealed({"x": shared_lists()}),
        "only_itself": lambda: sealed(cyclic_dict()),
        "deep": partial(_in_pickle, b"]" * 100_000 + b"a" * 99_999),
        "deep_in_a_dict": partial(_in_pickle, b"}X\x01\x00\x00\x00x" * 100_000 + b"N" + b"s" * 100_000),
        "many_marks": partial(_in_pickle, b"(" * 300_000 + b"}"),
        "long_text": partial(_in_pickle, b"}X\xff\xff\xff\x7f" + b"x"),
        "memo_far_away": partial(_in_pickle, b"}r\xff\xff\xff\x7f"),
    }
    for name, content in files.items():
        for place in PLACES | MORE_PLACES:
            yield _bomb(name, place, None if place == "inspect" else 5, content)


def _in_pickle(operations: bytes) -> bytes:
    """Return a sealed archive with a pickle that was written by hand."""
    return with_seal(packed({"archive/data.pkl": b"\x80\x02" + operations + b".", "archive/version": b"3\n"}))


# -- bombs as archives


def _archives() -> Iterator[Case]:
    """Return cases with archives that torch does not write."""
    files: dict[str, tuple[Callable[[], bytes], int | None]] = {
        "deflated": (deflated_bomb, 5),
        "deflated_pickle": (partial(deflated_bomb, "archive/data.pkl"), 5),
        "same_name_twice": (_with_same_name_twice, None),
        "overlapping": (_overlapping, None),
        "without_records": (lambda: with_seal(packed({"archive/data.pkl": _pickle(), "archive/version": b"3\n"})), 5),
        "record_too_short": (partial(_changed_record, "archive/data/0", lambda record: record[:8]), 5),
    }
    for name, (content, code) in files.items():
        for place in PLACES:
            yield _bomb(name, place, None if place == "inspect" else code, content)


def deflated_bomb(name: str = "archive/data/0", megabytes: int = 400) -> bytes:
    """Return a sealed archive with one compressed record, which takes 1,000 times the memory of the file."""
    block = bytes(1 << 20)
    compressing = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = compressing.compress(block) + compressing.flush(zlib.Z_FULL_FLUSH)  # such a piece can be repeated
    content = piece * megabytes + zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    checksum = 0
    for _ in range(megabytes):
        checksum = zlib.crc32(block, checksum)
    records = unpacked(sealed(checkpoint()))
    return with_seal(_with_deflated_record(records, name, content, len(block) * megabytes, checksum))


def _with_deflated_record(records: dict[str, bytes], name: str, content: bytes, size: int, checksum: int) -> bytes:
    """Return an archive of stored records and one that is a deflated stream. `zipfile` cannot write such a stream."""
    body, directory = b"", b""
    for each, stored in records.items():
        deflated = each == name
        data = content if deflated else stored
        method, length, crc = (8, size, checksum) if deflated else (0, len(data), zlib.crc32(data))
        sizes = struct.pack("<IIIHH", crc, len(data), length, len(each), 0)
        directory += b"PK\x01\x02" + struct.pack("<HHHHHH", 20, 20, 0, method, 0, 0) + sizes
        directory += struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + each.encode()
        body += b"PK\x03\x04" + struct.pack("<HHHHH", 20, 0, method, 0, 0) + sizes + each.encode() + data
    counts = struct.pack("<HHHHIIH", 0, 0, len(records), len(records), len(directory), len(body), 0)
    return body + directory + b"PK\x05\x06" + counts


def _pickle() -> bytes:
    return unpacked(sealed(checkpoint()))["archive/data.pkl"]


def _changed_record(name: str, change: Callable[[bytes], bytes]) -> bytes:
    records = unpacked(sealed(checkpoint()))
    records[name] = change(records[name])
    return with_seal(packed(records))


def _with_same_name_twice() -> bytes:
    records = list(unpacked(sealed(checkpoint())).items())
    other = checkpoint()
    other["state_dict"][WEIGHT].fill_(1.0)
    twice = [("archive/data.pkl", unpacked(sealed(other))["archive/data.pkl"]), ("archive/data/0", bytes(48))]
    return with_seal(packed([*records, *twice]))


def _overlapping() -> bytes:
    """Return an archive in which the entry of one record names the place of another one."""
    archive = bytearray(packed(unpacked(sealed(checkpoint()))))
    places = []
    position = archive.find(b"PK\x01\x02")
    while position >= 0:
        places.append(position)
        position = archive.find(b"PK\x01\x02", position + 4)
    names = [bytes(archive[p + 46 : p + 46 + int.from_bytes(archive[p + 28 : p + 30], "little")]) for p in places]
    first, second = places[names.index(b"archive/data/0")], places[names.index(b"archive/data/2")]
    archive[second + 42 : second + 46] = archive[first + 42 : first + 46]
    return with_seal(bytes(archive))


# -- bombs in the other parts


def _parts() -> Iterator[Case]:
    """Return cases in which a part besides the weights contains the bomb."""
    values: dict[str, Callable[[], Any]] = {
        "shared_lists": shared_lists,
        "cyclic_list": cyclic_list,
        "endless": endless,
        "meta": lambda: torch.empty(2, device="meta", dtype=torch.float64),
        "large": lambda: 1 << 2000,
    }
    for name, value in values.items():
        for where, change in _PARTS.items():
            yield _bomb(f"{where}_{name}", "resume", None, partial(_with_change, change, value))
        for where in ("meta", "position", "more") if name != "large" else ():
            yield _bomb(f"{where}_{name}", "inspect", None, partial(_with_change, _PARTS[where], value))


_PARTS: dict[str, Callable[[dict[str, Any], Any], object]] = {
    "meta": lambda found, value: found["meta"].update(experiment_name=value, hooks=value),
    "optims": lambda found, value: found["meta"].update(optims=value),
    "learning_rate": lambda found, value: found["optimizer"]["param_groups"][0].update(lr=value),
    "optimizer_state": lambda found, value: found["optimizer"]["state"].update({0: {"momentum_buffer": value}}),
    "hub_values": lambda found, value: found["message_hub"]["scalars"]["train/loss"].update(values=value),
    "hub_facts": lambda found, value: found["message_hub"]["info"].update(epoch=value, more=value),
    "hook_state": lambda found, value: found["hooks"]["LoggerHook"].update(logged_at=value),
    "writer_state": lambda found, value: found["writers"]["JsonlWriter"].update(size=value),
    "position": lambda found, value: found["position"].update(iter=value, updates=value),
    "windows": lambda found, value: found["position"].update(windows=value, loader=value),
    "generators": lambda found, value: found["rng"].update(torch=value),
    "more": lambda found, value: found.update(more=value),
}


def _with_change(change: Callable[[dict[str, Any], Any], object], value: Callable[[], Any]) -> bytes:
    found = checkpoint()
    change(found, value())
    return sealed(found)


def _bomb(name: str, place: str, code: int | None, content: Callable[[], bytes]) -> Case:
    def put(project: Path) -> None:
        # The pointer does not matter here: each command names the file.
        write(put_run(project), "epoch_1.pth", content())

    return Case(
        f"bomb_{place}_{name}",
        code,
        mentions=("epoch_1.pth",) if code else (),
        words=(PLACES | MORE_PLACES)[place],
        prepare=put,
    )
