"""Random seeds, and intervals that change during training."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import torch

from hookline.common import rng
from hookline.dialects.mmengine.dist import broadcast_object_list, get_rank
from hookline.dialects.mmengine.not_included import not_included, stands_for


def set_random_seed(seed: int | None = None, deterministic: bool = False, diff_rank_seed: bool = False) -> int:
    """Seed Python, numpy and torch, and return the seed. Without a seed, draw one, which all processes share."""
    if seed is None:
        drawn = [secrets.randbelow(2**31)]
        broadcast_object_list(drawn)
        seed = drawn[0]
    if diff_rank_seed:
        seed += get_rank()
    rng.seed_everything(seed)
    if deterministic:
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True)
    return seed


def calc_dynamic_intervals(
    start_interval: int, dynamic_interval_list: Sequence[tuple[int, int]] | None = None
) -> tuple[list[int], list[int]]:
    """Return the milestones (in epochs or iterations) and the interval that applies from each of them on.

    >>> calc_dynamic_intervals(3, [(6, 1)])
    ([0, 6], [3, 1])
    """
    given = list(dynamic_interval_list or [])
    return [0, *(milestone for milestone, _ in given)], [start_interval, *(interval for _, interval in given)]


ConfigType = OptimWrapperType = ParamSchedulerType = Any
stands_for(__name__, "runner._flexible_runner")
not_included(globals(), "FlexibleRunner")
