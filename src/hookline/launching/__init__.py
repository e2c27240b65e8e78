"""Starting several processes: a command with torch's elastic launcher, or a function from a script or a notebook.

    run(command, Options(nproc=2))      -> the exit code
    launch(function, nproc=2)           -> the results, by rank

The messages of a started process to its launcher are in `hookline.common.launched`.
"""

from __future__ import annotations

from hookline.launching.elastic import run
from hookline.launching.options import Options

__all__ = ["Options", "run"]  # launch is `hookline.launch`; its module imports torch
