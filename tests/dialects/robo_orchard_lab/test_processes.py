"""Two processes share the batches, end with the same weights, resume exactly, and end together."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dialects.robo_orchard_lab.ranks import Act
from tests.distributed.ranks import ACCELERATE, run

MODULE = "tests.dialects.robo_orchard_lab.ranks"

TRAIN = """
import sys
from pathlib import Path

import torch

from hookline.dialects.robo_orchard_lab.pipeline import ResumeCheckpointConfig
from hookline.dialects.robo_orchard_lab.pipeline.hooks import LossTrackerConfig, SaveCheckpointConfig
from tests.dialects.robo_orchard_lab import parts

resume = ResumeCheckpointConfig(resume_from=sys.argv[2]) if len(sys.argv) > 2 else None
hooks = [SaveCheckpointConfig(save_step_freq=1), LossTrackerConfig(step_log_freq=2)]
trainer = parts.trainer(Path(sys.argv[1]), hooks=hooks, resume_from=resume)
trainer()
assert trainer.accelerator.num_processes == 2
total = float(torch.cat([weight.flatten() for weight in parts.weights(trainer)]).double().sum())
Path(sys.argv[1], f"rank_{trainer.accelerator.process_index}").write_text(f"{trainer.position.iter} {total!r}")
"""


def test_two_processes_train_and_resume_exactly(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path]),
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
    }

    def start(folder: Path, *words: str) -> list[str]:
        run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        subprocess.run([*run, str(script), str(folder), *words], env=environment, check=True, capture_output=True)
        return [(folder / f"rank_{rank}").read_text() for rank in range(2)]

    first, second = start(tmp_path / "straight")
    assert first == second
    assert first.split()[0] == "6"  # 18 samples, 2 x 4 per step: 3 steps per epoch
    checkpoint = tmp_path / "straight" / "checkpoints" / "checkpoint_1"
    assert {"trainer_rng_0.pth", "trainer_rng_1.pth"} <= {path.name for path in checkpoint.iterdir()}
    assert start(tmp_path / "resumed", str(checkpoint)) == [first, first]


@pytest.mark.processes
def test_a_signal_to_one_process_ends_all_with_a_checkpoint_that_resumes_exactly(tmp_path: Path) -> None:
    done = run("signaled", tmp_path, module=MODULE, launcher=ACCELERATE)
    assert done.code == 0, done.output
    for found in done.ranks:
        del found["seconds"]
        assert found == {
            "code": 143,
            "steps": [3, 12],
            "processes": 2,
            "equal": True,
            "folders": ["checkpoint_0"],
        }
    checkpoint = tmp_path / "ended" / "checkpoints" / "checkpoint_0"
    line = f"ended by SIGTERM to rank 1 after step 3: saved {checkpoint}\n"
    assert done.output.count(line) == 1  # the main process reports it


@pytest.mark.processes
def test_a_hook_that_raises_in_one_process_ends_all_and_is_named(tmp_path: Path) -> None:
    done = run("failed", tmp_path, "raise", module=MODULE)
    assert done.code == 1
    main, failed = done.ranks
    assert [(found["error"], found["code"]) for found in done.ranks] == [("DistributedError", 1), ("ValueError", 1)]
    line = inspect.getsourcelines(Act.act)[1]
    assert main["message"].splitlines() == [
        "rank 1 failed: ValueError: planted",
        f"  in hook Act.act, at on_step, epoch=0 iter=1 rank=1 (tests/dialects/robo_orchard_lab/ranks.py:{line})",
        "  in epoch_id=0 step_id=1 global_step_id=1",
    ]
    assert failed["message"] == "planted"


@pytest.mark.processes
def test_a_killed_process_is_named(tmp_path: Path) -> None:
    done = run("failed", tmp_path, "SIGKILL", module=MODULE)
    assert done.ranks[1] == {}
    assert (done.ranks[0]["error"], done.ranks[0]["code"]) == ("DistributedError", 6)
    assert done.ranks[0]["message"] == ("rank 1 was killed, or ended without a reason\n  seen by rank 0")
