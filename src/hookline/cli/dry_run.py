"""`hookline train --dry-run`: everything once, on two batches, in a folder that goes away."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from hookline.config.loading import LoadedConfig
    from hookline.engine.loop_specs import EvalLoop, TrainLoop
    from hookline.engine.runner import Runner

BATCHES = 2


def try_out(loaded: LoadedConfig, allow: Sequence[str]) -> None:
    """Train, validate, test, save, and load what was saved; an error here is one that would have come later."""
    with tempfile.TemporaryDirectory(prefix="hookline-dry-run-") as folder:
        first = _shortened(loaded, allow, folder)
        first.on("after_train")(lambda runner: runner.request_save())
        first.train()
        if first.exit_code:
            print(f"dry run: stopped by {first.position.stopped_by}: {first.position.stopped}")
            raise typer.Exit(first.exit_code)
        print(f"dry run: batches trained: {first.iter}, validations: {first.validations}")
        if first.test_loops:
            first.test()
            print(f"dry run: tested {BATCHES} batches at most of each test set")
        second = _shortened(loaded, allow, folder)
        second.resume = True
        second.train()
        print("dry run: saved a checkpoint, and loaded it into a second run; everything works")


def _shortened(loaded: LoadedConfig, allow: Sequence[str], folder: str) -> Runner:
    from hookline.config import build_runner

    runner = build_runner(loaded, allow=allow)
    runner.work_dir, runner.resume, runner.terminal.quiet = Path(folder), False, True
    for hook in runner.hooks:
        if hasattr(hook, "out_dir"):
            hook.out_dir = None  # what a dry run saves goes away with its folder
    loop = runner.train_loop
    every_loop: list[TrainLoop | EvalLoop] = [loop, *runner.val_loops.values(), *runner.test_loops.values()]
    for each in every_loop:
        each.limit_batches = min(each.limit_batches or BATCHES, BATCHES)
    if loop.by_epoch:
        loop.max_epochs = 1
    else:
        loop.max_iters = min(loop.max_iters or BATCHES, BATCHES)
    return runner
