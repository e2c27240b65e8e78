"""A training from a config against a loop by hand: the same work, and the table that is published."""

from __future__ import annotations

import pytest
import torch

import from_config


@pytest.mark.processes  # a terminal that another process reads
def test_all_cases_train_to_the_same_weights_and_are_measured() -> None:
    found = from_config.measure(steps=10, rounds=1)
    assert list(found) == list(from_config.CASES)
    assert all(min(times) > 0 for times in found.values())


def test_weights_that_differ_from_the_loop_are_refused() -> None:
    weights = [torch.ones(2)]
    from_config.check("a case", weights, [torch.ones(2)])
    for other in (1.1, float("nan")):
        with pytest.raises(RuntimeError, match="^a case: the weights differ from those of the loop by up to"):
            from_config.check("a case", weights, [torch.tensor([1.0, other])])
