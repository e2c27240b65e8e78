"""Count machine instructions: a measure that other programs on the machine do not change, unlike a clock.

python benchmarks/instructions.py                 a table of all cases
python benchmarks/instructions.py --only loader   only the groups whose name contains this text
python benchmarks/instructions.py --write         also write it into docs/performance.md
python benchmarks/instructions.py --time          CPU time instead, the minimum of all rounds

A case does its work n and 2n times in two processes. The difference, divided by n, is free of what happens once.
valgrind counts, which must be installed. It simulates the processor, so no hardware counters are needed, which virtual
machines often lack. Only the main thread counts. The clocks of Python stand still while it counts: work that happens
now and then by time, such as drawing a display, would count fifty times too often in a process that is so slow.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

#: How often the work is done: a multiple of the 31 steps of the ledger and of the 10 steps of a record. Reading 64
#: samples is so much more work than a step that fewer times are enough.
TIMES, TIMES_OF_LOADERS = 310, 31
ROUNDS = 7


def times_of(group: str) -> int:
    """Return how often the work of a group is done."""
    return TIMES_OF_LOADERS if "samples" in group else TIMES


def count(only: str) -> dict[str, dict[str, float]]:
    """Return the instructions of each case, by group."""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        valgrind = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={folder}/%p"]
        command = [*valgrind, "-q", sys.executable, __file__, "--inside", "--only", only]
        environment = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE) as inside:
            assert inside.stdout is not None
            for line in inside.stdout:
                if line.startswith("counted\t"):
                    _, group, case, once, twice = line.rstrip("\n").split("\t")
                    difference = total(Path(folder), twice) - total(Path(folder), once)
                    found.setdefault(group, {})[case] = difference / times_of(group)
        if inside.returncode:
            raise SystemExit(f"valgrind ended with {inside.returncode}")
    return found


def total(folder: Path, process: str) -> int:
    """Return the instructions of the main thread of a process."""
    text = (folder / f"{process}-01").read_text()
    return int(re.findall(r"^totals: (\d+)", text, re.MULTILINE)[-1])


def run_cases(only: str) -> None:
    """Run every case in two child processes of this one, which has imported everything. valgrind counts them."""
    for name in ("perf_counter", "monotonic", "time"):
        setattr(time, name, partial(float, 1e9))  # before anything imports these functions
    for group, cases in selected(only).items():
        for case, work in cases.items():
            work(1)  # import what it needs
            gc.collect()
            gc.freeze()
            processes = []
            for times in (times_of(group), 2 * times_of(group)):
                process = os.fork()
                if not process:
                    work(times)
                    os._exit(0)
                if os.waitpid(process, 0)[1]:
                    raise SystemExit(f"{case} failed")
                processes.append(process)
            print("counted", group, case, *processes, sep="\t", flush=True)


def selected(only: str) -> dict[str, dict[str, Any]]:
    """Return the groups whose name contains a text, without the engines that are not installed."""
    import torch

    import rows

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return {group: installed(cases) for group, cases in rows.groups().items() if only in group}


def installed(cases: dict[str, Any]) -> dict[str, Any]:
    """Return the cases without the engines that are not installed."""
    from importlib.util import find_spec

    from peers import ENGINES

    missing = {engine.name for engine in ENGINES if not find_spec(engine.package.removeprefix("pytorch-"))}
    return {case: work for case, work in cases.items() if case not in missing}


def measure_time(only: str) -> dict[str, dict[str, float]]:
    """Return the microseconds of CPU time of each case, by group. The cases of a group take turns."""
    found: dict[str, dict[str, float]] = {}
    for group, cases in selected(only).items():
        number = times_of(group)
        least = {(case, times): float("inf") for case in cases for times in (number, 2 * number)}
        for _ in range(ROUNDS):
            for case, times in least:
                gc.collect()
                began = time.process_time()
                cases[case](times)
                least[case, times] = min(least[case, times], time.process_time() - began)
        found[group] = {case: (least[case, 2 * number] - least[case, number]) / number * 1e6 for case in cases}
    return found


def as_rows(found: dict[str, dict[str, float]]) -> list[list[str]]:
    """Return the rows of the table. The first case of a group is the reference."""
    rows = []
    for group, cases in found.items():
        reference = next(iter(cases))
        rows += [
            [
                group,
                f"{case} / {reference}",
                f"{cases[reference]:,.0f}",
                f"{value:,.0f}",
                f"{value / cases[reference]:.2f}",
            ]
            for case, value in cases.items()
            if case != reference
        ]
    return rows


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only the groups whose name contains this text")
    parser.add_argument("--time", action="store_true", help="measure CPU time instead")
    parser.add_argument("--write", action="store_true", help="write the figures into docs/performance.md")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        run_cases(options.only)
        return
    found = measure_time(options.only) if options.time else count(options.only)
    rows = as_rows(found)
    for row in rows:
        print(f"{row[0]:44} {row[1]:52} {row[2]:>12} {row[3]:>12} {row[4]:>6}")
    if options.write:
        import torch

        import pages

        command = f"`python benchmarks/instructions.py`, torch {torch.__version__}"
        when = f"Measured on {date.today().isoformat()} with {command}:"
        head = ["", "compared", "instructions without", "with", "ratio"]
        pages.write("docs/performance.md", "instructions", f"{when}\n\n{pages.table(head, rows)}")


if __name__ == "__main__":
    main()
