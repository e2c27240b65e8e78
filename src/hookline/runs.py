"""Read a finished or running run back from its folder."""

from hookline.rundir.runs import Checkpoint, Result, Run, is_run, load

__all__ = ["Checkpoint", "Result", "Run", "is_run", "load"]
