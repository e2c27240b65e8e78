"""Start a case of `tests.distributed.cases` in several processes, and collect what each of them returned."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hookline.common.ports import find_free_port
from tests.faults.children import Child, start

#: Seconds after which a case has failed. The slowest takes a tenth of it on an idle machine.
LIMIT = 120
#: Seconds that the other processes have to end after one has failed, and after SIGTERM then asks them to.
NOTICE, LAST = 5, 60


@dataclass
class Outcome:
    """What the processes of a case did."""

    code: int
    output: str
    #: What each process returned, by rank: its result, or `{"error": ..., "code": ...}`.
    ranks: list[dict[str, Any]]


def assert_planted(done: Outcome, where: str) -> None:
    """Rank 1 failed in a hook with a planted error, and rank 0 names it."""
    main, failed = done.ranks
    assert (failed["error"], failed["message"], failed["code"]) == ("ValueError", "planted", 1)
    assert (main["error"], main["code"]) == ("DistributedError", 1)
    first, second = main["message"].splitlines()
    assert first == "rank 1 failed: ValueError: planted"
    assert second.startswith(f"  in hook {where}")


#: A launcher that is started in place of torchrun, for two processes.
ACCELERATE = ("accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--main_process_port=0")


def run(
    case: str,
    folder: Path,
    *arguments: Any,
    nproc: int = 2,
    restarts: int = 0,
    module: str = "cases",
    launcher: tuple[str, ...] = (),
) -> Outcome:
    """Run a case in several processes, or in a single one without a group if `nproc` is 0. Nothing is left behind.

    The processes have the variables that torchrun sets, and start within milliseconds. With restarts, the launcher is
    torchrun itself.
    """
    name = module if "." in module else f"tests.distributed.{module}"
    folder.mkdir(parents=True, exist_ok=True)
    words = [case, str(folder), json.dumps(arguments)]
    if restarts and not launcher:
        launcher = torchrun(nproc, restarts)
    if launcher:
        code, output = _launched([*launcher, "-m", name, *words], LIMIT * (1 + restarts))
    else:
        code, output = _together(name, words, nproc)
    found = [folder / f"rank_{rank}.json" for rank in range(nproc or 1)]
    results = [json.loads(path.read_text()) if path.exists() else {} for path in found]
    return Outcome(code, output, results)


def torchrun(nproc: int = 2, restarts: int = 0) -> tuple[str, ...]:
    """Return the launcher of torch, as the words of a command."""
    return ("torch.distributed.run", "--standalone", f"--nproc-per-node={nproc}", f"--max-restarts={restarts}")


def _launched(words: list[str], limit: float) -> tuple[int, str]:
    """Start processes with a launcher, and return its exit code and what all of them printed."""
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")},
        "OMP_NUM_THREADS": "1",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    command = [sys.executable, "-m", *words]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=limit)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode, output


def _together(module: str, words: list[str], nproc: int) -> tuple[int, str]:
    """Start processes that form a group. As under hookline's own launcher, the first that fails ends the others."""
    variables: list[dict[str, str]] = [{}]
    if nproc:
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_free_port("127.0.0.1"))}
        shared |= {"WORLD_SIZE": str(nproc), "LOCAL_WORLD_SIZE": str(nproc)}
        variables = [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(nproc)]
    ranks = [start(_run_case, module, words, each) for each in variables]
    try:
        codes: dict[Child, int] = {}
        _wait(ranks, codes, LIMIT, until_failure=True)
        _wait(ranks, codes, NOTICE)
        for rank in ranks:
            rank.kill(signal.SIGTERM)
        _wait(ranks, codes, LAST)
        assert len(codes) == len(ranks), "".join(rank.output() for rank in ranks)
        return int(any(codes.values())), "".join(rank.output() for rank in ranks)
    finally:
        for rank in ranks:
            rank.close()


def _wait(ranks: list[Child], codes: dict[Child, int], seconds: float, until_failure: bool = False) -> None:
    """Collect exit codes until all processes have ended, or the first has failed, or the time is over."""
    end = time.monotonic() + seconds
    while len(codes) < len(ranks) and time.monotonic() < end and not (until_failure and any(codes.values())):
        codes |= {rank: rank.wait() for rank in ranks if rank not in codes and rank.has_ended()}
        time.sleep(0.02)


def _run_case(module: str, words: list[str], variables: dict[str, str]) -> None:
    """Run a module as `python -m` does; called in each process."""
    os.environ |= variables
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
