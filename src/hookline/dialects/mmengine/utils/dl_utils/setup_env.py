"""Set up how processes are started."""

from __future__ import annotations

import os

import torch


def set_multi_processing(mp_start_method: str = "fork", opencv_num_threads: int = 0, distributed: bool = False) -> None:
    """Set how processes are started; distributed processes use one thread each, unless OMP_NUM_THREADS is set."""
    torch.multiprocessing.set_start_method(mp_start_method, force=True)
    if distributed and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
