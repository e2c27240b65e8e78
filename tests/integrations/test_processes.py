"""Guests in two processes: the engine's training stays the same, and the records are means over the processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.hosts import HOSTS

ROOT = Path(__file__).parents[2]


def launch(engine: str, folder: Path, mode: str, accumulate: int) -> list[dict[str, Any]]:
    """Train in two processes. Return what each has seen."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "tests.integrations.in_two_processes", engine, str(folder), mode, str(accumulate)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"{mode}_{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("engine", HOSTS)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_training_in_two_processes_is_the_same_and_is_recorded(engine: str, accumulate: int, tmp_path: Path) -> None:
    alone, guest = (launch(engine, tmp_path, mode, accumulate) for mode in ("alone", "guest"))
    assert alone == guest
    assert alone[0]["losses"] != alone[1]["losses"]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "train/loss" in line]
    assert [line["step"] for line in steps] == list(range(1, 11))
    # With accumulation, Transformers shows only a share of the loss to the test. The last window has one batch.
    shares = [accumulate if engine == "Transformers" and step not in (5, 10) else 1 for step in range(1, 11)]
    pairs = zip(*(each["losses"] for each in alone), shares, strict=True)
    means = [(one + other) / 2 * share for one, other, share in pairs]
    assert [line["train/loss"] for line in steps] == pytest.approx(means, rel=1e-6)
    norms = [line["step"] for line in steps if "train/grad_norm/total" in line]
    assert norms == (list(range(1, 11)) if accumulate == 1 else [2, 4, 5, 7, 9, 10])
    assert [line["step"] for line in lines if "val/accuracy" in line] == [5, 10]
    assert sorted(path.name for path in (tmp_path / "run").glob("*.pth")) == ["epoch_1.pth", "epoch_2.pth"]
