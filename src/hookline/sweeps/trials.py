"""One trial: the command that runs it, its process, and what the end of the process means."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from hookline.common import launched
from hookline.common.files import create_folder, owned, regular, storage_errors
from hookline.errors import StorageError
from hookline.hooks.pruning import END, PRUNED, UNFINISHED
from hookline.rundir.runs import read_checkpoints
from hookline.sweeps.joining import TRIAL
from hookline.sweeps.space import text
from hookline.sweeps.studies import ATTEMPTS, best_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optuna.trial import FrozenTrial

    from hookline.sweeps.studies import Settings

#: Everything that the process of a trial prints, in the folder of the trial.
OUTPUT = "output.log"
#: A process that ends without a result and without progress is started again, but at most this many times in all.
MAX_ATTEMPTS = 3
#: The exit codes after a signal, for which a run has saved a checkpoint.
SIGNALED = (129, 130, 143)


@dataclass
class Job:
    """A trial that this process owns."""

    number: int
    #: The values of the trial, as Optuna has them.
    labels: Mapping[str, Any]
    folder: Path
    #: Continue a run that an earlier process has begun.
    resume: bool = False


class Process(Protocol):
    """A process that runs a trial."""

    def poll(self) -> int | None:
        """Return the exit code; None as long as it runs. A signal that ended it is a negative code."""

    def send(self, number: int) -> None:
        """Send a signal."""

    def kill(self) -> None:
        """End the process, and those that it started, at once."""


class TrainProcess:
    """`hookline train` in a separate session, so that Ctrl-C reaches it once: from the sweep."""

    def __init__(self, settings: Settings, job: Job) -> None:
        with storage_errors(job.folder):
            create_folder(job.folder)
            self._output: IO[bytes] = open(job.folder / OUTPUT, "ab", opener=owned)  # noqa: SIM115  # closed by poll
        self._child = subprocess.Popen(
            command(settings, job),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=environment(settings, job),
            start_new_session=True,
        )

    def poll(self) -> int | None:
        """Return the exit code; None as long as it runs."""
        code = self._child.poll()
        if code is not None:
            self._output.close()
        return code

    def send(self, number: int) -> None:
        """Send a signal."""
        with suppress(ProcessLookupError):
            self._child.send_signal(number)

    def kill(self) -> None:
        """End the process, and those that it started, at once."""
        with suppress(ProcessLookupError):
            if self._child.poll() is None:
                os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._output.close()


def start(settings: Settings, job: Job) -> Process:
    """Start the process of a trial."""
    return TrainProcess(settings, job)


def overrides_of(settings: Settings, job: Job) -> list[str]:
    """Return the overrides of a trial, besides the overrides of all trials."""
    more = ["sweep=null"] if settings.config.data.get("sweep") is not None else []
    return [*settings.space.overrides(job.labels), f"work_dir={text(str(job.folder))}", *more]


def command(settings: Settings, job: Job) -> list[str]:
    """Return the command of a trial."""
    # Python would find modules in the working directory first, unless this process does so, too.
    safe_path = () if sys.path[:1] in ([""], [os.getcwd()]) else ("-P",)
    words = [sys.executable, "-u", *safe_path, "-m", "hookline", "train"]
    words += ["--resume"] if job.resume and not starts_elsewhere(settings, job) else []
    words += [word for module in settings.allow for word in ("--allow", module)]
    return [*words, "--", *settings.words, *overrides_of(settings, job)]


def starts_elsewhere(settings: Settings, job: Job) -> bool:
    """Return whether a trial without a checkpoint has to start from the one that `resume` in the config names."""
    return isinstance(settings.config.data.get("resume"), str) and not read_checkpoints(job.folder)


def environment(settings: Settings, job: Job) -> dict[str, str]:
    """Return the environment of a trial. It has its share of the cores, and ends when the sweep does."""
    joined = {
        "study": settings.study,
        "storage": settings.storage,
        "trial": job.number,
        "monitor": settings.monitor.name,
        "rule": settings.monitor.rule,
        "pruner": settings.pruner,
    }
    variables = {TRIAL: json.dumps(joined), launched.LAUNCHER: str(os.getpid()), launched.GRACE: str(settings.grace)}
    if settings.jobs > 1 and "OMP_NUM_THREADS" not in os.environ:
        variables["OMP_NUM_THREADS"] = str(max((os.cpu_count() or 1) // settings.jobs, 1))
    return {**os.environ, **variables}


# ------------------------------------------------------------------------------------------------------- outcomes


@dataclass(frozen=True)
class Outcome:
    """The meaning of the end of a process for its trial."""

    #: complete, pruned, failed, or unfinished: it has to be continued.
    state: str
    value: float | None = None
    reason: str = ""
    exit_code: int = 0
    #: The number of processes in a row that ended without progress.
    attempts: int = 0


def judge(settings: Settings, job: Job, code: int, trial: FrozenTrial, progress: bool) -> Outcome:
    """Return the outcome of a process. `progress` says whether it has saved a later checkpoint than its predecessor."""
    end, value = trial.user_attrs.get(END), best_value(trial, settings.monitor)
    if code == 0 and end == PRUNED:
        return Outcome("pruned", value)
    if code == 0 and end != UNFINISHED:
        if value is None:
            return Outcome("failed", None, f"no validation returned a finite value of {settings.metric}", 4)
        return Outcome("complete", value)
    if code > 0 and code not in SIGNALED:
        return Outcome("failed", value, read_error(job.folder), code)
    attempts = 0 if progress else int(trial.user_attrs.get(ATTEMPTS, 0)) + 1
    if attempts < MAX_ATTEMPTS:
        return Outcome("unfinished", value, attempts=attempts)
    what = "was stopped" if code == 0 else f"was ended by signal {-code if code < 0 else code - 128}"
    hint = "; is there enough memory?" if code == -signal.SIGKILL else ""
    return Outcome("failed", value, f"its process {what} {attempts} times in a row without progress{hint}", 1)


def last_step(folder: Path) -> int:
    """Return the step of the newest checkpoint of a run; -1 without one."""
    return max((checkpoint.step or 0 for checkpoint in read_checkpoints(folder)), default=-1) if folder.is_dir() else -1


def read_error(folder: Path) -> str:
    """Return the error that ended a trial, in one line, from the last output of its process."""
    try:
        with open(folder / OUTPUT, "rb", opener=regular) as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 20_000, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except (OSError, StorageError):
        lines = []
    return find_error(lines) or "it printed no error"


def find_error(lines: list[str]) -> str:
    """Return the line with the error: hookline's own message, or the last line of a traceback."""
    messages = [n for n, line in enumerate(lines) if line.startswith("hookline: ")]
    traces = [n for n, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if traces and traces[-1] > max(messages, default=-1):
        after = (line for line in lines[traces[-1] + 1 :] if line and not line[0].isspace())
        return next(after, "")
    if messages:
        begin = messages[-1]
        more = [line.strip() for line in lines[begin + 1 :] if line.startswith("  ")]
        message = lines[begin].removeprefix("hookline: ")
        return f"{message} {more[0]}" if more and re.search(r": \d+ errors?$", message) else message
    return next((line for line in reversed(lines) if line.strip()), "")
