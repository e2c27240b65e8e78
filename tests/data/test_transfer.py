from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hookline.data.transfer import for_each_tensor, moved_ahead, to_device


def test_a_packed_sequence_moves_itself() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.zeros(3), torch.zeros(2)])
    moved = to_device([packed], torch.device("cpu"))[0]
    assert isinstance(moved, nn.utils.rnn.PackedSequence)


class FakeTransfer:
    """Records when a batch is moved and used."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def start(self, batch: str) -> str:
        self.events.append(f"move {batch}")
        return batch.upper()

    def finish(self, batch: str) -> str:
        self.events.append(f"wait for {batch}")
        return batch


def test_the_next_batch_is_moved_before_the_current_one_is_used() -> None:
    transfer: Any = FakeTransfer()
    for batch, last in moved_ahead([("a", False), ("b", False), ("c", True)], transfer):
        transfer.events.append(f"use {batch}{' last' * last}")
    assert transfer.events == [
        *["move a", "move b", "wait for A", "use A", "move c", "wait for B", "use B", "wait for C", "use C last"]
    ]


def test_batches_are_the_same_with_and_without_reading_ahead() -> None:
    transfer: Any = FakeTransfer()
    for length in range(4):
        pairs = [(str(number), number + 1 == length) for number in range(length)]
        assert list(moved_ahead(pairs, transfer)) == pairs


def test_an_error_of_the_loader_comes_after_the_batch_before_it_was_used() -> None:
    def broken() -> Iterator[tuple[str, bool]]:
        yield "a", False
        raise ValueError("no more")

    transfer: Any = FakeTransfer()
    seen: list[str] = []
    with pytest.raises(ValueError, match="no more"):
        seen.extend(batch for batch, _ in moved_ahead(broken(), transfer))
    assert transfer.events == ["move a", "wait for A"]


def test_code_of_the_loader_after_its_last_batch_runs_after_that_batch() -> None:
    events: list[str] = []

    def loader() -> Iterator[tuple[str, bool]]:
        yield "a", True
        events.append("after the last")

    for batch, _ in moved_ahead(loader(), FakeTransfer()):  # type: ignore[arg-type]  # it stands for a Transfer
        events.append(batch)
    assert events == ["A", "after the last"]


def test_every_tensor_of_a_nested_batch_is_found() -> None:
    found: list[Tensor] = []
    one, two, three = torch.zeros(1), torch.ones(1), torch.ones(2)
    for_each_tensor({"a": one, "b": [two, (three, "text")]}, found.append)
    assert [id(each) for each in found] == [id(one), id(two), id(three)]
