"""A run in its own process, which may be killed: python -m tests.dialects.pointrix.killed FOLDER [STEP [POINT]]"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from hookline.dialects.pointrix.hook import HOOK_REGISTRY, Hook
from tests.dialects.pointrix.scene import Densify, SceneTrainer, config

HOOK_REGISTRY.register(Densify)


@HOOK_REGISTRY.register()
class Kills(Hook):
    """Kills the process, or fails, at a point in the middle of a step or of a validation."""

    def __init__(self, step: int, point: str) -> None:
        self.step = step
        self.point = point

    def after_train_iter(self, trainner: Any) -> None:
        self._kill(trainner.global_step, "after_train_iter")

    def after_val_iter(self, trainner: Any) -> None:
        self._kill(trainner.iter, "after_val_iter")

    def _kill(self, step: int, point: str) -> None:
        if (step, point) == (self.step, self.point):
            os.kill(os.getpid(), signal.SIGKILL)
        if (step, "fails") == (self.step, self.point):
            raise RuntimeError("failed on purpose")


def main(folder: str, step: int = 0, point: str = "after_train_iter") -> None:
    hooks = {
        "densify": {"name": "Densify", "every": 3},
        "log": {"name": "LogHook"},
        "kill": {"name": "Kills", "step": step, "point": point},
        "save": {"name": "CheckPointHook", "save_step": 4},
    }
    cfg = config(max_steps=14, val_interval=4, hooks=hooks, writer={"writer_type": "JsonlWriter"}, resume=True)
    SceneTrainer(cfg, folder).train_loop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3]) if sys.argv[2:] else main(sys.argv[1])
