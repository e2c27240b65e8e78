"""`hookline train --dry-run`: run everything once, on two batches, in a temporary folder."""

from __future__ import annotations

import copy
import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hookline.cli.common import show

if TYPE_CHECKING:
    from hookline.config.loading import LoadedConfig
    from hookline.runner.runner import Runner

BATCHES = 2


def preview(loaded: LoadedConfig, allow: Sequence[str], command: str, changes: dict[str, Any]) -> None:
    """Show which checkpoint a resume would take, and what differs, without training."""
    from hookline.config import build_runner

    runner = build_runner(loaded, allow=allow, quiet=True, **changes)
    runner._host.hints.continue_with(command)
    resume = runner.preview_resume()
    show(f"dry run: there is no checkpoint in {runner.work_dir} yet" if resume is None else f"dry run: {resume}")


def try_out(loaded: LoadedConfig, allow: Sequence[str]) -> None:
    """Train, validate, test, save and reload. An error that would end the real run later shows up here."""
    from hookline.config import build_runner

    with tempfile.TemporaryDirectory(prefix="hookline-dry-run-") as folder:
        loaded = saving_into(loaded, folder)
        first = build_runner(loaded, allow=allow, work_dir=folder, resume=False, keep=None, quiet=True)
        first._host.shorten(BATCHES)
        first.on("after_train")(lambda runner: runner.request_save())
        with warnings_shown(first):
            first.train()
        if first.exit_code:
            show(f"dry run: stopped by {first.stopped.by}: {first.stopped.reason}")
            raise typer.Exit(first.exit_code)
        show(f"dry run: batches trained: {first.iter}, validations: {first.validations}")
        if first.test_loops:
            first.test()
            show(f"dry run: tested at most {BATCHES} batches of each test set")
        second = build_runner(loaded, allow=allow, work_dir=folder, resume=True, keep=None, quiet=True)
        second._host.shorten(BATCHES)
        second.train()
        show("dry run: saved a checkpoint, and loaded it into a second run; everything works")


@contextmanager
def warnings_shown(runner: Runner) -> Iterator[None]:
    """Show the warnings of a quiet run that come before its first step. Later ones may be due to its short length."""

    class Shows(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING and not runner.iter:
                show(f"dry run: warning: {self.format(record)}")

    log, handler = logging.getLogger("hookline"), Shows()
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def saving_into(loaded: LoadedConfig, folder: str) -> LoadedConfig:
    """Return the config with the `out_dir` of every hook inside the folder, so that no files are left behind."""
    data = copy.deepcopy(loaded.data)
    defaults, customs = data.get("default_hooks"), data.get("custom_hooks")  # not validated yet
    hooks = list(defaults.values()) if isinstance(defaults, dict) else []
    for hook in [*hooks, *(customs if isinstance(customs, list) else ())]:
        if isinstance(hook, dict) and hook.get("out_dir") is not None:
            hook["out_dir"] = str(Path(folder) / "elsewhere")
    return replace(loaded, data=data)
