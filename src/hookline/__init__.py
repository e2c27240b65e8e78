"""hookline: a hook-driven training engine for PyTorch.

    from hookline import Runner, TrainLoop, EvalLoop, Optim, Hook

These names are imported when they are first used, so `import hookline` is fast.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from hookline.common.version import VERSION

if TYPE_CHECKING:
    from hookline.engine.loop_specs import EvalLoop, TrainLoop
    from hookline.integrations.session import session
    from hookline.launching.functions import launch
    from hookline.optim.optim import Optim
    from hookline.plan.hook import Priority, every, not_a_point
    from hookline.plan.milestones import Milestone
    from hookline.plan.modules import on_module
    from hookline.plan.registry import HOOKS, WRITERS
    from hookline.record.hub import MessageHub
    from hookline.rundir import runs
    from hookline.runner.hook import Hook
    from hookline.runner.runner import Runner
    from hookline.writers.base import Writer

__version__ = VERSION

__all__ = [
    "HOOKS",
    "WRITERS",
    "EvalLoop",
    "Hook",
    "MessageHub",
    "Milestone",
    "Optim",
    "Priority",
    "Runner",
    "TrainLoop",
    "Writer",
    "__version__",
    "every",
    "launch",
    "not_a_point",
    "on_module",
    "runs",
    "session",
]

_HOME = {
    "HOOKS": "plan.registry",
    "WRITERS": "plan.registry",
    "EvalLoop": "engine.loop_specs",
    "Hook": "runner.hook",
    "MessageHub": "record.hub",
    "Milestone": "plan.milestones",
    "Optim": "optim.optim",
    "Priority": "plan.hook",
    "Runner": "runner.runner",
    "TrainLoop": "engine.loop_specs",
    "Writer": "writers.base",
    "every": "plan.hook",
    "launch": "launching.functions",
    "not_a_point": "plan.hook",
    "on_module": "plan.modules",
    "session": "integrations.session",
}


# The names that are modules.
_MODULES = frozenset({"runs"})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"hookline.{name}")  # importing it also sets the attribute
    if name in _HOME:
        home = f"hookline.{_HOME[name]}"
        if home not in sys.modules:
            from hookline.common.collector import paused

            with paused():
                importlib.import_module(home)
        value = getattr(sys.modules[home], name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'hookline' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
