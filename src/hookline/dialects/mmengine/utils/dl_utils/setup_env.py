"""How processes are started."""

from __future__ import annotations

import os

import torch


def set_multi_processing(mp_start_method: str = "fork", opencv_num_threads: int = 0, distributed: bool = False) -> None:
    """How processes are started; where there are several, each computes with one thread, unless that is said."""
    torch.multiprocessing.set_start_method(mp_start_method, force=True)
    if distributed and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
