"""MMEngine's dialect on two processes: the same result as the original, and hookline's agreement and failures."""

from __future__ import annotations

import functools
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.mmengine_cases import OURS
from tests.distributed.processes import running
from tests.distributed.ranks import Outcome, assert_planted, run

run_case = functools.partial(run, module="mmengine_cases")


def files(folder: Path) -> list[str]:
    """Return the checkpoints of a run."""
    return sorted(path.name for path in folder.rglob("*.pth"))


def results(done: Outcome) -> list[dict[str, Any]]:
    """Return what the processes of a case that must not fail returned."""
    assert done.code == 0, done.output
    return done.ranks


def test_training_ends_in_the_same_bits_as_with_the_original(tmp_path: Path) -> None:
    theirs = results(run_case("train", tmp_path / "theirs", "mmengine", [1, 2]))
    ours = results(run_case("train", tmp_path / "ours", OURS, [1, 2]))
    samples = [float(index) for index in range(9)]
    for rank in (0, 1):
        assert ours[rank]["dist"] == theirs[rank]["dist"] == [rank, 2, rank == 0]
        for accumulate in ("1", "2"):
            here, there = ours[rank][accumulate], theirs[rank][accumulate]
            for key in ("iter", "values", "hash", "rank", "world_size", "seed", "metrics", "computed"):
                assert here[key] == there[key], (rank, accumulate, key)
            assert here["metrics"]["samples"] == [9, 9, 9]  # the repeated tenth sample does not count
            assert here["computed"] == ([samples] * 3 if rank == 0 else [])
        assert (ours[rank]["1"]["syncs"], ours[rank]["2"]["syncs"]) == (9, 6)  # one per update
    assert ours[0]["1"]["hash"] == ours[1]["1"]["hash"]
    assert ours[0]["1"]["timestamp"] == ours[1]["1"]["timestamp"]
    checkpoints = ["epoch_1.pth", "epoch_2.pth", "epoch_3.pth"]
    assert files(tmp_path / "ours" / "1") == files(tmp_path / "theirs" / "1") == checkpoints


def test_a_hook_validates_in_all_processes_as_with_the_original(tmp_path: Path) -> None:
    theirs = results(run_case("validate_in_a_hook", tmp_path / "theirs", "mmengine"))
    ours = results(run_case("validate_in_a_hook", tmp_path / "ours", OURS))
    for rank in (0, 1):
        assert ours[rank]["found"] == theirs[rank]["found"]
        assert [each["samples"] for each in ours[rank]["found"]] == [9] * 6
        assert ours[rank]["hash"] == theirs[rank]["hash"] == ours[0]["hash"]


def test_a_hook_that_raises_in_one_process_ends_all_and_is_named(tmp_path: Path) -> None:
    done = run_case("act", tmp_path, "raise")
    assert_planted(done, "Acts, at after_train_iter, epoch=1 iter=3 rank=1 (tests/distributed/mmengine_ca")


def test_a_signal_to_one_process_ends_all_with_a_checkpoint(tmp_path: Path) -> None:
    done = run_case("act", tmp_path, "SIGTERM")
    assert [(found["error"], found["code"]) for found in done.ranks] == [("SystemExit", 143)] * 2
    assert files(tmp_path) == ["epoch_1.pth", "iter_5.pth"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return results(run_case("parts", Path(tmp_path_factory.mktemp("parts"))))


def test_only_the_main_process_writes_and_it_may_save_alone(parts: list[dict[str, Any]]) -> None:
    for rank, found in enumerate(each["odds_and_ends"] for each in parts):
        assert found["files"] == ["asked.pth", "epoch_1.pth", "epoch_2.pth", "epoch_3.pth", "first.pth"]
        assert found["dumped"] == [float(index) for index in range(9)]
        assert found["timeout"] == 77
        assert found["seeds"] == [parts[0]["odds_and_ends"]["seeds"][0], parts[0]["odds_and_ends"]["seeds"][0] + rank]


def test_a_resumed_run_ends_in_the_same_bits(parts: list[dict[str, Any]]) -> None:
    assert len({value for each in parts for value in each["train_in_parts"].values()}) == 1


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("default", [[0, 2, 4, 6], [8, 10, 12]], [[1, 3, 5, 7], [9, 11, 0]]),
        ("uneven", [[0, 2, 4, 6], [8, 10, 12]], [[1, 3, 5, 7], [9, 11]]),
        ("endless", [[0, 2, 4, 6], [8, 10, 12, 1], [3, 5, 7, 9]], [[1, 3, 5, 7], [9, 11, 0, 2], [4, 6, 8, 10]]),
        ("plain", [[0, 2, 4, 6], [8, 10, 12]], [[1, 3, 5, 7], [9, 11, 0]]),
    ],
)
def test_samplers_share_the_data_as_in_the_original(
    parts: list[dict[str, Any]], kind: str, first: list[list[int]], second: list[list[int]]
) -> None:
    assert [each["read_samples"][kind]["read"] for each in parts] == [first, second]
    samples = 13 if kind in ("default", "plain") else 9
    assert [each["read_samples"][kind]["metric"] for each in parts] == [[list(range(samples))], []]


def test_models_train_in_any_wrapper(parts: list[dict[str, Any]]) -> None:
    first, second = (each["wrappers"] for each in parts)
    assert first["pair"] == second["pair"]
    assert first["spare"] == second["spare"]
    for found in (first, second):
        assert (found["same"], found["names"]) == (True, [])  # no name in a checkpoint shows the wrapper
        assert found["own"] == ["Own", 9, 9, True]


SCRIPT = """
import sys
import torch
from mmengine.dist import all_gather_object, get_rank, is_main_process
from mmengine.model import BaseModel
from mmengine.runner import Runner


class Net(BaseModel):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(2, 1)

    def forward(self, inputs, target, mode="tensor"):
        return {"loss": (self.net(inputs) - target).square().mean()}


samples = torch.utils.data.TensorDataset(torch.randn(8, 2), torch.randn(8, 1))
loader = dict(
    dataset=samples, batch_size=2, sampler=dict(type="DefaultSampler"), collate_fn=dict(type="default_collate")
)
runner = Runner(
    Net(), sys.argv[2], loader, train_cfg=dict(by_epoch=True, max_epochs=2),
    optim_wrapper=dict(optimizer=dict(type="SGD", lr=0.1)), launcher=sys.argv[1], randomness=dict(seed=0),
)
runner.train()
weights = all_gather_object(runner.model.net.weight.tolist())
if is_main_process():
    print("SAME", weights[0] == weights[1], runner.iter, len(weights))
"""


def test_an_unchanged_script_runs_under_torchrun(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = ["-m", "hookline", "run-as", "mmengine", "script.py", "pytorch", "work"]
    with running(sys.executable, *launch, *script, cwd=tmp_path) as command:
        assert command.wait() == 0, command.output()
        assert "SAME True 4 2" in command.output()
    assert files(tmp_path / "work") == ["epoch_1.pth", "epoch_2.pth"]


def test_the_processes_of_slurm_find_each_other(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with ExitStack() as stack:
        commands = []
        for rank in (0, 1):
            variables = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NTASKS": "2"}
            variables |= {"SLURM_NODELIST": "localhost,other[1-3]", "MASTER_PORT": port}
            words = (sys.executable, "-m", "hookline", "run-as", "mmengine", "script.py", "slurm", "work")
            commands.append(stack.enter_context(running(*words, cwd=tmp_path, **variables)))
        assert [command.wait() for command in commands] == [0, 0], [command.output() for command in commands]
        assert ["SAME True 4 2" in command.output() for command in commands] == [True, False]
    assert files(tmp_path / "work") == ["epoch_1.pth", "epoch_2.pth"]
