"""With a schedule, which RoboOrchard steps after every optimizer step, training is bit-identical to native training."""

from __future__ import annotations

from pathlib import Path

from torch.optim.lr_scheduler import StepLR

from tests.dialects.one_training import as_robo_orchard, natively, shared


def test_with_a_schedule_weights_and_checkpoints_are_the_same_bits(tmp_path: Path) -> None:
    native = natively.train(tmp_path / "native", schedule=lambda optimizer: [(StepLR(optimizer, 4, 0.5), "iter")])
    ended = as_robo_orchard.train(tmp_path / "robo_orchard", schedule=lambda optimizer: StepLR(optimizer, 4, 0.5))
    shared.assert_ended_alike(ended, native)
