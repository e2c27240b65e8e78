"""Running: build a run again as it was built, by its config, its script or its module, and repeat its steps.

No code is run because a file says so. The modules of a config, and a script, are used only if they are below the
working directory. So whoever replays the run of somebody else has to go to the code first.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, chdir, contextmanager, suppress
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from hookline.common import launched
from hookline.common.files import real_path
from hookline.common.tracebacks import format_error
from hookline.errors import ConfigError, HooklineError, exit_code_of
from hookline.replay.rerun import REACHED, ReplayOver, Rerun, activated
from hookline.rundir.names import CONFIG

if TYPE_CHECKING:
    from hookline.replay.preparation import Task

T = TypeVar("T")


def run(task: Task, rerun: Rerun, allow: Sequence[str] = ()) -> None:
    """Repeat the steps in this process. What comes out is in the scratch folder."""
    with ExitStack() as leaving:
        if task.threads is not None:
            leaving.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(task.threads)
        leaving.enter_context(activated(rerun, rerun.folder))
        try:
            build(task.folder, task.origin, allow)
        except (Exception, SystemExit):
            if not (rerun.scratch / REACHED).exists():
                raise
            return  # a script that starts processes fails with them
        if not (rerun.scratch / REACHED).exists():
            raise ConfigError(
                f"the code that started the run has ended without training in {rerun.folder}; check its arguments and "
                "the working directory"
            )


def in_a_process(function: Callable[[], T]) -> T:
    """Call a function in a process of its own, so that no state of a module or of torch is left. Return its result."""
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
            return pool.submit(_ending_with, os.getpid(), function).result()
    except BrokenProcessPool as error:
        raise HooklineError("a training was ended from the outside, or it has used too much memory") from error


def _ending_with(parent: int, function: Callable[[], T]) -> T:
    launched.end_with(parent)
    try:
        return function()
    except HooklineError:
        raise
    except Exception as error:  # frames cannot be sent to another process, and some errors cannot be, either
        failed = HooklineError(
            f"a training in a process of its own has failed:\n{indent(format_error(error).rstrip(), '  ')}"
        )
        failed.exit_code = exit_code_of(error)
        raise failed from error


def build(folder: Path, origin: Mapping[str, Any], allow: Sequence[str] = ()) -> None:
    """Build a run again, and start it, until a `ReplayOver` ends it."""
    with suppress(ReplayOver):
        if origin["kind"] == "config":
            _run_config(folder, allow)
        else:
            _run_code(origin)


def _run_config(folder: Path, allow: Sequence[str]) -> None:
    from hookline.config import build_runner, load

    loaded = load(folder / CONFIG)
    build_runner(loaded, allow=allow, work_dir=folder, resume=False, keep=None, quiet=True).train()


def _run_code(origin: Mapping[str, Any]) -> None:
    """Run a script or a module as its command did, in the folder of the command."""
    folder, file = find_code(origin)
    with chdir(folder), _as_main(file, origin):
        if origin["kind"] == "module":
            runpy.run_module(origin["file"], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(str(file), run_name="__main__")


def find_code(origin: Mapping[str, Any]) -> tuple[Path, Path]:
    """Return the working directory of the command, and the script of a run, or the folder with its module.

    Both have to be below the working directory.
    """
    here, recorded = real_path(Path.cwd()), Path(origin["folder"])
    is_module = origin["kind"] == "module"
    found = False
    for folder in (here, recorded):
        file = folder / ("" if is_module else origin["file"])
        top = folder / str(origin["file"]).partition(".")[0]
        exists = file.is_file() or (is_module and (top.is_dir() or top.with_suffix(".py").is_file()))
        found = found or exists
        if exists and real_path(file).is_relative_to(here) and real_path(folder).is_relative_to(here):
            return folder, file
    what = f"the module {origin['file']}" if is_module else f"the script {origin['file']}"
    if not found:
        raise ConfigError(
            f"the run was started by {what}, which is not in the working directory ({here}); change to the folder "
            "with the code first"
        )
    raise ConfigError(
        f"the run was started by {what} in {recorded}, which is not below the working directory ({here}), so it is not "
        f"run without your word; change the directory first: cd {recorded}"
    )


@contextmanager
def _as_main(file: Path, origin: Mapping[str, Any]) -> Iterator[None]:
    """Give the script the arguments and the path that it was started with."""
    before = sys.argv, list(sys.path)
    sys.argv = [str(file), *origin["words"][1:]]
    sys.path.insert(0, os.getcwd() if origin["kind"] == "module" else str(real_path(file).parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before
