"""Commands that start processes, with a time limit, and with nothing left over at the end.

with running(sys.executable, "-m", "hookline", "train", "--nproc", "2", cwd=folder) as run:
    run.until("saved")             wait for a text in its output
    run.send(signal.SIGTERM)
    assert run.wait() == 143
    assert run.processes() == []   nothing is left behind
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Far more than any command needs, so that a slow machine makes no difference.
SECONDS = 120.0
MARK = "HOOKLINE_TEST_COMMAND"


class Command:
    """A command that was started, and all processes that come from it: they inherit a variable with its own value."""

    def __init__(self, words: tuple[str, ...], cwd: Path, variables: dict[str, str]) -> None:
        self._end = time.monotonic() + SECONDS
        self._mark = f"{MARK}={uuid.uuid4().hex}"
        handle, name = tempfile.mkstemp(prefix="hookline-command-", suffix=".log")
        self._file = Path(name)
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        given = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path, **variables}
        given[MARK] = self._mark.partition("=")[2]
        with open(handle, "wb") as output:
            self._process = subprocess.Popen(
                words,
                cwd=cwd,
                env=given,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def output(self) -> str:
        """Return what it has printed so far."""
        return self._file.read_text(encoding="utf-8", errors="replace")

    def until(self, condition: str | Callable[[], object]) -> None:
        """Wait for a text in the output, or for a condition."""
        while not (condition in self.output() if isinstance(condition, str) else condition()):
            ended = self._process.poll() is not None and isinstance(condition, str) and condition not in self.output()
            assert not ended, f"the command ended without {condition!r}; it printed:\n{self.output()}"
            assert time.monotonic() < self._end, f"no {condition!r} within {SECONDS} s; output:\n{self.output()}"
            time.sleep(0.02)

    def send(self, number: int) -> None:
        """Send a signal to the command itself."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Return its exit code, or minus the signal that ended it."""
        try:
            return self._process.wait(self._end - time.monotonic())
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the command did not end within {SECONDS} s; it printed:\n{self.output()}") from None

    def processes(self) -> list[int]:
        """Return the processes of the command that are still running, without the command itself."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has just ended, or belongs to somebody else
                is_ours = self._mark.encode() in (folder / "environ").read_bytes().split(b"\0")
                if is_ours and int(folder.name) != self.pid:
                    found.append(int(folder.name))
        return found

    def close(self) -> None:
        """Kill what is left."""
        for pid in [*([self.pid] if self._process.poll() is None else []), *self.processes()]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._file.unlink()


@contextmanager
def running(*words: str, cwd: Path, **variables: str) -> Iterator[Command]:
    """Start a command, with variables of the environment, and kill everything that is left of it afterwards."""
    command = Command(words, cwd, variables)
    try:
        yield command
    finally:
        command.close()
