"""`hookline train` with the options that start processes, and under plain torchrun."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.distributed.processes import running

TRAIN = (sys.executable, "-m", "hookline", "train")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")

# A run on toy data with a hook that does something to the process once, in the middle of the third epoch.
CONFIG = """
model: {type: torch.nn.Linear, in_features: 4, out_features: 2}
train:
  dataloader: {dataset: {type: faults.samples}, batch_size: 4}
  max_epochs: 4
  step: cross_entropy
optim: {optimizer: {type: SGD, lr: 0.1}}
custom_hooks: [{type: faults.Fault, at: 9, kind: KIND}]
"""
FAULTS = """
import os, signal, time
import torch
from torch.utils.data import TensorDataset
from hookline import Hook

def samples():
    random = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(16, 4, generator=random), torch.arange(16) % 2)

class Fault(Hook):
    def __init__(self, at, kind):
        self.at, self.kind = at, kind

    def before_train_iter(self, runner):
        if runner.iter != self.at or os.path.exists("done"):
            return
        open("done", "w").close()
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "raise":
            raise ValueError("no luck")
        elif self.kind == "stop":
            runner.stop("enough", exit_code=75)
        elif self.kind == "exit":
            raise SystemExit(3)
        elif self.kind == "signal":
            os.kill(os.getppid(), signal.SIGTERM)
            while not runner._host.requests.signal:
                time.sleep(0.01)
"""


def project(folder: Path, kind: str, at: int = 9) -> None:
    (folder / "faults.py").write_text(FAULTS)
    (folder / "run.yaml").write_text(CONFIG.replace("KIND", kind).replace("at: 9", f"at: {at}"))


def digest(folder: Path) -> object:
    """Return the weights and the optimizer at the end of a run."""
    import torch

    saved = torch.load(folder / "runs" / "run" / "epoch_4.pth", weights_only=True)
    return {part: str(saved[part]) for part in ("state_dict", "optimizer", "position")}


@pytest.mark.parametrize(
    ("kind", "said"),
    [("kill", "rank 0 was killed by SIGKILL\n"), ("raise", "rank 0 failed with exit code 1:\nTraceback")],
)
def test_a_restarted_run_resumes_and_ends_in_the_state_of_the_uninterrupted_run(
    tmp_path: Path, kind: str, said: str
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder, name in ((whole, "none"), (broken, kind)):
        folder.mkdir()
        project(folder, name)
        with running(*TRAIN, "run.yaml", "--max-restarts", "1", cwd=folder) as run:
            assert run.wait() == 0, run.output()
            output = run.output()
    assert digest(whole) == digest(broken)
    assert f"hookline: {said}" in output
    assert output.count("hookline: restarting all processes (restart 1 of 1)\n") == 1
    if kind == "raise":
        assert output.count("ValueError: no luck\n") == 1  # shown once, by the launcher
        assert (
            "in hook Fault, at before_train_iter, epoch=2 iter=9 rank=0" in output
        )  # the note that names hook and point


@pytest.mark.parametrize(("kind", "at", "code", "why"), [
    ("raise", 0, 1, "training had not begun, so it would fail again"),
    ("stop", 9, 75, "training had ended"),
])  # fmt: skip
def test_an_error_before_the_first_iteration_and_a_planned_end_are_not_restarted(
    tmp_path: Path, kind: str, at: int, code: int, why: str
) -> None:
    project(tmp_path, kind, at)
    with running(*TRAIN, "run.yaml", "--max-restarts", "3", cwd=tmp_path) as run:
        assert run.wait() == code, run.output()
        assert f"hookline: not restarted: {why}\n" in run.output()
        assert "restarting" not in run.output()


def test_an_exit_in_a_hook_of_one_process_is_named(tmp_path: Path) -> None:
    project(tmp_path, "exit", at=7)
    with running(*TRAIN, "run.yaml", "--nproc", "2", "device=cpu", cwd=tmp_path) as run:
        assert run.wait() == 3, run.output()
        assert re.search(
            r"^hookline: rank [01] failed with exit code 3: sys\.exit\(3\) was called after iteration 7 \(hook Fault "
            r"at before_train_iter\), so the run is not finished$",
            run.output(),
            re.MULTILINE,
        ), run.output()


def test_a_signal_to_the_launcher_saves_and_ends_with_its_exit_code(tmp_path: Path) -> None:
    project(tmp_path, "signal")
    with running(*TRAIN, "run.yaml", "--max-restarts", "3", "--trace", "trace.json", cwd=tmp_path) as run:
        assert run.wait() == 143, run.output()
        assert "hookline:" not in run.output()
        assert run.output().endswith(
            "ended by SIGTERM after iteration 10: saved runs/run/iter_10.pth\n"
            "Continue with: hookline train run.yaml --max-restarts 3 --resume\n"
        )
        assert run.processes() == []
    costs = json.loads((tmp_path / "runs" / "run" / "hooks.json").read_text())
    assert (costs["steps"], costs["parts"]["data"]["calls"], costs["parts"]["saving"]["calls"]) == (10, 10, 3)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["name"] for event in events if event.get("cat") == "step"][-1] == "step 10"


def test_an_earlier_run_in_the_folder_is_not_resumed_by_a_restart(tmp_path: Path) -> None:
    project(tmp_path, "none")
    with running(*TRAIN, "run.yaml", cwd=tmp_path) as run:
        assert run.wait() == 0, run.output()
    (tmp_path / "run.yaml").write_text(CONFIG.replace("KIND", "kill").replace("at: 9", "at: 0"))
    with running(*TRAIN, "run.yaml", "--max-restarts", "1", cwd=tmp_path) as run:
        assert run.wait() == 0, run.output()
        assert "already finished" not in run.output()
        assert "4 epochs, 16 iterations in" in " ".join(run.output().replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["train.max_epoch=2"], 2, r"train\.max_epoch: unknown key 'max_epoch'; did you mean 'max_epochs'\?"),
        (["device=cuda"], 2, r"the device 'cuda' is not available with this torch on this machine; available: cpu"),
        (["strategy=dpp"], 2, r"strategy: unknown strategy 'dpp'; did you mean 'ddp'\?"),
        (
            ["strategy={type: ddp, timout: 5}"],
            2,
            r"strategy: the strategy 'ddp' has no option 'timout'; did you mean 'timeout'\?",
        ),
        (["strategy={type: ddp, timeout: -4}"], 2, "timeout must be a number above 0, not -4"),
        (["--dry-run"], 2, "--dry-run tries the run in one process; leave out the options that start more"),
        (["--nproc", "0"], 2, "hookline: --nproc must be a number of at least 1, not 0\n"),
        (["--nproc", "x"], 2, r"Invalid value for '--nproc': "),
        (["--max-restarts", "-1"], 2, "hookline: --max-restarts must be a number of at least 0, not -1\n"),
        (["--nnodes", "2"], 2, "--nnodes 2 needs --rdzv-endpoint HOST:PORT"),
    ],
)
def test_bad_input_is_one_message_and_no_process(tmp_path: Path, words: list[str], code: int, message: str) -> None:
    with running(*TRAIN, "--nproc", "2", *words, cwd=tmp_path) as run:
        assert run.wait() == code, run.output()
        assert len(re.findall(message, run.output())) == 1, run.output()
        assert "Traceback" not in run.output()
        assert run.processes() == []
    assert not os.listdir(tmp_path)


def test_under_torchrun_a_run_trains_and_its_table_of_failures_names_the_hook(tmp_path: Path) -> None:
    project(tmp_path, "raise")
    with running(*TORCHRUN, "--nproc-per-node=1", "-m", "hookline", "train", "run.yaml", cwd=tmp_path) as run:
        assert run.wait() == 1
        table = run.output().partition("Root Cause (first observed failure):")[2]
        assert "ValueError: no luck" in table
        assert "in hook Fault, at before_train_iter, epoch=2 iter=9 rank=0" in table
        assert "error_file: <N/A>" not in table
    with running(*TORCHRUN, "--nproc-per-node=1", "-m", "hookline", "train", "nothing.yaml", cwd=tmp_path) as run:
        assert run.wait() == 1
        table = run.output().partition("Root Cause (first observed failure):")[2]
        assert re.search(r"exitcode  : 2 .*\n  error_file: /.*\n  traceback : nothing\.yaml", table)


def test_torchrun_with_nproc_is_refused(tmp_path: Path) -> None:
    command = (*TORCHRUN, "--nproc-per-node=1", "-m", "hookline", "train", "--max-restarts=1")
    with running(*command, cwd=tmp_path) as run:
        assert run.wait() == 1
        assert (
            "hookline: torchrun started this process, so it cannot start others; use either torchrun or --nproc\n"
            in run.output()
        )


def test_a_restart_of_torchrun_resumes(tmp_path: Path) -> None:
    project(tmp_path, "kill")
    command = (*TORCHRUN, "--nproc-per-node=1", "--max-restarts=1", "-m", "hookline", "train", "run.yaml")
    with running(*command, cwd=tmp_path) as run:
        assert run.wait() == 0, run.output()
        assert "4 epochs, 16 iterations in" in " ".join(run.output().replace("│", " ").split())


FAILS_IN_RANK_1 = """
from hookline import Hook

class Fails(Hook):
    def after_train_iter(self, runner):
        if runner.iter == 2 and runner.rank == 1:
            raise ValueError("no luck")
"""


def test_the_launcher_shows_the_traceback_of_the_process_that_failed_not_of_one_that_noticed(tmp_path: Path) -> None:
    project(tmp_path, "none")
    (tmp_path / "other.py").write_text(FAILS_IN_RANK_1)
    words = ("run.yaml", "--nproc", "2", "custom_hooks=[{type: other.Fails}]")
    with running(*TRAIN, *words, cwd=tmp_path) as run:
        assert run.wait() == 1, run.output()
        first, _, rest = run.output().partition("hookline: ")
        assert "on cpu, fp32, seed 0, 2 processes (ddp)" in first
        assert rest.startswith(
            "rank 1 failed with exit code 1:\nTraceback (most recent call last):\n"
            "  (the frames of hookline are left out; to see them, add --traceback)\n"
            f'  File "{tmp_path / "other.py"}", line '
        )
        assert rest.splitlines()[-2] == "ValueError: no luck"
        assert rest.splitlines()[-1].startswith("in hook Fails, at after_train_iter, epoch=1 iter=2 rank=1 (")
        assert "mark_started" not in (tmp_path / "runs" / "run" / "plan.txt").read_text()
    with running(*TORCHRUN, "--nproc-per-node=2", "-m", "hookline", "train", *words[:1], words[3], cwd=tmp_path) as run:
        assert run.wait() == 1
        cause = run.output().partition("Root Cause (first observed failure):")[2]
        assert "rank      : 1 (local_rank: 1)" in cause


def test_a_strategy_of_several_processes_without_a_launcher_says_that_there_is_one(tmp_path: Path) -> None:
    project(tmp_path, "none")
    with running(*TRAIN, "run.yaml", "strategy=ddp", cwd=tmp_path) as run:
        assert run.wait() == 0, run.output()
        assert (
            "the strategy 'ddp' trains in one process, because no launcher has started several; use hookline train "
            "--nproc N, or torchrun"
        ) in " ".join(run.output().split())
