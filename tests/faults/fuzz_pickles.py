"""Changes of archives and pickles that keep them well-formed enough to be read: records, headers and operations."""

from __future__ import annotations

import pickletools
import random
import struct

from tests.faults.cases import CANARY
from tests.faults.hostile_checkpoints import Calls, in_pickle
from tests.faults.project import packed, unpacked, with_seal

PICKLE = "archive/data.pkl"


# -- archives


def change_archive(content: bytes, chance: random.Random) -> bytes:
    """Return a checkpoint whose archive is built differently, with a valid seal."""
    records = list(unpacked(content).items())
    way = chance.randrange(9)
    at = chance.randrange(len(records))
    name, data = records[at]
    if way == 0:
        records.append((name, chance.choice((data, b"", data[::-1], data * 2))))
    elif way == 1:
        del records[at]
    elif way == 2:
        other = chance.choice((f"{name}x", "../x", "/x", "archive/data.pkl/x", "x" * 60_000, "archive/../x", "other/y"))
        records[at] = (other, data)
    elif way == 3:
        cut = chance.choice(
            (data[: len(data) // 2], data + b"\0" * chance.choice((1, 8, 100_000)), b"", bytes(len(data)))
        )
        records[at] = (name, cut)
    elif way == 4:
        chance.shuffle(records)
    elif way in (5, 6):
        mark, texts = _SETTINGS[way]
        records = [(each, chance.choice(texts) if each.endswith(mark) else old) for each, old in records]
    archive = packed(records, compressed=way == 7)
    return with_seal(_change_headers(archive, chance) if way == 8 else archive)


#: Records with one setting, and what they may contain instead.
_SETTINGS = {
    5: ("byteorder", (b"big", b"none", b"", b"little" * 99)),
    6: ("version", (b"0", b"2", b"99", b"-1", b"x", b"9" * 5000, b"")),
}


def _change_headers(archive: bytes, chance: random.Random) -> bytes:
    """Return an archive with another number in a header: a size, a place, a method, a checksum or a count."""
    changed = bytearray(archive)
    marks, size = chance.choice(((b"PK\x01\x02", 46), (b"PK\x03\x04", 30), (b"PK\x05\x06", 20)))
    places, position = [], changed.find(marks)
    while position >= 0:
        places.append(position)
        position = changed.find(marks, position + 4)
    at = chance.choice(places) + chance.randrange(4, size - 3)
    number = chance.choice((0, 1, 0xFFFF, 0xFFFFFFFF, 0x7FFFFFFF, len(archive), chance.randrange(1 << 32)))
    changed[at : at + 4] = struct.pack("<I", number)
    end = changed.rfind(b"PK\x05\x06")
    changed[end + 20 : end + 22] = b"\0\0"  # the seal needs an archive without a comment
    return bytes(changed[: end + 22])


# -- pickles

_CODES = {code.name: code.code.encode("latin-1") for code in pickletools.opcodes}
_TEXT = struct.Struct("<I")
_GLOBALS = (
    *(
        b"os\nsystem",
        b"builtins\neval",
        b"torch\nload",
        b"torch._utils\n_rebuild_tensor_v2",
        b"torch\nTensor",
        b"torch\n",
    ),
    *(
        b"torch.nn.parameter\nParameter",
        b"collections\nOrderedDict",
        b"collections\nCounter",
        b"torch._utils\n_rebuild_parameter",
    ),
    *(
        b"torch\nSize",
        b"torch.serialization\n_get_layout",
        b"torch\nFloatStorage",
        b"torch\nDoubleStorage",
        b"torch\ndevice",
    ),
    *(b"torch._utils\n_rebuild_sparse_tensor", b"torch._utils\n_rebuild_meta_tensor_no_storage", b"_codecs\nencode"),
    *(
        b"torch._tensor\n_rebuild_from_type_v2",
        b"torch._utils\n_rebuild_qtensor",
        b"torch._utils\n_rebuild_nested_tensor",
    ),
    *(
        b"torch\nfloat64",
        b"torch\nint8",
        b"torch\nbool",
        b"torch\ncomplex64",
        b"numpy.core.multiarray\nscalar",
        b"__main__\nx",
    ),
)


def change_pickle(content: bytes, chance: random.Random) -> bytes:
    """Return a checkpoint with other operations in its pickle, and with a valid seal."""
    records = unpacked(content)
    operations = split(records[PICKLE])
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(1, len(operations))
        way = chance.randrange(8)
        if way == 0:
            del operations[at]
        elif way == 1:
            operations.insert(at, operations[chance.randrange(len(operations))])
        elif way == 2:
            other = chance.randrange(1, len(operations))
            operations[at], operations[other] = operations[other], operations[at]
        elif way == 3:
            operations[at] = _operation(chance)
        elif way == 4:
            operations.insert(at, _operation(chance))
        elif way == 5:
            numbers = [n for n, each in enumerate(operations) if each[:1] in b"KMJ"]
            operations[chance.choice(numbers)] = _number(chance)
        elif way == 6:
            texts = [n for n, each in enumerate(operations) if each[:1] == b"X"]
            operations[chance.choice(texts)] = _text(chance.choice(_WORDS))
        else:
            names = [n for n, each in enumerate(operations) if each[:1] == b"c"]
            operations[chance.choice(names)] = b"c" + chance.choice(_GLOBALS) + b"\n"
    return with_seal(packed(records | {PICKLE: b"".join(operations)}))


_WORDS = (
    "",
    "0",
    "1",
    "99",
    "cpu",
    "meta",
    "cuda:0",
    "storage",
    "x" * 70_000,
    "state_dict",
    "position",
    "../x",
    "\x1b[31m\n",
)


def split(pickled: bytes) -> list[bytes]:
    """Return the operations of a pickle."""
    starts = [position or 0 for _, _, position in pickletools.genops(pickled)]
    return [pickled[start:end] for start, end in zip(starts, [*starts[1:], len(pickled)], strict=True)]


def _number(chance: random.Random) -> bytes:
    value = chance.choice((0, 1, -1, 2, 3, 255, 2**31 - 1, -(2**31), 2**62, 2**63, 2**64, 10**18, 2**2047))
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data if len(data) < 256 else b"\x8b" + struct.pack("<i", len(data)) + data


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + _TEXT.pack(len(data)) + data


def _operation(chance: random.Random) -> bytes:
    """Return an operation: any code without an argument, a number, a text, a name, a reference, or a call."""
    way = chance.randrange(7)
    if way == 0:
        return _number(chance)
    if way == 1:
        return _text(chance.choice(_WORDS))
    if way == 2:
        return b"c" + chance.choice(_GLOBALS) + b"\n"
    if way == 3:
        return chance.choice((b"h", b"q")) + bytes([chance.randrange(256)])
    if way == 4:
        return chance.choice((b"j", b"r")) + struct.pack("<I", chance.choice((0, 5, 10**6, 2**31)))
    if way == 5:
        return in_pickle(Calls(eval, f"open('{CANARY}', 'w')"))[2:-1]
    return chance.choice([code for name, code in _CODES.items() if name not in ("STOP", "PROTO")])
