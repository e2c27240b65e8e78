"""What holds for all tests: markers, and no garbage left over by imports."""

from __future__ import annotations

import gc
import inspect
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

#: Files whose tests take long: they run in `make test-long`, and not in `make test`.
LONG = (
    *("examples/*", "cli/test_run_as.py", "faults/test_kills.py", "faults/test_raw.py"),
    *("dialects/*/test_checkpoint*.py", "dialects/*/test_processes.py"),
    *("dialects/mmengine/test_real_hooks.py", "dialects/mmengine/test_side_by_side.py", "distributed/*"),
)
#: Packages of tests/dialects with a marker of their own.
DIALECTS = {
    "mmengine": "mmengine",
    "imix": "imix",
    "pointrix": "pointrix",
    "robo_orchard_core": "robo_orchard",
    "robo_orchard_lab": "robo_orchard",
}
#: What a test that starts a process has in its source; a test that does so elsewhere has the marker.
STARTS_PROCESSES = re.compile(r"\b(subprocess|Popen|fork|spawn|as_command|command\(|running\(|ended_by|killed)")

_current: dict[str, pytest.Item | None] = {"item": None}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by where they are and by what they do."""
    for item in items:
        if HERE not in item.path.parents:
            continue
        place = item.path.relative_to(HERE).as_posix()
        if any(fnmatch(place, pattern) for pattern in LONG):
            item.add_marker("long")
        parts = place.split("/")
        if parts[0] == "dialects" and parts[1] in DIALECTS:
            item.add_marker(DIALECTS[parts[1]])
        wandb = "wandb" in item.nodeid  # the library has a service process
        if parts[0] in ("faults", "distributed") or wandb or _starts_processes(item):
            item.add_marker("processes")


def _starts_processes(item: pytest.Item) -> bool:
    """Look for what starts a process in a test, and in the functions and fixtures of its module that it uses."""
    source = _source(getattr(item, "function", None))
    if STARTS_PROCESSES.search(source):
        return True
    used = {*re.findall(r"\w+", source), *getattr(item, "fixturenames", ())}
    return bool(used & _helpers_with_processes(getattr(item, "module", None)))


@cache
def _helpers_with_processes(module: Any) -> frozenset[str]:
    """Return the names of a module's own functions that start processes, directly or through one another."""
    if module is None:
        return frozenset()
    own = {
        name: _source(getattr(value, "__wrapped__", value))
        for name, value in vars(module).items()
        if callable(value) and not inspect.isclass(value) and not name.startswith("test")
    }
    found = {name for name, source in own.items() if STARTS_PROCESSES.search(source)}
    while more := {n for n, s in own.items() if n not in found and found & set(re.findall(r"\w+", s))}:
        found |= more
    return frozenset(found)


def _source(function: Any) -> str:
    try:
        return inspect.getsource(function) if function is not None else ""
    except (OSError, TypeError):
        return ""


def _watch_processes(event: str, arguments: Any) -> None:
    """A test that starts a process without the marker would make `make quick` slow for everybody."""
    item = _current["item"]
    if event == "subprocess.Popen" and item is not None and item.get_closest_marker("processes") is None:
        pytest.fail(f"{item.nodeid} starts a process: mark it with @pytest.mark.processes", pytrace=False)


sys.addaudithook(_watch_processes)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Know which test runs."""
    _current["item"] = item
    try:
        return (yield)
    finally:
        _current["item"] = None


@pytest.fixture(autouse=True, scope="module")
def _freeze_garbage() -> None:
    """Leave out what was imported so far when a test, or a hook, collects garbage: it would take longest."""
    gc.freeze()
