"""`hookline train --dry-run`: run everything once, on two batches, in a temporary folder."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hookline.cli.common import show

if TYPE_CHECKING:
    from hookline.config.loading import LoadedConfig

BATCHES = 2


def try_out(loaded: LoadedConfig, allow: Sequence[str]) -> None:
    """Train, validate, test, save and reload. An error that would end the real run later shows up here."""
    from hookline.config import build_runner

    with tempfile.TemporaryDirectory(prefix="hookline-dry-run-") as folder:
        loaded = _saving_into(loaded, folder)
        first = build_runner(loaded, allow=allow, work_dir=folder, resume=False, quiet=True)
        first.shorten(BATCHES)
        first.on("after_train")(lambda runner: runner.request_save())
        first.train()
        if first.exit_code:
            show(f"dry run: stopped by {first.stopped.by}: {first.stopped.reason}")
            raise typer.Exit(first.exit_code)
        show(f"dry run: batches trained: {first.iter}, validations: {first.validations}")
        if first.test_loops:
            first.test()
            show(f"dry run: tested at most {BATCHES} batches of each test set")
        second = build_runner(loaded, allow=allow, work_dir=folder, resume=True, quiet=True)
        second.shorten(BATCHES)
        second.train()
        show("dry run: saved a checkpoint, and loaded it into a second run; everything works")


def _saving_into(loaded: LoadedConfig, folder: str) -> LoadedConfig:
    """Return the config with the `out_dir` of every hook inside the folder, so that no files are left behind."""
    data = copy.deepcopy(loaded.data)
    defaults, customs = data.get("default_hooks"), data.get("custom_hooks")  # not validated yet
    hooks = list(defaults.values()) if isinstance(defaults, dict) else []
    for hook in [*hooks, *(customs if isinstance(customs, list) else ())]:
        if isinstance(hook, dict) and hook.get("out_dir") is not None:
            hook["out_dir"] = str(Path(folder) / "elsewhere")
    return replace(loaded, data=data)
