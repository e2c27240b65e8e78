"""Small files that would take far more memory or time than their size, and files with tensors that no run can use."""

from __future__ import annotations

import codecs
import io
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

import torch

from hookline.checkpoint.seal import Note, SealingFile


class Calls:
    """An object whose pickle calls a function when it is read."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, state: Any = None) -> None:
        self.call = (function, arguments, state)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
        return self.call


def saved(value: Any) -> bytes:
    """Return the bytes that torch writes."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def sealed(archive: bytes, note: Note | None = None) -> bytes:
    """Return an archive with the seal of a checkpoint of hookline."""
    file = io.BytesIO()
    sealing = SealingFile(cast("Any", file))
    sealing.write(archive)
    sealing.seal(note or Note(step=2, validations=1, complete=True))
    return file.getvalue()


def rewritten(archive: bytes, change: Callable[[str, bytes], bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return an archive with changed entries."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(file, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return file.getvalue()


def with_pickle(content: bytes) -> bytes:
    """Return an archive with this pickle."""
    return rewritten(saved({}), lambda name, old: content if name.endswith("data.pkl") else old)


# -- structures


def shared_lists() -> dict[str, Any]:
    """Return 2 ** 40 entries in 40 lists."""
    found: list[Any] = [0]
    for _ in range(40):
        found = [found, found]
    return {"state_dict": {}, "hooks": found}


def shared_dicts() -> dict[str, Any]:
    """Return 2 ** 40 entries in 40 dicts."""
    found: dict[str, Any] = {}
    for _ in range(40):
        found = {"a": found, "b": found}
    return {"state_dict": {}, "hooks": found}


def wide_tuples() -> dict[str, Any]:
    """Return 10 ** 12 entries in four tuples."""
    found: tuple[Any, ...] = (0,)
    for _ in range(4):
        found = (found,) * 1000
    return {"state_dict": {}, "hooks": found}


def late_lists() -> bytes:
    """Return a pickle with 2 ** 40 entries in lists that are filled only after they were put into others."""
    text = b"\x80\x02}X\x05\x00\x00\x00hooks]q\x00(]q\x01h\x01e"
    for level in range(1, 40):
        text += b"h%c(]q%ch%cea" % (level, level + 1, level + 1)
    return with_pickle(text + b"s.")


def slow_key() -> bytes:
    """Return a pickle with a key that takes 2 ** 40 steps to hash."""
    text = b"\x80\x02}q\x00K\x01\x85q\x01" + b"h\x01\x86q\x01" * 40 + b"K\x00s."
    return with_pickle(text)


def slow_keys() -> bytes:
    """Return a pickle with 3,000 keys that take 2 ** 17 steps each."""
    text = b"\x80\x02}q\x00K\x01\x85q\x01" + b"h\x01\x86q\x01" * 17 + b"K\x00s"
    return with_pickle(text + b"h\x01K\x00s" * 3000 + b".")


def cyclic() -> dict[str, Any]:
    """Return a list that contains itself."""
    found: list[Any] = []
    found.append({"self": found})
    return {"state_dict": {}, "hooks": found}


def deep_lists(levels: int = 100_000) -> bytes:
    """Return a pickle of lists inside each other."""
    return with_pickle(b"\x80\x02}X\x05\x00\x00\x00hooks" + b"]" * levels + b"a" * (levels - 1) + b"s.")


def deep_tuples(levels: int = 100_000) -> bytes:
    """Return a pickle of tuples inside each other."""
    return with_pickle(b"\x80\x02}X\x05\x00\x00\x00hooks)" + b"\x85" * (levels - 1) + b"s.")


def called_list() -> bytes:
    """Return a pickle that calls a list whose text has 2 ** 40 entries, so that a message with it never ends."""
    return with_pickle(b"\x80\x02]q\x01" + b"](h\x01h\x01eq\x01" * 40 + b")R.")


# -- archives


def compressed() -> bytes:
    """Return an archive of 64 MB of zeros in 64 kB."""
    archive = saved({"state_dict": {"0": torch.zeros(4)}})
    count = b"J" + struct.pack("<i", 1 << 24)

    def change(name: str, old: bytes) -> bytes:
        if name.endswith("data/0"):
            return bytes(1 << 26)
        return old.replace(b"K\x04t", count + b"t").replace(b"K\x04\x85", count + b"\x85")

    return rewritten(archive, change, zipfile.ZIP_DEFLATED)


def change_directory(archive: bytes, name: str, place: int, form: str, *values: int) -> bytes:
    """Return an archive with other numbers at a place in the directory's record of an entry."""
    changed, position = bytearray(archive), archive.find(b"PK\x01\x02")
    while not archive.startswith(name.encode(), position + 46):
        position = archive.find(b"PK\x01\x02", position + 1)
    struct.pack_into(form, changed, position + place, *values)
    return bytes(changed)


def overlapping() -> bytes:
    """Return an archive with two entries in the same bytes."""
    archive = saved({"state_dict": {str(index): torch.zeros(9) for index in range(3)}})
    with zipfile.ZipFile(io.BytesIO(archive)) as found:
        offset = found.getinfo("archive/data/0").header_offset
    return change_directory(archive, "archive/data/1", 42, "<L", offset)


def beyond_the_end() -> bytes:
    """Return an archive with an entry of 4 GB."""
    archive = saved({"state_dict": {"0": torch.zeros(9)}})
    return change_directory(archive, "archive/data/0", 20, "<2L", 0xF0000000, 0xF0000000)


def other_directory() -> bytes:
    """Return a compressed archive with a second directory, which Python reads, and which says it is not compressed."""
    archive = rewritten(saved({"state_dict": {"0": torch.zeros(1 << 20)}}), lambda name, old: old, zipfile.ZIP_DEFLATED)
    start, end = archive.find(b"PK\x01\x02"), archive.rfind(b"PK\x05\x06")
    return archive[:end] + archive[start:end].replace(b"\x00\x00\x08\x00", b"\x00\x00\x00\x00") + archive[end:]


def twice_the_same_name() -> bytes:
    """Return an archive with two entries that torch finds under the same name."""
    file = io.BytesIO(saved({}))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("archive/DATA.pkl", b"\x80\x02}.")
    return file.getvalue()


# -- tensors


def expanded(elements: int = 1 << 40) -> dict[str, Any]:
    """Return a tensor of 4 TB in 4 bytes of memory."""
    return {"state_dict": {"0.weight": torch.zeros(1).expand(elements)}}


def overlapping_strides() -> dict[str, Any]:
    """Return a tensor of 400 GB in 2.4 MB of memory."""
    return {"state_dict": {"0.weight": torch.zeros(600_000).as_strided((300_000, 300_000), (1, 1))}}


def repeated_tensor() -> dict[str, Any]:
    """Return the same 4 MB a hundred thousand times."""
    return {"state_dict": {}, "hooks": [torch.zeros(1 << 20)] * 100_000}


def repeated_views() -> dict[str, Any]:
    """Return ten thousand views of the same 4 MB."""
    memory = torch.zeros(1 << 20)
    return {"state_dict": {}, "hooks": [memory[index:] for index in range(10_000)]}


def larger_than_its_storage() -> bytes:
    """Return a tensor of 100,000 elements whose storage has four."""
    archive = saved({"state_dict": {"0.weight": torch.zeros(4)}})
    longer = b"J" + struct.pack("<i", 100_000)
    return rewritten(archive, lambda name, old: old.replace(b"K\x04\x85", longer + b"\x85"))


def other_storage() -> bytes:
    """Return a tensor whose storage has 100,000 elements in the pickle and four in the file."""
    archive = saved({"state_dict": {"0.weight": torch.zeros(4)}})
    longer = b"J" + struct.pack("<i", 100_000)
    return rewritten(archive, lambda name, old: old.replace(b"K\x04t", longer + b"t"))


def changed_tensor() -> bytes:
    """Return a tensor that becomes another one after it was created."""
    archive = saved({"state_dict": {"0.weight": torch.zeros(4)}})
    return rewritten(archive, lambda name, old: old.replace(b"s.", b"(K\x01K\x02K\x03K\x04tbs."))


def in_state_dict(value: Any) -> dict[str, Any]:
    """Return weights with this value in them."""
    return {"state_dict": {"0.weight": value}}


def wrong_indices() -> Any:
    """Return a sparse tensor whose indices are outside of it."""
    found = torch.sparse_coo_tensor(torch.tensor([[10**9]]), torch.ones(1), (2,), check_invariants=False)
    return in_state_dict(found)


def called_through_another() -> Any:
    """Return weights with a function that is called by one that is allowed."""
    return in_state_dict(Calls(torch._tensor._rebuild_from_type_v2, bytearray, torch.Tensor, (10**12,), {}))


def encoded_again() -> Any:
    """Return weights with a text that becomes twice as long forty times."""
    text: Any = "text"
    for encoding in ["latin1"] + 40 * ["hex"]:
        text = Calls(codecs.encode, text, encoding)
    return in_state_dict(text)


def without_memory() -> Any:
    """Return weights with a tensor that has a shape and a device, but no memory."""
    shape = (torch.float32, (3, 4), (4, 1), 0, torch.strided, torch.device("cpu"), False)
    return in_state_dict(Calls(torch._utils._rebuild_wrapper_subclass, torch.Tensor, *shape))


def converted() -> Any:
    """Return weights that are converted to another type, in new memory, when they are loaded."""
    small = torch.zeros(1).expand(1 << 26)
    return in_state_dict(
        Calls(torch._utils._rebuild_device_tensor_from_cpu_tensor, small, torch.complex128, "cpu", False)
    )


def quantized() -> Any:
    """Return a quantized tensor, for which torch allocates memory before it looks at its storage."""
    memory: Any = torch.zeros(1, dtype=torch.uint8)
    parameters = (torch.per_tensor_affine, 1.0, 0)
    return in_state_dict(
        Calls(
            torch._utils._rebuild_qtensor, memory._typed_storage(), 0, (10**12,), (0,), parameters, False, OrderedDict()
        )
    )


def nested() -> Any:
    """Return a nested tensor."""
    return in_state_dict(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))


def jagged() -> Any:
    """Return a nested tensor of the newer kind."""
    return in_state_dict(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged))
