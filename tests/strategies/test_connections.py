"""The limit of open files, and the tasks of Slurm, before any process is connected."""

from __future__ import annotations

import resource
from typing import Any

import pytest
import torch

from hookline.run.requests import Requests
from hookline.strategies import pick
from hookline.strategies.connections import allow_connections


@pytest.mark.parametrize(
    ("processes", "hard", "expected", "warned"),
    [
        (8, 4096, None, 0),  # enough as it is
        (200, 4096, (1712, 4096), 0),
        (200, resource.RLIM_INFINITY, (1712, resource.RLIM_INFINITY), 0),
        (1000, 4096, (4096, 4096), 1),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_needed_and_allowed(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    processes: int,
    hard: int,
    expected: Any,
    warned: int,
) -> None:
    limits: list[Any] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limit: limits.append(limit))
    allow_connections(processes)
    assert (limits, len(caplog.messages)) == ([] if expected is None else [expected], warned)


@pytest.mark.parametrize(("tasks", "warned"), [("2", 1), ("1", 0)])
def test_a_task_of_srun_that_trains_alone_beside_others_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tasks: str, warned: int
) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", tasks)
    monkeypatch.setenv("SLURM_PROCID", "1")
    pick("auto").start(Requests(), torch.device("cpu"))
    assert len(caplog.messages) == warned
    if warned:
        assert caplog.messages[0].startswith(
            "this process is task 1 of 2 that srun has started, but it trains alone, as each of them does."
        )
