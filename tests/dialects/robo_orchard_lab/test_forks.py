"""A process that a hook forks leaves the run of a trainer alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from hookline.dialects.robo_orchard_core.utils.hook import HookContext
from hookline.dialects.robo_orchard_lab.pipeline.hooks import SaveCheckpointConfig
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import PipelineHooks
from tests.dialects.robo_orchard_lab import parts
from tests.faults.children import running


class Forks(PipelineHooks):
    """Forks the process once at a channel, and prints how the new process ended."""

    def __init__(self, channel: Any, way: str) -> None:
        super().__init__()
        self.way, self.calls = way, 0
        self.register_hook(channel, HookContext.from_callable(None, self.fork, None))

    def fork(self, args: Any) -> None:
        self.calls += 1
        if self.calls > 1 or not self.way:
            return
        pid = os.fork()
        if pid == 0:
            if self.way == "leaves":
                sys.exit(0)
            assert self.way == "goes_on", "on purpose"
        else:
            print(self.way, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            print(sorted(path.name for path in Path(os.environ["RUN"]).glob(".lock")))


def train(folder: str, channel: str) -> None:
    for way in ("", "leaves", "fails", "goes_on"):
        os.environ["RUN"] = str(Path(folder, way))
        trainer = parts.trainer(
            Path(folder, way or "alone"),
            hooks=[SaveCheckpointConfig(save_step_freq=1), Forks(channel, way)],
            max_step=3,
        )
        trainer()
        print("trained", trainer.position.iter, parts.folders(Path(folder, way or "alone", "checkpoints")))


@pytest.mark.parametrize("channel", ["on_loop", "on_epoch", "on_step", "on_batch"])
def test_a_process_that_a_hook_forks_leaves_the_run_alone(tmp_path: Path, channel: str) -> None:
    with running(train, str(tmp_path), channel) as child:
        assert child.wait() == 0, child.output()
        lines = child.output().splitlines()
    saved = f"trained 3 {parts.folders(tmp_path / 'alone' / 'checkpoints')}"
    starts = ("trained", "leaves", "fails", "goes_on", "[")
    assert [line for line in lines if line.startswith(starts)] == [
        saved,
        *("leaves 0", "['.lock']", saved),
        *("fails 1", "['.lock']", saved),
        *("goes_on 2", "['.lock']", saved),
    ]
    assert not list(tmp_path.rglob(".lock"))
