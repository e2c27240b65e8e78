"""The script for Slurm in the docs, with stand-ins for `srun` and `scontrol`, which need a cluster."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.distributed.processes import ROOT, running
from tests.distributed.test_train_command import project


def prepare(folder: Path, kind: str, epochs: int) -> dict[str, str]:
    """Write the script of the docs for one machine with two processes, and return the variables that Slurm sets."""
    text = (ROOT / "docs" / "distributed.md").read_text().partition("```bash\n")[2].partition("```")[0]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    (folder / "job.sh").write_text(text.replace("--nproc 8", "--nproc 2").replace("29400", port))
    project(folder, kind)
    config = folder / "run.yaml"
    config.write_text(config.read_text().replace("max_epochs: 4", f"max_epochs: {epochs}"))
    commands = folder / "bin"
    commands.mkdir()
    for name, body in {
        "hookline": f'exec {sys.executable} -m hookline "$@"',
        "srun": 'exec "$@"',
        "scontrol": 'if [ "$1" = show ]; then echo 127.0.0.1; else echo "$@" >> requeued; fi',
    }.items():
        (commands / name).write_text(f"#!/bin/bash\n{body}\n")
        (commands / name).chmod(0o755)
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "SLURM_JOB_ID": "17", "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "node1"}


def test_a_signal_saves_and_requeues_the_job_which_then_resumes(tmp_path: Path) -> None:
    variables = prepare(tmp_path, "none", 100_000)
    log = tmp_path / "runs" / "run" / "run.log"

    def epochs() -> int:
        return log.read_text().count("iter 2/2") if log.exists() else 0

    for starts in (1, 2):
        enough = epochs() + 5
        with running("bash", "job.sh", cwd=tmp_path, **variables) as job:
            job.until(lambda: epochs() > enough)  # noqa: B023  # it is called only here
            job.send(signal.SIGTERM)
            assert job.wait() == 143, job.output()
            assert job.processes() == []
        assert (tmp_path / "requeued").read_text() == "requeue 17\n" * starts
    assert log.read_text().count("resumed from") == 1


@pytest.mark.parametrize(("kind", "code"), [("none", 0), ("stop", 75)])
def test_a_job_that_ends_otherwise_is_not_requeued(tmp_path: Path, kind: str, code: int) -> None:
    with running("bash", "job.sh", cwd=tmp_path, **prepare(tmp_path, kind, 8)) as job:
        assert job.wait() == code, job.output()
    assert not (tmp_path / "requeued").exists()
