from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hookline.testing import MemoryWriter, toy_runner

if TYPE_CHECKING:
    from hookline import Runner


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.pth"))


def test_nothing_of_an_interrupted_run_is_left_for_the_next() -> None:
    runner = toy_runner(max_epochs=1, accumulate=4)

    @runner.on("after_backward")
    def interrupt(runner: Runner) -> None:
        if runner.iter == 1:
            runner.stop("old")
            runner.request_save()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.train()
    runner.remove_hook(interrupt)
    runner.train()
    assert runner.epoch == 1
    assert checkpoints(runner.work_dir) == ["epoch_1.pth"]


def test_a_writer_that_fails_to_close_leaves_the_runner_and_the_others_in_order() -> None:
    class Fails(MemoryWriter):
        def close(self) -> None:
            raise OSError("away")

    class Closes(MemoryWriter):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    other = Closes()
    runner = toy_runner(max_epochs=1, writers=[Fails(), other])
    runner.train()
    assert (runner.running, other.closed) == (None, 1)
    assert "warning: Fails failed: OSError: away; the run continues" in (runner.work_dir / "run.log").read_text()
