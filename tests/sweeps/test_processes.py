"""Real sweeps: killed and continued, interrupted, pruned, shared by two commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from hookline.common import studies
from hookline.rundir.runs import load
from tests.sweeps.fakes import write_config

pytestmark = [pytest.mark.processes, pytest.mark.long]

LR = "optim.optimizer.lr=0.01,0.1"

#: A hook that waits at the third epoch until the test lets it continue, so that no test depends on time.
GATE = '''
import os, time
from pathlib import Path

from hookline import Hook


class Gate(Hook):
    """Waits for a file."""

    def before_train_epoch(self, runner):
        if runner.epoch == 2:
            Path(f"reached-{runner.work_dir.name}").touch()
            while not os.path.exists("open") and not runner._host.requests.signal:
                time.sleep(0.02)
'''


@pytest.fixture(autouse=True)
def _gate(tmp_path: Path) -> None:
    (tmp_path / "gate.py").write_text(GATE)
    write_config(tmp_path, 'custom_hooks: [{type: "gate:Gate"}]\n')


def words(*more: str) -> list[str]:
    space = [] if any(word.startswith("optim") for word in more) else [LR]
    sweep = [sys.executable, "-m", "hookline", "sweep", "tiny.yaml", "train.max_epochs=4", "--sampler", "grid"]
    return [*sweep, *space, *more]


@contextmanager
def running(*more: str) -> Iterator[subprocess.Popen[str]]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(words(*more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def wait_for(*names: str, child: subprocess.Popen[str]) -> None:
    while not all(os.path.exists(name) for name in names):
        assert child.poll() is None, child.communicate()[0]
        time.sleep(0.02)


def wait_until_gone(pids: list[int]) -> None:
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids):
        time.sleep(0.02)


def children(child: subprocess.Popen[str]) -> list[int]:
    return [each.pid for each in psutil.Process(child.pid).children(recursive=True)]


def trials() -> list[Any]:
    study = studies.find_study("tiny-sweep", studies.open_storage("sqlite:///runs/tiny-sweep/study.db"))
    assert study is not None
    return study.get_trials()


def steps(number: int) -> list[int]:
    lines = Path(f"runs/tiny-sweep/{number}/metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["step"] for line in lines if "val/accuracy" in json.loads(line)]


def finish(*more: str) -> str:
    Path("open").touch()
    with running(*more) as child:
        output = child.communicate()[0]
    assert child.returncode == 0, output
    return output


def test_after_kill_9_the_same_command_continues_the_trials_from_their_checkpoints() -> None:
    with running("--jobs", "2") as child:
        wait_for("reached-0", "reached-1", child=child)
        processes = children(child)
        child.kill()
        child.wait()
        wait_until_gone(processes)
    before = [trial.params for trial in trials()]
    assert [trial.state.name for trial in trials()] == ["RUNNING", "RUNNING"]
    output = finish("--jobs", "2")
    assert "continuing: 0 of 2 trials are finished" in output
    assert [trial.state.name for trial in trials()] == ["COMPLETE", "COMPLETE"]
    assert [trial.params for trial in trials()] == before
    for number in (0, 1):
        log = "\n".join(load(f"runs/tiny-sweep/{number}").log)
        assert "epoch 2, iteration 4" in log.partition("resumed from")[2].splitlines()[0]
        assert steps(number) == [2, 4, 6, 8]
        assert list(trials()[number].intermediate_values) == [1, 2, 3, 4]
    config = load("runs/tiny-sweep/1").config
    assert (config["optim"]["optimizer"]["lr"], config["work_dir"]) == (0.1, "runs/tiny-sweep/1")
    assert Path("runs/tiny-sweep/best.yaml").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_cleanly_and_the_trial_is_continued(number: signal.Signals, code: int) -> None:
    with running() as child:
        wait_for("reached-0", child=child)
        processes = children(child)
        child.send_signal(number)
        output = child.communicate()[0]
        assert child.returncode == code, output
        assert not any(psutil.pid_exists(pid) for pid in processes)
    assert "trial 0: saved, to be continued" in output
    assert output.splitlines()[-1].startswith("interrupted; continue with: hookline sweep tiny.yaml")
    finish()
    assert [trial.state.name for trial in trials()] == ["COMPLETE", "COMPLETE"]
    assert steps(0) == [2, 4, 6, 8]


def test_a_killed_trial_is_continued_by_the_sweep_itself() -> None:
    with running("--trials", "1") as child:
        wait_for("reached-0", child=child)
        (process,) = [pid for pid in children(child) if "train" in psutil.Process(pid).cmdline()]
        Path("open").touch()
        os.kill(process, signal.SIGKILL)
        output = child.communicate()[0]
        assert child.returncode == 0, output
    assert steps(0) == [2, 4, 6, 8]


def test_two_commands_share_the_trials_of_one_study() -> None:
    Path("open").touch()
    with running("--trials", "2") as first, running("--trials", "2") as second:
        outputs = [each.communicate()[0] for each in (first, second)]
        assert [first.returncode, second.returncode] == [0, 0], outputs
    assert [trial.state.name for trial in trials()] == ["COMPLETE", "COMPLETE"]
    shown = [line for output in outputs for line in output.splitlines() if line.startswith("trial ")]
    assert sorted(line.partition(":")[0] for line in shown if "with" in line) == ["trial 0", "trial 1"]
    assert not list(Path("runs/tiny-sweep").glob("*/old-1"))


def test_a_trial_that_is_worse_than_others_is_pruned() -> None:
    Path("open").touch()
    lr = "optim.optimizer.lr=0.01,0.1,0.2,0.3,0.4,0.5,0.6"
    with running(lr, "--trials", "1") as child:
        assert child.communicate()[0]
        assert child.returncode == 0
    storage = studies.open_storage("sqlite:///runs/tiny-sweep/study.db")
    study = studies.find_study("tiny-sweep", storage)
    assert study is not None
    for _ in range(5):  # as if five trials of another machine had been better
        trial = study.ask(trials()[0].distributions)
        trial.report(2.0, 1)
        study.tell(trial, 2.0)
    with running(lr, "--trials", "7") as child:
        output = child.communicate()[0]
        assert child.returncode == 0, output
    assert trials()[6].state.name == "PRUNED"
    assert "trial 6: pruned, val/accuracy" in output
    assert steps(6) == [2]
    assert "stopped by PruningHook: accuracy is" in "\n".join(load("runs/tiny-sweep/6").log)
