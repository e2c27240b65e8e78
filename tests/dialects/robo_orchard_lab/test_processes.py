"""Two processes share the batches, end with the same weights, and resume exactly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
Path(sys.argv[1], f"rank_{trainer.accelerator.process_index}").write_text(f"{trainer.place.step} {total!r}")
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
