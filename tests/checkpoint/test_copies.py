from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hookline.checkpoint.copies import LARGE, WORTH_A_THREAD, Copies

COUNT = LARGE // 4  # of floats in a piece


def same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)


def trees() -> dict[str, Any]:
    """Return tensors of all kinds: larger and smaller than a piece, views, other layouts, and values behind a flag."""
    random = torch.Generator().manual_seed(0)
    many = torch.randn(WORTH_A_THREAD * COUNT + 3, generator=random)
    image = torch.randn(2, 3, 400, 400, generator=random)
    complex_values = torch.randn(COUNT, dtype=torch.complex64, generator=random)
    return {
        "many pieces": many,
        "a view with an offset": many[5:-7],
        "every second value": many[::2],
        "channels last": image.to(memory_format=torch.channels_last),
        "transposed": torch.randn(600, 700, generator=random).t(),
        "conjugated": complex_values.conj(),
        "imaginary parts of conjugated values": complex_values.conj().imag,
        "negated": torch._neg_view(torch.randn(2 * COUNT, generator=random)),
        "expanded": torch.ones(1).expand(2 * COUNT),
        "parameter": nn.Parameter(torch.randn(2 * COUNT, generator=random)),
        "half": torch.randn(3 * COUNT, generator=random).half(),
        "bool": torch.randn(5 * COUNT, generator=random) > 0,
        "exactly one piece": torch.randn(COUNT, generator=random),
        "small": torch.arange(3),
        "empty": torch.empty(0),
        "scalar": torch.tensor(1.5),
    }


def test_every_kind_of_tensor_is_copied_bit_for_bit_also_into_memory_that_is_used_again() -> None:
    taken = Copies()
    for _ in range(2):
        tree = trees()
        copied = taken.take({"state": tree})["state"]
        assert [name for name, value in tree.items() if not same(value, copied[name])] == []
        with torch.no_grad():
            for value in tree.values():
                if value.numel() and not value.is_conj() and not value.is_neg() and 0 not in value.stride():
                    value.zero_()  # the copies are not views
        fresh = trees()
        assert [name for name, value in fresh.items() if not same(value, copied[name])] == []


@pytest.mark.parametrize(("pieces", "threads"), [(WORTH_A_THREAD - 1, 0), (WORTH_A_THREAD, 1)])
def test_a_second_thread_helps_only_if_there_is_enough_to_copy_and_has_ended(
    pieces: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    class Noted(threading.Thread):
        def start(self) -> None:
            started.append(self.name)
            super().start()

    monkeypatch.setattr(threading, "Thread", Noted)
    value = torch.randn(pieces * COUNT)
    assert torch.equal(Copies().take({"value": value})["value"], value)
    assert started == ["hookline-copy"] * threads
    assert [thread.name for thread in threading.enumerate() if thread.name == "hookline-copy"] == []
