"""MMEngine's names over hookline's core: put `hookline.dialects.` before `mmengine` in the imports of a project.

    from hookline.dialects.mmengine.hooks import Hook
    from hookline.dialects.mmengine.registry import HOOKS
    from hookline.dialects.mmengine.runner import Runner

What maps to what, what is better here and what is not taken over stands in docs/coming-from/mmengine.md.
"""

from __future__ import annotations

import importlib
from typing import Any

#: What `mmengine` itself offers, and where it is here; imported when first asked for.
NAMES = {
    "Config": "config",
    "ConfigDict": "config",
    "DictAction": "config",
    "MMLogger": "logging",
    "MessageHub": "logging",
    "print_log": "logging",
    "Registry": "registry",
    "build_from_cfg": "registry",
    "dump": "fileio",
    "load": "fileio",
    "mkdir_or_exist": "utils",
    "track_iter_progress": "utils",
}

#: The release whose names these are.
__version__ = "0.10.7"


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for."""
    if name in NAMES:
        return getattr(importlib.import_module(f"{__name__}.{NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
