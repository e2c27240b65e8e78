"""The Python work of a batch of an evaluation has a fixed limit. Unlike a time, it is the same on every machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from hookline import EvalLoop, Runner
from hookline.engine.steps import predict
from hookline.metrics import accuracy
from tests.performance.cases import clocks_stopped, parts
from tests.performance.counting import Counted

#: The instructions of a batch that hookline, with its default hooks, may run more than a loop by hand: 564 and 679
#: with Python 3.11.
MOST = 565
TOLERANCE = 1.0 if sys.version_info[:2] == (3, 11) else 1.3


def by_hand(data: Any) -> float:
    """Evaluate with a loop written by hand."""
    model, total, samples = parts()[0].eval(), 0.0, 0
    with torch.no_grad():
        for batch in data:
            preds, target = predict(model, batch)
            total += accuracy(preds, target).item() * len(target)
            samples += len(target)
    return total / samples


def test_a_batch_makes_python_do_no_more_than_its_limit(tmp_path: Path) -> None:
    batch = torch.randn(16, 64), torch.arange(16) % 10
    bare, found = Counted(batch), Counted(batch)
    by_hand(bare)
    loop = EvalLoop(found, predict, metrics={"accuracy": accuracy})
    with clocks_stopped():
        Runner(parts()[0], val=loop, work_dir=tmp_path, device="cpu", quiet=True).val()
    more = found.instructions_per_step - bare.instructions_per_step
    assert more <= MOST * TOLERANCE, f"{more:.1f} instructions more than {bare.instructions_per_step:.1f} by hand"
