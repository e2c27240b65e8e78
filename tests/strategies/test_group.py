"""The group of processes: what is left of it in copies of a process."""

from __future__ import annotations

import gc
import multiprocessing
from pathlib import Path

from torch import distributed

from hookline.testing import toy_runner
from tests.faults.children import running


def train_then_copy(folder: str) -> None:
    """Train in a group of one process, leave it, and copy this process, as the workers of a loader do."""
    toy_runner(work_dir=Path(folder), strategy="ddp").train()
    distributed.destroy_process_group()
    gc.collect()
    copy = multiprocessing.get_context("fork").Process(target=int)
    copy.start()
    copy.join()
    assert copy.exitcode == 0


def test_a_copy_of_a_process_does_not_delete_the_group(tmp_path: Path) -> None:
    with running(train_then_copy, str(tmp_path)) as child:
        assert child.wait() == 0, child.output()
