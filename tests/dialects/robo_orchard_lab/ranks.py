"""Trainings in two processes, in which one of them does something. `tests.distributed.ranks.run` starts them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hookline.dialects.robo_orchard_lab.pipeline import ResumeCheckpointConfig
from hookline.dialects.robo_orchard_lab.pipeline.hooks import SaveCheckpointConfig
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import HookContext, PipelineHookArgs, PipelineHooks
from tests.dialects.robo_orchard_lab import parts
from tests.distributed.cases import main


class Act(PipelineHooks):
    """Does something at the end of the second step of one process: raises, or sends itself a signal."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.register_hook("on_step", HookContext.from_callable(after=self.act))

    def act(self, args: PipelineHookArgs) -> None:
        if args.accelerator.process_index == 1 and args.global_step_id == 1:
            if self.what == "raise":
                raise ValueError("planted")
            os.kill(os.getpid(), getattr(signal, self.what))


def failed(folder: str, what: str) -> dict[str, Any]:
    """Train until one process fails."""
    parts.trainer(Path(folder), hooks=[Act(what), SaveCheckpointConfig(save_step_freq=1)])()
    return {}


def signaled(folder: str) -> dict[str, Any]:
    """Train to the end; then until one process gets a signal, and from there to the end."""
    straight, ended = parts.trainer(max_epoch=4), Path(folder, "ended")
    straight()
    trainer = parts.trainer(ended, max_epoch=4, hooks=[Act("SIGTERM"), SaveCheckpointConfig()])
    with pytest.raises(SystemExit) as found:
        trainer()
    resumed = parts.trainer(max_epoch=4, resume_from=ResumeCheckpointConfig(resume_from=str(ended)), hooks=[])
    resumed()
    return {
        "code": found.value.code,
        "steps": [trainer.position.iter, resumed.position.iter],
        "processes": resumed.accelerator.num_processes,
        "equal": parts.equal(parts.weights(straight), parts.weights(resumed)),
        "folders": parts.folders(ended / "checkpoints"),
    }


if __name__ == "__main__":
    main(globals())
