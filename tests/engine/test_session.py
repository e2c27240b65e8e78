from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from hookline import Optim
from hookline.errors import HooklineError
from hookline.hooks import LoggerHook
from hookline.testing import MemoryWriter, toy_model, toy_runner

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


@pytest.mark.parametrize("verb", ["train", "val", "test"])
def test_a_run_inside_a_run_is_refused_without_touching_the_outer_log(verb: str) -> None:
    runner = toy_runner(max_epochs=1)

    @runner.on("before_train")
    def start_another(runner: Runner) -> None:
        with pytest.raises(HooklineError, match=rf"^runner\.{verb}\(\) was called inside runner\.train\(\)"):
            getattr(runner, verb)()
        runner.terminal.say("the outer run continues")

    runner.train()
    log = (runner.work_dir / "run.log").read_text()
    assert "the outer run continues" in log
    assert "ended:" not in log
    assert runner.iter == 4


def test_a_runner_with_several_optims_evaluates_whatever_its_training_step_is() -> None:
    model = toy_model()
    optims = {name: Optim(torch.optim.SGD(model.parameters(), lr=0.1)) for name in ("a", "b")}
    assert list(toy_runner(model=model, optim=optims).val()) == ["accuracy"]


def test_a_hook_that_is_registered_during_a_run_gets_its_copies_of_the_logs(tmp_path: Path) -> None:
    runner = toy_runner(max_epochs=1, work_dir=tmp_path / "run", default_hooks={"logger": None})
    runner.on("before_train")(lambda runner: runner.register_hook(LoggerHook(out_dir=str(tmp_path / "copies"))))
    runner.train()
    assert "run.log" in [path.name for path in (tmp_path / "copies" / "run").iterdir()]
