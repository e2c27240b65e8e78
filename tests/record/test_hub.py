from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from hookline import MessageHub
from hookline.errors import HookError, HooklineError
from hookline.record.history import KEPT


def test_a_history_gives_its_newest_value_and_statistics_over_a_window() -> None:
    hub = MessageHub()
    for value in (4.0, 1.0, 2.0, 6.0):
        hub.update_scalar("train/loss", value)
    history = hub.get_scalar("train/loss")
    assert (history.current(), history.mean(2), history.mean(), history.min(2), history.max(3)) == (
        6.0,
        4.0,
        3.25,
        2.0,
        6.0,
    )
    assert history.last(2) == [2.0, 6.0]


def test_tensors_are_kept_without_their_graph_and_read_when_somebody_asks() -> None:
    hub = MessageHub()
    leaf = torch.ones((), requires_grad=True)
    hub.update_scalars({"a": leaf * 2, "b": torch.tensor([3.0], dtype=torch.bfloat16)}, prefix="train/")
    hub.update_scalar("train/a", 1)
    hub.update_scalar("train/a", torch.tensor([5], dtype=torch.int64))
    kept = hub.scalars["train/a"].values[0]
    assert isinstance(kept, torch.Tensor)
    assert kept.grad_fn is None
    assert hub.get_scalar("train/a").last() == [2.0, 1, 5.0]
    assert hub.get_scalar("train/b").current() == 3.0
    assert hub.scalars["train/a"].values[0] == 2.0


def test_a_history_is_bounded() -> None:
    hub = MessageHub()
    for value in range(KEPT + 5):
        hub.update_scalar("x", float(value))
    assert len(hub.get_scalar("x")) == KEPT
    assert hub.get_scalar("x").min() == 5.0


def test_only_what_is_new_is_taken() -> None:
    hub = MessageHub()
    hub.update_scalars({"train/a": 1.0, "train/b": 2.0, "val/a": 3.0})
    assert list(hub.take("train/")) == ["train/a", "train/b"]
    hub.update_scalar("train/b", 2.0)
    assert list(hub.take("train/")) == ["train/b"]
    assert list(hub.take("val/")) == ["val/a"]


def test_values_that_are_not_numbers_are_refused_by_name() -> None:
    hub = MessageHub()
    with pytest.raises(HooklineError, match="^the scalar 'x' must be a number or a tensor with one element, not 'a'$"):
        hub.update_scalar("x", "a")  # type: ignore[arg-type]
    with pytest.raises(HooklineError, match=r"not a tensor of shape \(3,\)$"):
        hub.update_scalar("x", torch.zeros(3))
    hub.update_scalar("train/loss", 1.0)
    with pytest.raises(HooklineError, match="^nothing is recorded as 'train/los'; did you mean 'train/loss'\\?$"):
        hub.get_scalar("train/los")


def test_the_state_comes_back_but_for_what_is_not_resumed() -> None:
    hub, other = MessageHub(), MessageHub()
    hub.update_scalars({"a": torch.tensor(1.5), "b": 2.0})
    hub.take("b")
    hub.update_info("epoch", 3)
    hub.update_info("host", "here", resumed=False)
    other.update_info("host", "there", resumed=False)
    other.update_scalar("old", 1.0)
    other.load_state_dict(hub.state_dict())
    assert {name: history.last() for name, history in other.scalars.items()} == {"a": [1.5], "b": [2.0]}
    assert list(other.take("")) == ["a"]
    assert (other.get_info("epoch"), other.get_info("host"), other.get_info("none", "x")) == (3, "there", "x")


def test_statistics_are_named_or_any_function_of_a_window() -> None:
    hub = MessageHub()
    for value in (4.0, 1.0, 2.0, 6.0):
        hub.update_scalar("x", value)
    history = hub.get_scalar("x")
    found = [history.statistics(method, 3) for method in ("mean", "min", "max", "current", sorted)]
    assert found == [3.0, 1.0, 6.0, 6.0, [1.0, 2.0, 6.0]]
    with pytest.raises(HooklineError, match="^unknown statistics method 'meen'; did you mean 'mean'\\?$"):
        history.statistics("meen")


def test_a_scalar_may_stay_out_of_checkpoints() -> None:
    hub, other = MessageHub(), MessageHub()
    hub.update_scalar("load", 1.0, resumed=False)
    hub.update_scalar("load", 2.0)
    hub.update_scalar("loss", 3.0)
    assert list(hub.state_dict()["scalars"]) == ["loss"]
    other.update_scalar("load", 7.0, resumed=False)
    other.load_state_dict(hub.state_dict())
    assert {name: history.last() for name, history in other.scalars.items()} == {"load": [7.0], "loss": [3.0]}


def test_more_is_kept_where_somebody_needs_it() -> None:
    hub = MessageHub()
    hub.update_scalar("old", 0.0)
    hub.keep(KEPT + 500)
    hub.keep(10)
    for value in range(KEPT + 600):
        hub.update_scalars({"old": float(value), "new": float(value)})
    assert [len(hub.get_scalar(name)) for name in ("old", "new")] == [KEPT + 500, KEPT + 500]


def test_shared_tensors_and_parts_of_larger_ones_are_copied() -> None:
    hub, weight, running = MessageHub(), torch.nn.Parameter(torch.tensor(1.0)), torch.zeros(())
    batch = torch.arange(1000.0, requires_grad=True) * 2
    for _ in range(3):
        with torch.no_grad():
            weight.sub_(0.25)
            running += 1
        hub.update_scalars({"weight": weight, "running": running, "part": batch[7]})
    assert hub.get_scalar("weight").last() == [0.75, 0.5, 0.25]
    assert hub.get_scalar("running").last() == [1.0, 2.0, 3.0]
    kept = hub.get_scalar("part").values[0]
    assert isinstance(kept, torch.Tensor)
    assert (kept.untyped_storage().nbytes(), kept.requires_grad) == (4, False)


def test_a_freshly_computed_value_is_not_copied() -> None:
    hub, loss = MessageHub(), torch.tensor(3.0, requires_grad=True) * 2
    hub.update_scalar("loss", loss)
    kept = hub.get_scalar("loss").values[0]
    assert isinstance(kept, torch.Tensor)
    assert (kept.data_ptr(), kept.grad_fn) == (loss.data_ptr(), None)


@pytest.mark.parametrize(
    "value", [np.float32(1.5), np.float64(1.5), np.array(1.5), np.array([1.5]), torch.tensor([1.5])]
)
def test_numbers_of_any_kind_are_taken_each_time(value: Any) -> None:
    hub = MessageHub()
    hub.update_scalar("x", value)
    hub.update_scalar("x", value)
    assert hub.get_scalar("x").last() == [1.5, 1.5]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (torch.zeros(3), "a tensor of shape (3,)"),
        (np.zeros((2, 1)), "a ndarray of shape (2, 1)"),
        ("1.5", "'1.5'"),
        (None, "None"),
        (1 + 2j, "(1+2j)"),
        (np.complex64(1), "np.complex64(1+0j)"),
        ({"a": 1.0}, "{'a': 1.0}"),
    ],
)
def test_a_later_value_is_checked_like_the_first(value: Any, found: str) -> None:
    hub = MessageHub()
    hub.update_scalar("x", 1.0)
    with pytest.raises(HooklineError, match=re.escape(f"must be a number or a tensor with one element, not {found}")):
        hub.update_scalar("x", value)
    assert hub.get_scalar("x").last() == [1.0]


def test_a_complex_tensor_is_refused() -> None:
    hub = MessageHub()
    with pytest.raises(HooklineError) as refused:
        hub.update_scalar("a\nb", torch.tensor(1 + 2j))
    assert str(refused.value) == (
        "the scalar 'a\\nb' must be a number or a tensor with one element, not tensor(1.+2.j)"
    )
    assert hub.scalars == {}


@pytest.mark.parametrize("window", [0, -1, "epoch"])
def test_a_window_that_cannot_be_is_refused(window: Any) -> None:
    hub = MessageHub()
    hub.update_scalar("x", 1.0)
    message = f"^window is how many of the newest values to use, an int of at least 1, not {window!r}$"
    with pytest.raises(HooklineError, match=message):
        hub.get_scalar("x").mean(window)


def test_an_int_is_still_one_after_a_resume() -> None:
    hub, again = MessageHub(), MessageHub()
    hub.update_scalars({"count": 3, "loss": 0.5})
    state = hub.state_dict()
    again.load_state_dict(state)
    assert (repr(again.get_scalar("count").current()), repr(again.get_scalar("loss").current())) == ("3", "0.5")


def test_a_fact_that_no_checkpoint_can_hold_is_refused_at_once_unless_it_is_not_resumed() -> None:
    hub = MessageHub()
    message = r"^the fact 'x' \(saved in checkpoints unless update_info has resumed=False\) is a builtins.object, "
    with pytest.raises(HookError, match=message):
        hub.update_info("x", object())
    hub.update_info("x", object(), resumed=False)


def test_all_that_is_new_is_read_together() -> None:
    hub = MessageHub()
    hub.update_scalar("train/old", torch.tensor(1.0))
    hub.take("train/")
    hub.update_scalars({"train/a": torch.tensor(2.0), "own": torch.tensor(3), "val/b": torch.tensor(4.0)})
    hub.read("train/")
    kinds = {name: type(history.values[-1]).__name__ for name, history in hub.scalars.items()}
    assert kinds == {"train/old": "Tensor", "train/a": "float", "own": "int", "val/b": "Tensor"}


@pytest.mark.parametrize("name", [7, None, b"loss", ("loss",)])
def test_the_name_of_a_number_must_be_a_text(name: Any) -> None:
    hub = MessageHub()
    message = f"^{re.escape(f'the name of a number must be a text, not {name!r}')}$"
    with pytest.raises(HooklineError, match=message):
        hub.update_scalar(name, 1.0)
    with pytest.raises(HooklineError, match=message):
        hub.update_scalars({name: 1.0})
    with pytest.raises(HooklineError, match=r"^nothing is recorded as .*; available: none$"):
        hub.get_scalar(name)
