"""Run the test suite of an original through its dialect, and print a table.

    python -m tests.dialects.originals PATH            # a checkout or an unpacked sdist, or the sdist itself (.tar.gz)
    python -m tests.dialects.originals PATH --markdown # the tables of docs/coming-from/originals.md
    python -m tests.dialects.originals PATH -k ema     # more arguments go to pytest

The suites need the extra `originals`. Nothing of an original is part of this repository. The exit code is 1 if a test
fails for a reason that `reasons.py` does not list.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.dialects.originals.plugin import CHECKOUT, RESULTS, SYSTEM
from tests.dialects.originals.reasons import reason_of
from tests.dialects.originals.scope import is_about_behavior

ROOT = Path(__file__).parents[3]
#: The tests of each original that concern hooks and training.
SUITES: Mapping[str, Sequence[str]] = {
    "mmengine": (
        # In this order: later tests remove classes that earlier ones have registered.
        *("tests/test_evaluator", "tests/test_hooks", "tests/test_logging", "tests/test_model/test_averaged_model.py"),
        *("tests/test_optim", "tests/test_runner"),
    ),
    "robo_orchard_lab": ("tests/test_robo_orchard_lab/pipeline",),
}


@dataclass(frozen=True)
class Result:
    """How one test ended."""

    test: str
    outcome: str
    why: str = ""
    reason: str = ""
    about_behavior: bool = True

    @property
    def file(self) -> str:
        """Return the file of the test, without the folder of all tests."""
        return self.test.partition("::")[0].removeprefix("tests/").removeprefix("test_robo_orchard_lab/")

    @property
    def kind(self) -> str:
        """Return the column of the table that counts this test."""
        return self.outcome if self.outcome != "failed" else "listed" if self.reason else "failed"


def find_system(checkout: Path) -> str:
    """Return the system whose checkout this is."""
    for system in SUITES:
        if (checkout / system).is_dir() and (checkout / "tests").is_dir():
            return system
    raise SystemExit(f"{checkout} has no tests of {' or '.join(SUITES)}; give the path of a checkout or an sdist")


def run(system: str, checkout: Path, more: Sequence[str]) -> list[Result]:
    """Run the suite in a process of its own, and return how each test ended."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.jsonl"
        environment = {SYSTEM: system, CHECKOUT: str(checkout), RESULTS: str(results), "PYTHONPATH": str(ROOT)}
        suites = [suite for suite in SUITES[system] if (checkout / suite).exists()]
        options = (
            "-p tests.dialects.originals.plugin -p no:cacheprovider --rootdir . --continue-on-collection-errors -q "
            f"--tb=short -c {os.devnull} --basetemp={folder}/tests"
        )
        command = [sys.executable, "-m", "pytest", *options.split(), *suites, *more]
        surroundings = {**os.environ, **environment}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=checkout, env=surroundings, stdout=pipe, text=True) as suite:
            for line in suite.stdout or ():
                sys.stderr.write(line)  # the table alone goes to standard output
        lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    return merge(system, checkout, map(json.loads, lines))


def merge(system: str, checkout: Path, records: Iterable[Mapping[str, str]]) -> list[Result]:
    """Return one result per test: a test may fail twice, in its body and after it."""
    found: dict[str, Result] = {}
    for record in records:
        test, outcome, why = record["test"], record["outcome"], record["why"]
        if test not in found or (outcome == "failed" and found[test].outcome != "failed"):
            reason = reason_of(system, test) if outcome == "failed" else ""
            found[test] = Result(test, outcome, why, reason, is_about_behavior(checkout, test))
    return list(found.values())


def table(results: Sequence[Result]) -> list[str]:
    """Return a table with a row for each file."""
    columns = ("passed", "listed", "skipped", "failed")
    lines = ["| suite | tests | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * (len(columns) + 1)]
    for file in [*sorted({each.file for each in results}), ""]:
        kinds = Counter(each.kind for each in results if file in ("", each.file))
        counts = " | ".join(str(kinds[column]) for column in columns)
        lines.append(f"| {file or '**all**'} | {sum(kinds.values())} | {counts} |")
    return lines


def behavior(results: Sequence[Result]) -> str:
    """Return how many tests pass of those that use public names only and compare no text of an error."""
    counts = Counter(result.outcome for result in results if result.about_behavior)
    return (
        f"{counts['passed']} of the {counts['passed'] + counts['failed']} tests that neither look into private parts "
        f"nor compare the text of an error pass; {counts['skipped']} more are skipped, most because they need a GPU."
    )


def reasons(results: Sequence[Result]) -> list[str]:
    """Return a table of the reasons for which tests do not pass, with the number of tests."""
    counts = Counter(result.reason for result in results if result.kind == "listed")
    return ["| reason | tests |", "| --- | --- |", *(f"| {why} | {number} |" for why, number in counts.most_common())]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a suite and print its table."""
    parser = argparse.ArgumentParser(prog="python -m tests.dialects.originals", description=__doc__)
    parser.add_argument("path", type=Path, help="a checkout, an unpacked sdist, or an sdist (.tar.gz)")
    parser.add_argument("--markdown", action="store_true", help="also print the reasons")
    given, more = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        checkout = given.path.resolve()
        if checkout.is_file():
            with tarfile.open(checkout) as archive:
                archive.extractall(folder, filter="data")
            checkout = next(path for path in Path(folder).iterdir() if path.is_dir())
        results = run(find_system(checkout), checkout, more)
    print("\n".join([*table(results), "", behavior(results)]))
    if given.markdown:
        print("\n".join(["", *reasons(results)]))
    failed = [each for each in results if each.kind == "failed"]
    for each in failed:
        print(f"{each.test}: {each.why}", file=sys.stderr)
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
