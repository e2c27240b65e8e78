"""The splatting example as an importable module, and as a process that kills itself at a given point.

python -m tests.examples.splatting POINT STEP [options of train.py]
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hookline.dialects.pointrix.hook import HOOK_REGISTRY, Hook

FOLDER = Path(__file__).parents[2] / "examples" / "splatting"
MODULES = ("model", "renderer", "densify", "pictures", "train")


@contextmanager
def example() -> Iterator[SimpleNamespace]:
    """Import the modules of the example, and remove them afterwards, because their names are common."""
    known = dict(sys.modules)
    registered = dict(HOOK_REGISTRY._registered)
    sys.path.insert(0, str(FOLDER))
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    finally:
        sys.path.remove(str(FOLDER))
        HOOK_REGISTRY._registered = registered
        for name in MODULES:
            sys.modules.pop(name, None)
        sys.modules |= {name: known[name] for name in MODULES if name in known}


class KillHook(Hook):
    """Kills the process with SIGKILL at a given point and step."""

    def __init__(self, point: str, step: int) -> None:
        self.point, self.step = point, step

    def refine_points(self, trainer: Any) -> None:
        self._kill("refine_points", trainer.global_step)

    def after_val_iter(self, trainer: Any) -> None:
        self._kill("after_val_iter", trainer.iter)

    def _kill(self, point: str, step: int) -> None:
        if (point, step) == (self.point, self.step):
            os.kill(os.getpid(), signal.SIGKILL)


def main(point: str, step: str, *options: str) -> None:
    HOOK_REGISTRY.register(KillHook)
    kill = [
        f"trainer.hooks.kill.{key}={value}" for key, value in (("name", "KillHook"), ("point", point), ("step", step))
    ]
    sys.argv = ["train.py", *options, *kill]
    with example() as modules:
        modules.train.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
