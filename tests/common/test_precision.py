"""Precisions have hookline's names and those that people know from other libraries."""

from __future__ import annotations

from typing import Any

import pytest

from hookline.common.precision import precision_of
from hookline.errors import ConfigError
from hookline.testing import toy_runner


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["fp32", "32", 32, "32-true", "float32"], "fp32"),
        (["bf16", "bf16-mixed", "mixed_bfloat16"], "bf16"),
        (["fp16", "16", 16, "16-mixed", "mixed_float16"], "fp16"),
    ],
)
def test_known_names_are_accepted(names: list[Any], expected: str) -> None:
    assert [precision_of(name) for name in names] == [expected] * len(names)
    assert [toy_runner(precision=name).precision for name in names] == [expected] * len(names)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "bf16-true",
            "precision 'bf16-true' means weights in bfloat16, but the precision of a run is about its computations: "
            "the weights stay as they are. For mixed precision, write 'bf16'; otherwise, convert the model yourself, "
            "model.to(torch.bfloat16), and leave precision at 'fp32'",
        ),
        (
            64,
            "precision '64' means weights in float64, but the precision of a run is about its computations: the "
            "weights stay as they are. Convert the model yourself, model.to(torch.float64), and leave precision at "
            "'fp32'",
        ),
        ("bf61", "unknown precision 'bf61'; did you mean 'bf16'?"),
        (8, "unknown precision '8'; available: fp32, bf16, fp16"),
        (None, "unknown precision None; available: fp32, bf16, fp16"),
        (True, "unknown precision True; available: fp32, bf16, fp16"),
    ],
)
def test_other_names_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        toy_runner(precision=given)
    assert str(refused.value) == message
