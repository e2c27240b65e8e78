"""MMEngine's names on hookline's core: put `hookline.dialects.` before `mmengine` in the imports of a project.

    from hookline.dialects.mmengine.hooks import Hook
    from hookline.dialects.mmengine.registry import HOOKS
    from hookline.dialects.mmengine.runner import Runner

docs/coming-from/mmengine.md lists what maps to what, what is better here, and what is not supported.
"""

from __future__ import annotations

import importlib
from typing import Any

from hookline.dialects.mmengine.version import __version__, version_info

#: The packages whose names `mmengine` itself also exports; each is imported when a name is first requested.
REEXPORTED = ("config", "fileio", "logging", "registry", "utils")
OTHERS = ("dataset", "device", "dist", "evaluator", "hooks", "model", "optim", "runner", "visualization")

__all__ = ["__version__", "version_info"]


def __getattr__(name: str) -> Any:
    """Import a name when it is first requested."""
    if name in (*REEXPORTED, *OTHERS):
        return importlib.import_module(f"{__name__}.{name}")
    if not name.startswith("_"):
        for package in REEXPORTED:
            module = importlib.import_module(f"{__name__}.{package}")
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
