"""Small workers that fail, hang and end as told, and a launcher for them: real processes that need not import torch.

python -m tests.distributed.standin launch '{"nproc": 2}' clean
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

from hookline.common import launched
from hookline.launching.elastic import run
from hookline.launching.options import Options

RANK = int(os.environ.get("RANK", "0"))
FIRST = os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0"


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())  # in one piece, because the processes share the output


def wait_for(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.01)


def error_file(rank: int) -> str:
    folder, name = os.path.split(os.environ[launched.ERROR_FILE])
    return os.path.join(os.path.dirname(folder), str(rank), name)


def forever() -> NoReturn:
    while True:
        time.sleep(0.05)


def shows() -> None:
    """Show the variables of a worker."""
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS", "HOOKLINE_RESUME", "HOOKLINE_TEST"]
    say(" ".join(f"{name}={os.environ.get(name)}" for name in names))


def ends(before: str, code: str) -> None:
    """End with an exit code on rank 1 in the first attempt: before, in or after training."""
    if before != "start":
        launched.mark_started()
    if before == "end":
        launched.mark_ended()
    say(f"rank {RANK} resumes" if launched.must_resume() else f"rank {RANK} begins")
    if FIRST and RANK == 1:
        sys.exit(int(code))


def dies(number: str, before: str = "") -> None:
    """Be killed by a signal on rank 1, in the first attempt."""
    if before != "start":
        launched.mark_started()
    say(f"rank {RANK} resumes" if launched.must_resume() else f"rank {RANK} begins")
    if FIRST and RANK == 1:
        os.kill(os.getpid(), int(number))
        forever()


def explains(first: str, second: str) -> None:
    """Fail on rank 1 and then, because of that, on rank 0, which ends first."""
    if RANK == 1:
        launched.record("the loss is nan\n  raised by CheckHook at after_train_iter")
        wait_for(error_file(0))
        sys.exit(int(first))
    wait_for(error_file(1))
    launched.record("rank 1 does not respond")
    sys.exit(int(second))


def misses() -> None:
    """Fail on rank 1, while rank 0 does not notice it."""
    if RANK == 1:
        launched.record('Traceback (most recent call last):\n  File "train.py", line 1\nValueError: no\n')
        sys.exit(1)
    say("rank 0 waits")
    forever()


def saves() -> None:
    """Save and end after a signal, as a run does. A second signal ends at once."""
    came: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            say(f"rank {RANK} ends at once")
            os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, handle)
    say(f"rank {RANK} trains")
    while not came or (FIRST and os.path.exists("hold")):
        time.sleep(0.01)
    say(f"rank {RANK} saves after {signal.Signals(came[0]).name}")
    sys.exit(128 + came[0])


def nodes() -> None:
    """Train as one of two machines; rank 1 is killed when both train. A machine that loses the other one waits."""
    launched.mark_started()
    resumes = launched.must_resume()
    say(f"rank {RANK} of {os.environ['WORLD_SIZE']} {'resumes' if resumes else 'begins'}")
    if resumes:
        return
    Path(f"trains_{RANK}").touch()
    wait_for(f"trains_{1 - RANK}")
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    forever()


def ignores() -> None:
    """Ignore all signals that can be ignored."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    say(f"rank {RANK} trains")
    forever()


def starts() -> None:
    """Start a process that is not meant to end with the launcher's worker."""
    subprocess.run([sys.executable, "-c", "from hookline.common.launched import end_with_parent as e; e()"], check=True)
    say(f"rank {RANK} started another process")


def look_before_the_end() -> None:
    """Let the processes end right after the launcher's first look at them, which finds them running."""
    from hookline.launching.agent import Agent

    look = Agent._look

    def look_once(self: Agent) -> bool:
        Agent._look = look  # type: ignore[method-assign]
        running = look(self)
        Path("looked").touch()
        for _, process in self._processes():
            process.wait()
        return running

    Agent._look = look_once  # type: ignore[method-assign]


def main() -> None:
    name, *words = sys.argv[1:]
    if name == "launch":
        if os.environ.get("HOOKLINE_TEST") == "early":
            look_before_the_end()
        if os.environ.get("HOOKLINE_TEST") == "silent":
            from hookline.launching import rendezvous

            rendezvous.SILENT = 3.0
        command = [sys.executable, "-m", "tests.distributed.standin", *words[1:]]
        sys.exit(run(command, Options(**json.loads(words[0])), lambda text: say(f"launcher: {text}")))
    launched.end_with_parent()
    if os.environ.get("HOOKLINE_TEST") == "early":
        wait_for("looked")
    globals()[name](*words)


if __name__ == "__main__":
    main()
