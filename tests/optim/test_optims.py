"""Optims: one collection for one optim, several, or none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hookline import Optim
from hookline.errors import ConfigError, HooklineError
from hookline.optim.optims import Optims


def optim() -> Optim:
    return Optim(torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1))


def test_one_optim_has_the_empty_name_and_is_returned_unwrapped() -> None:
    one = optim()
    optims = Optims.of(one)
    assert (list(optims), optims.given, optims.sole, optims.are_named) == ([""], one, one, False)
    assert optims.prefixed == {"train/": one}
    assert optims.collect(lambda each: each.updates) == 0
    assert optims.share_of("", {"param_groups": []}) == {"param_groups": []}


def test_several_have_their_names_and_are_given_together() -> None:
    a, b = optim(), optim()
    optims = Optims.of({"a": a, "b": b.optimizer})
    assert (list(optims), optims["a"], optims.are_named) == (["a", "b"], a, True)
    assert optims.given is optims
    assert optims["b"].optimizer is b.optimizer
    assert list(optims.prefixed) == ["train/a/", "train/b/"]
    a.updates = 3
    assert optims.collect(lambda each: each.updates) == {"a": 3, "b": 0}
    assert optims.share_of("b", {"a": 1, "b": 2}) == 2
    assert (optims.updates, optims.current_updates) == (3, 3)
    optims["b"].updating = True
    assert optims.current_updates == 0
    with pytest.raises(HooklineError, match=r"^this run has 2 optims, not one; use runner.optim\['name'\]$"):
        _ = optims.sole


def test_none_is_an_empty_collection() -> None:
    optims = Optims.of(None)
    assert (len(optims), optims.given, optims.are_named, optims.collect(str)) == (0, None, False, None)


def test_a_collection_is_returned_unchanged() -> None:
    optims = Optims.of({"a": optim()})
    assert Optims.of(optims) is optims


@pytest.mark.parametrize("given", [3, {}, {"a": 3}, "SGD"])
def test_anything_else_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        Optims.of(given)
    assert str(refused.value) == f"optim must be an Optim, a torch optimizer, or a dict of them, not {given!r}"


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(HooklineError, match=r"^unknown optim 'generater'; did you mean 'generator'\?$"):
        _ = Optims.of({"generator": optim(), "critic": optim()})["generater"]


def test_only_a_sole_optim_makes_requests_wait_for_its_window() -> None:
    one, two = Optims.of(optim()), Optims.of({"a": optim(), "b": optim()})
    assert not one.accumulating
    one.sole.micro = two["a"].micro = 1
    assert one.accumulating
    assert not two.accumulating


@pytest.mark.parametrize("name", [0, "x"])
def test_an_index_of_optims_leads_to_the_sole_optim_or_to_the_names(name: Any) -> None:
    parameter = nn.Parameter(torch.zeros(1))
    sole = Optims.of(torch.optim.SGD([parameter]))
    with pytest.raises(HooklineError) as caught:
        sole[name]
    assert str(caught.value) == f"unknown optim {name!r}: this run has one optim, without a name; use runner.optim"
    named = Optims.of({"generator": torch.optim.SGD([parameter])})
    with pytest.raises(HooklineError) as caught:
        named[name]
    assert str(caught.value) == f"unknown optim {name!r}; available: generator"
