"""Kills while a fresh run moves an earlier one to `old-1/`, before each of the renames."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from hookline.testing import toy_runner
from tests.faults.children import running
from tests.faults.saves import die

if TYPE_CHECKING:
    from hookline.runner.runner import Runner

pytestmark = pytest.mark.processes


def runner_in(folder: Path, out: bool, epochs: int, resume: bool = False) -> Runner:
    hook = {"out_dir": str(folder / "elsewhere")} if out else {}
    return toy_runner(
        work_dir=folder / "run", max_epochs=epochs, resume=resume, default_hooks={"checkpoint": hook | {"interval": 1}}
    )


def start_and_die(folder: str, out: bool, renames: int) -> None:
    """Start a fresh run, and die after this many renames."""
    torch.set_num_threads(1)
    rename, made = os.rename, 0

    def counting(*arguments: Any) -> None:
        nonlocal made
        if made == renames:
            die()
        rename(*arguments)
        made += 1

    setattr(os, "rename", counting)  # noqa: B010  # mypy refuses the assignment
    runner_in(Path(folder), out, 1).train()


def bytes_in(*folders: Path) -> dict[str, bytes]:
    paths = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.name: path.read_bytes() for path in paths if path.name != ".lock"}


def starts_in(folder: Path) -> list[int]:
    """Return the steps at which the run in a folder was started."""
    events = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    return [event["step"] for event in events if event["kind"] == "start"]


def archives_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*old-*"))


@pytest.mark.parametrize("out", [False, True], ids=["one folder", "two folders"])
def test_a_kill_while_an_earlier_run_is_archived_does_not_tear_it_apart(tmp_path: Path, out: bool) -> None:
    whole = tmp_path / "whole"
    runner_in(whole, out, 2).train()
    files = bytes_in(whole)
    outcomes: list[tuple[Any, ...]] = []
    while True:
        killed = shutil.copytree(whole, tmp_path / str(len(outcomes)))
        with running(start_and_die, str(killed), out, len(outcomes)) as child:
            code = child.wait()
            assert code in (0, -signal.SIGKILL), child.output()
        if code == 0:  # there are no more renames
            break

        fresh = shutil.copytree(killed, tmp_path / f"{killed.name} fresh")
        runner_in(fresh, out, 1).train()
        assert bytes_in(*archives_in(fresh)) == files  # all of it, in one archive per folder
        assert [path.name for path in archives_in(fresh)] == ["old-1"] * (1 + out)
        assert starts_in(fresh / "run") == [0]

        runner_in(killed, out, 3, resume=True).train()
        log = (killed / "run" / "run.log").read_text()
        found = archives_in(killed)
        said = [text in log for text in (": a kill had interrupted their move\n", ", which a kill had interrupted\n")]
        outcomes.append((starts_in(killed / "run"), *said, len(found)))
    # The rename after that of the last file decides.
    restored, moved = ([0, 8], True, False, 0), ([0], False, True, 1 + out)
    assert outcomes == [*[restored] * (len(files) + 1), *[moved] * (1 + out)]
