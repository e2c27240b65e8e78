"""Measure what `hookline watch` with 20 open pages costs a training.

The server is a process of its own and only reads files, so a training can lose nothing but processor time to it. One
training runs all the time. Pages are opened and closed again in turns, and two things are reported:

- slowdown: the time per step with pages against the time without them. Phases take turns in one training, and the
  fastest windows of both are compared, because everything else on the machine only ever makes a window slower.
- server: the CPU time that the server takes per second, without a page, with one, and with all of them. On a machine
  whose cores are all busy, this is what the training can lose at most.

python benchmarks/watching.py              a table
python benchmarks/watching.py --json       the same as JSON
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

#: Steps of a window, whose time is taken together.
WINDOW = 10
#: A phase begins when pages are open and have loaded, in seconds after the first of them was opened.
SETTLE = 2.0
TRAINING = f"""
import sys, time
import torch
from torch import nn
from hookline import Optim, Runner, TrainLoop

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
batch = torch.randn(64, 256), torch.randint(10, (64,))
runner = Runner(
    model,
    train=TrainLoop([batch] * 1000, max_epochs=100000, step=lambda m, b: nn.functional.cross_entropy(m(b[0]), b[1])),
    optim=Optim(torch.optim.SGD(model.parameters(), lr=0.0)),
    default_hooks={{"checkpoint": None}}, work_dir=sys.argv[1], device="cpu", quiet=True,
)
file = open(sys.argv[2], "w", buffering=1)

@runner.on("after_train_iter", every={WINDOW})
def tell(runner):
    print(time.monotonic(), time.process_time(), file=file)

runner.train()
"""


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has taken so far."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


class Tab:
    """An open page: it has loaded the page and its data, and follows the stream of records."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._place, self._token = (parts.hostname or "", parts.port or 0), parts.query
        self._get("/")
        (run,) = (row["id"] for row in json.loads(self._get("/api/runs"))["list"])
        self._get(f"/api/runs/{run}")
        self.stream = self._ask(f"/api/runs/{run}/stream")

    def _ask(self, path: str) -> socket.socket:
        made = socket.create_connection(self._place)
        made.sendall(f"GET {path}?{self._token} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return made

    def _get(self, path: str) -> bytes:
        with self._ask(path) as made:
            return b"".join(iter(lambda: made.recv(1 << 20), b"")).partition(b"\r\n\r\n")[2]


@contextmanager
def tabs(url: str, number: int) -> Iterator[list[Tab]]:
    """Open pages, and close them."""
    with ExitStack() as opened:
        made = [Tab(url) for _ in range(number)]
        for tab in made:
            opened.enter_context(tab.stream)
        yield made


def take_in(opened: list[Tab], seconds: float) -> int:
    """Read what the pages are sent, for some time, and return the number of bytes."""
    end, received = time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(0.25, left))
        for tab in opened:
            tab.stream.setblocking(False)
            with suppress(BlockingIOError):
                received += len(tab.stream.recv(1 << 20))
    return received


@contextmanager
def started(*words: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a process, and end it."""
    process = subprocess.Popen([sys.executable, *words], text=True, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def measure(rounds: int, seconds: float, number: int) -> dict[str, Any]:
    """Train, and open and close pages in turns."""
    counts = (0, 1, number)
    phases: list[tuple[int, float, float]] = []
    spent: dict[int, list[float]] = {count: [] for count in counts}
    received = 0
    with tempfile.TemporaryDirectory() as folder:
        run, times = Path(folder) / "run", Path(folder) / "times"
        with started("-c", TRAINING, str(run), str(times)):
            while not (run / "metrics.jsonl").exists():
                time.sleep(0.1)
            words = ("-u", "-m", "hookline", "watch", str(run), "--port", "0")
            with started(*words, stdout=subprocess.PIPE) as server:
                assert server.stdout is not None
                url = server.stdout.readline().split()[-1]
                with tabs(url, 1):
                    time.sleep(SETTLE)  # the first page imports and compiles
                for _ in range(rounds):
                    for count in counts:
                        with tabs(url, count) as opened:
                            take_in(opened, SETTLE)
                            began, before = time.monotonic(), cpu_seconds(server.pid)
                            received += take_in(opened, seconds)
                            ended = time.monotonic()
                            spent[count].append((cpu_seconds(server.pid) - before) / (ended - began))
                            phases.append((count, began, ended))
        rows = [tuple(map(float, line.split())) for line in times.read_text().splitlines() if line.count(" ") == 1]
    return {"phases": windows_of(rows, phases, counts), "server": spent, "received": received, "tabs": number}


def windows_of(
    rows: list[tuple[float, ...]], phases: list[tuple[int, float, float]], counts: tuple[int, ...]
) -> dict[int, dict[str, list[float]]]:
    """Return, by the number of pages, the seconds per step of every window that lies within a phase."""
    found: dict[int, dict[str, list[float]]] = {count: {"wall": [], "cpu": []} for count in counts}
    for (begin, cpu_before), (end, cpu) in pairwise(rows):
        for count, began, ended in phases:
            if began <= begin and end <= ended:
                found[count]["wall"].append((end - begin) / WINDOW)
                found[count]["cpu"].append((cpu - cpu_before) / WINDOW)
    return found


def fastest(windows: list[float]) -> float:
    """Return the mean of the fastest tenth."""
    kept = sorted(windows)[: max(1, len(windows) // 10)]
    return sum(kept) / len(kept)


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often pages are opened and closed")
    parser.add_argument("--seconds", type=float, default=6.0, help="how long they stay open")
    parser.add_argument("--tabs", type=int, default=20, help="the number of pages")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    found = measure(options.rounds, options.seconds, options.tabs)
    result = {
        count: {
            **{f"{kind}_ms": fastest(values) * 1e3 for kind, values in found["phases"][count].items()},
            "slowdown": fastest(found["phases"][count]["wall"]) / fastest(found["phases"][0]["wall"]) - 1,
            "cpu_slowdown": fastest(found["phases"][count]["cpu"]) / fastest(found["phases"][0]["cpu"]) - 1,
            "server_cpu": min(found["server"][count]),
            "windows": len(found["phases"][count]["wall"]),
        }
        for count in found["phases"]
    }
    if options.json:
        print(json.dumps({"pages": result, "bytes_received": found["received"]}))
        return
    print("pages   ms per step   CPU ms   slowdown   in CPU time   CPU of the server")
    for count, row in result.items():
        print(
            f"{count:5}   {row['wall_ms']:11.3f}   {row['cpu_ms']:6.3f}   {row['slowdown']:8.2%}   "
            f"{row['cpu_slowdown']:11.2%}   {row['server_cpu']:17.2%}"
        )


if __name__ == "__main__":
    main()
