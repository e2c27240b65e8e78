"""Rerun: what a training does while it is repeated. It works in a scratch folder, and ends after the last step."""

from __future__ import annotations

import os
import pdb
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hookline.common.files import real_path
from hookline.errors import ConfigError, HooklineError
from hookline.lifecycle import rerun
from hookline.run.keep import Keep
from hookline.runner.hook import Hook
from hookline.screen.terminal import Terminal
from hookline.writers.router import Writers

if TYPE_CHECKING:
    from hookline.runner.host import RunnerHost
    from hookline.runner.runner import Runner
    from hookline.state.host import Verb

#: A file in the scratch folder: the training that is repeated was reached.
REACHED = "replay.reached"


class ReplayOver(BaseException):  # nothing went wrong, and no code of the user may catch it
    """Leaves the code of the user when the steps were repeated."""


class Ending(Hook):
    """Ends a replay after its last step."""

    priority = "HIGHEST"

    def __init__(self, last: int, before_validation: bool) -> None:
        self.last, self.before_validation = last, before_validation

    def before_train_iter(self, runner: Runner) -> None:
        """End the replay before the step after the last one."""
        if runner.iter >= self.last:
            raise ReplayOver

    def before_val(self, runner: Runner) -> None:
        """End the replay before the validation after the last step, unless the failure came there."""
        if self.before_validation and runner.iter >= self.last and runner.running == "train":
            raise ReplayOver


@dataclass
class Rerun:
    """Steps of one run that are repeated.

    Args:
        folder: The folder of the run, which is only read.
        scratch: The folder that the repeated training writes to.
        checkpoint: The checkpoint to start from; None to start where the run did.
        last: The last step.
        fails: True if the run failed in the last step, or after it.
        observer: The observer that is kept, because the run failed in it.
        threads: The threads that torch computed with.
        debugs: Open a debugger where the run fails.
        watchers: Functions that return more hooks, which look at the steps.
    """

    folder: Path
    scratch: Path
    checkpoint: Path | None
    last: int
    fails: bool = False
    observer: str = ""
    threads: int | None = None
    debugs: bool = False
    watchers: list[Callable[[Runner], Hook]] = field(default_factory=list)

    @contextmanager
    def around(self, host: RunnerHost, verb: Verb) -> Iterator[None]:
        """Let the session of a host repeat the steps, and leave the code of the user after it."""
        refuse_other_run(host, self.folder)
        if verb != "train":
            host.work_dir = self.scratch
            yield
            return
        if not self.fails:  # a run may also fail after its last step
            refuse_late_step(host, self.last)
        self._redirect(host)
        (self.scratch / REACHED).touch()
        try:
            yield
        except Exception as error:
            if self.debugs:
                pdb.post_mortem(error.__traceback__)
            raise ReplayOver from error
        raise ReplayOver

    def _redirect(self, host: RunnerHost) -> None:
        """Let a host train in the scratch folder, without writers and observers, from the checkpoint."""
        from hookline.rundir.archive import RESERVED

        host.work_dir = self.scratch
        host.terminal = Terminal(quiet=True)
        host.use_writers(Writers([], main=host.strategy.is_main, reserved=RESERVED))
        for entry in list(host.plan):
            if entry.role == "observer" and entry.name != self.observer:
                host.plan.remove(entry.hook)
            elif getattr(entry.hook, "out_dir", None) is not None:
                entry.hook.out_dir = str(self.scratch / "elsewhere")
        host.runner.register_hook(Ending(self.last, before_validation=not self.fails))
        for make in self.watchers:
            host.runner.register_hook(make(host.runner))
        outside = [str(folder) for folder in host.folders if not real_path(folder).is_relative_to(self.scratch)]
        if outside:
            raise HooklineError(f"a hook of this run saves to {outside[0]}, which a replay must not change")
        choices = host.start.contract.choices
        choices.keep = Keep()
        choices.resume = False if self.checkpoint is None else self.checkpoint
        if host.acceleration.threads == "auto":
            host.acceleration.threads = self.threads


@contextmanager
def activated(what: rerun.Rerun, folder: Path) -> Iterator[None]:
    """Let the first session of this process, or of those that it forks, do something else than the run did."""
    rerun.active, os.environ[rerun.VARIABLE] = what, str(folder)
    try:
        yield
    finally:
        rerun.active = None
        del os.environ[rerun.VARIABLE]


def refuse_other_run(host: RunnerHost, folder: Path) -> None:
    """Refuse a session in another folder, which would really be written."""
    if real_path(host.work_dir) != folder:
        raise HooklineError(
            f"the code of this run uses another run first, in {host.work_dir}, and a replay of {folder} must not write "
            "there; to replay the run, start it by code that only trains this run"
        )


def refuse_late_step(host: RunnerHost, step: int) -> None:
    """Refuse a step that the run never gets to."""
    total = host.train_loop.total_iters
    if total is not None and step > total:
        raise ConfigError(f"step {step} is after the end of the run, which has {total} steps")


#: Parts of an error's text that differ from one process to the next. torch words the death of a worker in two ways, by
#: whether the signal or the lost connection is seen first. The traceback of a worker depends on how it reads samples.
CHANGING = re.compile(
    r"(?<=Original Traceback)[^\n]*(\n[ \t][^\n]*)*|DataLoader worker \(pid[^;]*"
    r"|0x[0-9a-fA-F]{6,}|\bpid\(?s?\)? ?\(?\d+|\bprocess \d+"
)


def comparable(text: str, scratch: Path | None = None, folder: Path | None = None) -> str:
    """Return the text of an error without what differs between two processes: addresses, process ids, the folder."""
    if scratch is not None and folder is not None:
        text = text.replace(str(scratch), str(folder))
    return CHANGING.sub("…", text)
