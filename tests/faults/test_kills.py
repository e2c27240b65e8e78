from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.children import running
from tests.faults.kills import KINDS, kill_and_resume, reference, wait_until
from tests.faults.runs import DIGESTS, as_command, digests, everything, train


@pytest.mark.parametrize("kind", KINDS)
def test_fault_1_every_resume_after_a_kill_has_the_state_of_the_uninterrupted_run(tmp_path: Path, kind: str) -> None:
    seen = kill_and_resume(tmp_path, kind, times=5, seed=1)
    assert (seen.kills, seen.identical, seen.failures) == (5, 5, [])


def without_times(path: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in record.items() if not name.endswith("time")} for record in records]


@pytest.mark.parametrize("kind", KINDS)
def test_fault_1_the_records_of_a_killed_run_equal_an_uninterrupted_one(tmp_path: Path, kind: str) -> None:
    reference(tmp_path / "whole", kind)
    killed = tmp_path / "killed"
    for iteration in (8, 20, 37):
        with running(train, str(killed), kind) as child:
            assert wait_until(lambda at=iteration: str(at) in dict(digests(killed)))  # type: ignore[misc]  # bound now
            child.kill(signal.SIGKILL)
            assert child.wait() == -signal.SIGKILL
    with running(train, str(killed), kind) as child:
        assert child.wait() == 0, child.output()
    assert without_times(killed / "metrics.jsonl") == without_times(tmp_path / "whole" / "metrics.jsonl")
    ours = (DIGESTS, "resume.json")
    files = [sorted(p.name for p in (tmp_path / name).iterdir() if p.name not in ours) for name in ("whole", "killed")]
    assert files[0] == files[1]


def processes_in_group(group: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, in_group = (entry / "stat").read_text().rpartition(") ")[2].split()[:3]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(in_group) == group and state != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("kind", ["workers", "persistent"])
def test_fault_3_loader_workers_die_with_the_run(tmp_path: Path, kind: str) -> None:
    with running(train, str(tmp_path), kind) as child:
        assert wait_until(lambda: len(digests(tmp_path)) >= 3)
        assert len(processes_in_group(child.pid)) == 3
        child.kill(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        assert wait_until(lambda: processes_in_group(child.pid) == [])


def test_fault_4_a_killed_worker_is_named_with_exit_code_3_and_the_resume_is_exact(tmp_path: Path) -> None:
    expected = reference(tmp_path / "whole", "persistent")
    folder = tmp_path / "broken"
    with running(as_command, train, str(folder), "persistent") as child:
        assert wait_until(lambda: len(digests(folder)) >= 10)
        worker = max(processes_in_group(child.pid))
        os.kill(worker, signal.SIGKILL)
        assert child.wait() == 3, child.output()
        # torch reports it at once or when it next waits for that worker, with different messages.
        assert re.search(rf"DataLoader worker \(pid(\(s\))? {worker}\) (is killed by signal|exited)", child.output())
        assert "a worker process of a loader died" in child.output()
    with running(train, str(folder), "persistent") as child:
        assert child.wait() == 0, child.output()
    assert [where for where, state in digests(folder) if expected[where] != state] == []


def test_the_digest_sees_every_part_of_a_state(tmp_path: Path) -> None:
    from hookline.checkpoint import store
    from tests.faults.runs import digest

    runner = everything(tmp_path, "plain", resume=False)
    runner.train()
    path = max(tmp_path.glob("iter_*.pth"))
    whole = digest(store.read(path, sealed=True))
    assert digest(store.read(path, sealed=True)) == whole
    changes: list[Callable[[Any], Any]] = [
        lambda c: c["state_dict"]["1.running_mean"].add_(1e-6),
        lambda c: c["optimizer"]["state"][0]["momentum_buffer"].mul_(1.00001),
        lambda c: c["param_schedulers"][0].update(last_epoch=0),
        lambda c: c["scaler"].update(scale=1.0),
        lambda c: c["hooks"]["EMAHook"]["averaged"]["0.weight"].add_(1e-6),
        lambda c: c["hooks"]["EarlyStoppingHook"].update(extra=1),
        lambda c: c["hooks"]["Remembers"].update(drawn=0.0),
        lambda c: c["message_hub"]["scalars"]["train/loss"]["values"].add_(1e-9),
        lambda c: c["rng"]["torch"].add_(1),
        lambda c: c["rng"]["numpy"][1].add_(1),
        lambda c: c["rng"]["python"][1].add_(1),
        lambda c: c["position"].update(batch=99),
    ]
    for change in changes:
        checkpoint = store.read(path, sealed=True)
        change(checkpoint)
        assert digest(checkpoint) != whole
