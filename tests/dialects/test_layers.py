"""Who imports whom: nothing outside `dialects/` knows of it, and no dialect of another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import hookline
from hookline.dialects.imports import PACKAGES

SOURCE = Path(hookline.__file__).parent
DIALECTS = "hookline.dialects"
#: The command that runs scripts written for other systems.
ALLOWED = {"cli/run_as.py"}


def imports_of(path: Path) -> Iterator[str]:
    """The full names of all that a file imports, wherever it does."""
    package = ("hookline", *path.relative_to(SOURCE).parent.parts)
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{module}.{each.name}" for each in node.names)


def is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def test_nothing_outside_of_the_dialects_imports_them() -> None:
    files = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "dialects"]
    assert len(files) > 100
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in files
        if any(is_in(name, DIALECTS) for name in imports_of(path)) or DIALECTS in path.read_text(encoding="utf-8")
    }
    assert found == ALLOWED


def test_a_dialect_imports_no_other_dialect_and_no_original() -> None:
    for package in PACKAGES:
        for path in (SOURCE / "dialects" / package).rglob("*.py"):
            for name in imports_of(path):
                others = set(PACKAGES) - set(PACKAGES[package])
                assert not any(is_in(name, f"{DIALECTS}.{other}") for other in others), (path, name)
                assert name.partition(".")[0] not in PACKAGES, (path, name)
