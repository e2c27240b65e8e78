"""What `hookline inspect` says about a checkpoint."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hookline.checkpoint.inspection import _describe_position


@pytest.mark.parametrize(
    ("validations", "shown"),
    [
        (0, "0 validations"),
        (1, "1 validation"),
        (torch.zeros(2, device="meta"), "tensor(..., device='meta', size=(2,)) validations"),
    ],
)
def test_a_position_may_have_anything_in_a_changed_checkpoint(validations: Any, shown: str) -> None:
    position = {"epoch": 2, "iter": 8, "validations": validations}
    assert _describe_position(position) == f"after 2 epochs, 8 iterations, {shown}"
