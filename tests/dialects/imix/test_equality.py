"""Another optimizer, a schedule and clipping in iMIX's notation train bit for bit like the native ones."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.optim.lr_scheduler import StepLR

from tests.dialects.one_training import as_imix, natively, shared


def test_with_adamw_a_schedule_and_clipping_weights_and_checkpoints_are_the_same_bits(tmp_path: Path) -> None:
    native = natively.train(
        tmp_path / "native",
        lambda net: torch.optim.AdamW(net.parameters(), lr=0.02),
        lambda optimizer: [StepLR(optimizer, 1, 0.5)],
        clip_norm=1.0,
    )
    ended = as_imix.train(
        tmp_path / "imix",
        optimizer={"type": "AdamW", "lr": 0.02},
        optimizer_config={"grad_clip": {"max_norm": 1.0}},
        lr_config={"policy": "StepLR", "step_size": 1, "gamma": 0.5, "by_epoch": True},
    )
    shared.assert_ended_alike(ended, native)
