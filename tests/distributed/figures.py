"""The figures about several processes that `make faults` prints.

RANKS   the rank kills after which the restarted run ended in the same bits: all
NAMED   the seconds until a dead, a stopped and a hanging rank was named
AGREE   the cost of agreement per step
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from hookline.strategies import stays
from tests.distributed.processes import ROOT, running
from tests.distributed.ranks import run

#: The kills of one run. It has 32 iterations and saves every third one.
KILLS_PER_RUN = 5
ITERATIONS = 32


def measure_rank_kills(
    times: int, folder: Path, seed: int = 0, own_loops: Sequence[bool] = (False, True)
) -> tuple[int, list[str]]:
    """Kill one of two processes, `times` times in total. Return how many kills left no trace, and the failures.

    Runs have, in turn, the loop of a Runner and one of the user, with the same step, as `own_loops` says.
    """
    straight = run("killed", folder / "straight", [])
    assert straight.code == 0, straight.output
    draw, fine, failures = random.Random(seed), 0, []
    for number in range(0, times, KILLS_PER_RUN):
        iterations = sorted(draw.sample(range(1, ITERATIONS), min(KILLS_PER_RUN, times - number)))
        own_loop = own_loops[number // KILLS_PER_RUN % len(own_loops)]
        done = run("killed", folder / f"run_{number}", iterations, own_loop, restarts=len(iterations))
        same = [each.get("hash") for each in done.ranks] == [each["hash"] for each in straight.ranks]
        if done.code == 0 and same and done.ranks[0]["attempt"] == len(iterations):
            fine += len(iterations)
        else:
            failures.append(f"kills at {iterations}: exit code {done.code}; {done.output[-500:]}")
    return fine, failures


def measure_naming(folder: Path) -> dict[str, float]:
    """Return the seconds until a process is named, from the moment when it dies, stops or hangs, by what it does."""
    return {what: _until_named(folder / what, what) for what in ("die", "stop", "loop")}


def _until_named(folder: Path, what: str) -> float:
    folder.mkdir(parents=True)
    worker = ("tests.distributed.hanging", "hang", str(folder), json.dumps([what, 1, 300.0, stays.FLOOR]))
    launcher = ("torch.distributed.run", "--standalone", "--nproc-per-node=2")
    named = re.compile(r"rank 1 (does not answer|hangs|was killed)")
    with running(sys.executable, "-m", *launcher, "-m", *worker, cwd=folder) as command:
        command.until("stops")
        began = time.monotonic()
        command.until(lambda: named.search(command.output()) or (folder / "rank_0.json").exists())
        seconds = time.monotonic() - began
        text = command.output() + "".join(path.read_text() for path in folder.glob("rank_0.json"))
        assert named.search(text), text
        (folder / "continue").touch()
        return seconds


def measure_agreement() -> str:
    """Return the line about the cost of agreement."""
    command = [sys.executable, str(ROOT / "benchmarks" / "distributed.py"), "--json", "--rounds", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found = json.loads(done.stdout)
    return (
        f"{found['agreement_us']:.0f} microseconds per step of {found['hookline_ms']:.1f} ms, which is "
        f"{found['agreement_share']:.2%} of it"
    )
