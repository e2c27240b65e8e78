"""Start a case of `tests.distributed.cases` in several processes, and collect what each of them returned."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Seconds after which a case has failed. The slowest takes a tenth of it on an idle machine.
LIMIT = 120


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
    """Run a case under torchrun, or in a single process without it if `nproc` is 0. Nothing is left behind."""
    name = module if "." in module else f"tests.distributed.{module}"
    worker = ["-m", name, case, str(folder), json.dumps(arguments)]
    options = ["--standalone", f"--nproc-per-node={nproc}", f"--max-restarts={restarts}"]
    chosen = launcher or ("torch.distributed.run", *options)
    command = [sys.executable, *(["-m", *chosen] if nproc else []), *worker]
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")},
        "OMP_NUM_THREADS": "1",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=LIMIT * (1 + restarts))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    found = [folder / f"rank_{rank}.json" for rank in range(nproc or 1)]
    results = [json.loads(path.read_text()) if path.exists() else {} for path in found]
    return Outcome(process.returncode, output, results)
