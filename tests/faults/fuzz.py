"""Fuzz configs or checkpoints: `python -m tests.faults.fuzz configs --seconds 600`.

Prints the seed, the number of inputs, and one finding of every cause. The exit code is 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.faults import fuzz_checkpoints, fuzz_configs
from tests.faults.fuzzing import fuzz

TARGETS = {module.TARGET.name: module.TARGET for module in (fuzz_configs, fuzz_checkpoints)}


def main(words: Sequence[str] | None = None) -> int:
    """Fuzz, and return 1 if there is a finding."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.fuzz")
    parser.add_argument("target", choices=list(TARGETS))
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to make inputs")
    parser.add_argument("--seed", type=int, default=0, help="the same seed makes the same inputs")
    parser.add_argument("--only", type=int, metavar="N", help="make only input N, to reproduce a finding")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="the folder for findings")
    given = parser.parse_args(words)
    result = fuzz(TARGETS[given.target], seed=given.seed, seconds=given.seconds, only=given.only, folder=given.findings)
    for finding in result.findings:
        print(finding)
    print(f"{given.target}: {result.inputs} inputs with seed {given.seed}, {len(result.findings)} findings")
    if result.findings:
        again = f"python -m tests.faults.fuzz {given.target} --seed {given.seed} --only {result.findings[0].number}"
        print(f"written to {given.findings}; to reproduce the first one: {again}")
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
