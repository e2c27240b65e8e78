"""A process that a hook forks leaves the run of a trainer alone."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from hookline.dialects.pointrix.hook import HOOK_REGISTRY, Hook
from tests.dialects.pointrix.scene import SceneTrainer, config
from tests.faults.children import running


class Forks(Hook):
    """Forks the process once, in the third step, and prints how the new process ended."""

    def __init__(self, way: str) -> None:
        self.way = way

    def after_train_iter(self, trainner: Any) -> None:
        if trainner.global_step == 3 and self.way:
            pid = os.fork()
            if pid == 0:
                if self.way == "leaves":
                    sys.exit(0)
                assert self.way == "goes_on", "on purpose"
            else:
                print(self.way, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    def exception(self) -> None:
        print("a hook sees a failure")


def train(folder: str) -> None:
    HOOK_REGISTRY.register(Forks)
    for way in ("", "leaves", "fails", "goes_on"):
        hooks = {
            "log": {"name": "LogHook"},
            "fork": {"name": "Forks", "way": way},
            "save": {"name": "CheckPointHook", "save_step": 2},
        }
        cfg = config(max_steps=6, hooks=hooks, writer={"writer_type": "JsonlWriter"})
        SceneTrainer(cfg, str(Path(folder, way or "alone"))).train_loop()
        print("trained", way)


def files(folder: Path) -> dict[str, Any]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {"files": sorted(path.name for path in folder.iterdir()), "steps": [each["step"] for each in records]}


def test_a_process_that_a_hook_forks_leaves_the_run_alone(tmp_path: Path) -> None:
    with running(train, str(tmp_path)) as child:
        assert child.wait() == 0, child.output()
        lines = child.output().splitlines()
    starts = ("trained", "leaves", "fails", "goes_on", "a hook")
    assert [line for line in lines if line.startswith(starts)] == [
        *("trained ", "leaves 0", "trained leaves", "fails 1", "trained fails", "goes_on 2", "trained goes_on")
    ]
    assert [line for line in lines if line.startswith("hookline: process ")] != []
    expected = files(tmp_path / "alone")
    assert [files(tmp_path / way) for way in ("leaves", "fails", "goes_on")] == [expected] * 3
