"""Hash: the same SHA-256, whether pieces are hashed at once or in the thread."""

from __future__ import annotations

import hashlib
import threading

import pytest

from hookline.checkpoint.hashing import LARGE, Hash


@pytest.mark.parametrize("sizes", [(3, 5), (LARGE,), (3, LARGE, 5, LARGE + 1, 7), (LARGE - 1, LARGE, 0, 1)])
def test_the_hash_covers_all_pieces_in_order(sizes: tuple[int, ...]) -> None:
    pieces = [bytes([number]) * size for number, size in enumerate(sizes)]
    found = Hash()
    for piece in pieces:
        found.update(memoryview(piece))
    assert found.finish() == hashlib.sha256(b"".join(pieces)).hexdigest()


def test_a_small_piece_may_change_at_once_and_a_large_one_after_waiting() -> None:
    large, small = bytearray(b"a" * LARGE), bytearray(b"b")
    found = Hash()
    found.update(large)
    found.update(small)
    small[0] = 0
    found.wait()
    large[0] = 0
    assert found.finish() == hashlib.sha256(b"a" * LARGE + b"b").hexdigest()


def test_pieces_may_follow_the_end_and_no_thread_is_left() -> None:
    before = set(threading.enumerate())
    found = Hash()
    found.update(bytes(LARGE))
    assert [thread.name for thread in set(threading.enumerate()) - before] == ["hookline-hash"]
    found.finish()
    assert set(threading.enumerate()) == before
    found.update(b"seal")
    assert found.finish() == hashlib.sha256(bytes(LARGE) + b"seal").hexdigest()
