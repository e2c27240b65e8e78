"""The Python work of a save has fixed limits. Unlike a time, it is the same on every machine."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline import Hook
from hookline.checkpoint import store
from hookline.state.saving import Saving
from hookline.testing import toy_runner
from tests.performance.counting import count_calls

#: The calls of a save of the toy run, without the calls of torch.save: 3,805 with torch 2.13 and Python 3.11.
MOST_CALLS = 3_900


class WithList(Hook):
    """A hook with a long list as its state."""

    def __init__(self, length: int, pairs: bool = False) -> None:
        self.values: list[Any] = [(index, index / 7) if pairs else index / 7 for index in range(length)]

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values = state["values"]


@pytest.fixture
def calls_of_a_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a function that counts how many calls a save makes more than torch.save of the same checkpoint."""
    counts: list[int] = []
    save = Saving.save

    def count(*hooks: Hook) -> int:
        folder = tmp_path / str(len(counts))
        toy_runner(max_epochs=3, work_dir=folder, custom_hooks=hooks, quiet=True).train()
        checkpoint = store.read(folder / "epoch_3.pth", sealed=True)
        return counts[-1] - count_calls(lambda: torch.save(checkpoint, io.BytesIO()))

    monkeypatch.setattr(Saving, "save", lambda self: counts.append(count_calls(lambda: save(self))))
    return count


def test_a_save_makes_no_more_calls_than_its_limit(calls_of_a_save: Callable[..., int]) -> None:
    assert calls_of_a_save() <= MOST_CALLS


def test_a_long_list_in_the_state_of_a_hook_adds_no_calls(calls_of_a_save: Callable[..., int]) -> None:
    short, long = (calls_of_a_save(WithList(length)) for length in (10, 30_000))
    pairs = calls_of_a_save(WithList(30_000, pairs=True))
    assert (long - short < 100, pairs - short < 1_000) == (True, True), (short, long, pairs)
