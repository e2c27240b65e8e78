"""Schedules and accumulation written for MMEngine produce bit-identical results to native ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.optim.lr_scheduler import StepLR

from tests.dialects.one_training import as_mmengine, natively, shared


@pytest.mark.parametrize("accumulate", [1, 2])
def test_with_a_schedule_weights_and_checkpoints_are_bit_identical(tmp_path: Path, accumulate: int) -> None:
    native = natively.train(
        tmp_path / "native", schedule=lambda optimizer: [StepLR(optimizer, 1, 0.5)], accumulate=accumulate
    )
    ended = as_mmengine.train(
        tmp_path / "mmengine",
        optim_wrapper={
            "optimizer": {"type": "SGD", "lr": shared.RATE, "momentum": shared.MOMENTUM},
            "accumulative_counts": accumulate,
        },
        param_scheduler={"type": "StepLR", "step_size": 1, "gamma": 0.5},
    )
    shared.assert_ended_alike(ended, native)
