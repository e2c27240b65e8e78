"""One walk finds all schedulers inside schedulers, and their saved states."""

from __future__ import annotations

import torch
from torch.optim.lr_scheduler import ChainedScheduler, ConstantLR, LinearLR, SequentialLR, StepLR

from hookline.optim.nesting import inside, walk
from hookline.testing import toy_model


def test_schedulers_and_their_states_are_walked_in_the_same_order_with_the_prefixes_of_their_parameters() -> None:
    optimizer = torch.optim.SGD(toy_model().parameters(), lr=0.1)
    chained = ChainedScheduler([StepLR(optimizer, 2), ConstantLR(optimizer)])
    outer = SequentialLR(optimizer, [LinearLR(optimizer), chained], milestones=[3])
    names = [(prefix, type(each).__name__) for prefix, each in walk(outer)]
    assert names == [
        ("", "SequentialLR"),
        ("schedulers.0.", "LinearLR"),
        ("schedulers.1.", "ChainedScheduler"),
        ("schedulers.1.schedulers.0.", "StepLR"),
        ("schedulers.1.schedulers.1.", "ConstantLR"),
    ]
    states = dict(walk(outer.state_dict()))
    assert list(states) == [prefix for prefix, _ in names]
    assert states["schedulers.1.schedulers.0."]["step_size"] == 2


def test_a_state_with_something_else_in_the_place_of_the_others_has_none_inside() -> None:
    assert inside({"_schedulers": 3}) == inside({}) == inside(None) == []
