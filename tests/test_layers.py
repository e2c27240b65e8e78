"""Imports between packages: layers import only from below, and no dialect imports another one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import hookline
from hookline.dialects.imports import PACKAGES

SOURCE = Path(hookline.__file__).parent
DIALECTS = "hookline.dialects"

#: From the bottom up: a package imports only from itself and from packages that are listed before it.
LAYERS = (
    *("errors", "common", "plan", "record", "data", "run", "checkpoint", "strategies", "writers", "screen", "rundir"),
    *(
        "report",
        "optim",
        "state",
        "engine",
        "resume",
        "checks",
        "lifecycle",
        "runner",
        "hooks",
        "config",
        "replay",
        "integrations",
        "dialects",
        "launching",
        "sweeps",
        "cli",
    ),
)
#: Public modules that only re-export names of a package, and modules above all layers.
PUBLIC = {"metrics", "schedules", "steps", "images", "averaging", "runs", "testing", "__init__", "__main__"}
#: Imports from a higher layer, each with its reason.
UPWARD = {
    # no message of an error holds control codes; this module imports nothing of hookline
    ("errors.py", "hookline.common.escape.escaped"),
    ("errors.py", "hookline.common.escape.escaped_message"),
    # only inside the method that builds a runner from a config
    ("runner/runner.py", "hookline.config.build_runner"),
    ("runner/runner.py", "hookline.config.from_dict"),
    ("runner/runner.py", "hookline.config.load"),
}


def imports_of(path: Path) -> Iterator[str]:
    """Yield the full name of every import in a file, also inside functions."""
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


def layer_of(name: str) -> int | None:
    """Return the layer of a module; None if it is in no layer."""
    part = name.split(".")[1] if "." in name else ""
    return LAYERS.index(part) if part in LAYERS else None


def core_files() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "dialects"]


def test_every_module_is_public_or_in_a_package() -> None:
    assert {path.stem for path in SOURCE.glob("*.py")} == PUBLIC | {"errors"}
    folders = {path.parent.name for path in SOURCE.glob("*/*.py")}
    assert folders == set(LAYERS) - {"errors"}


def test_a_package_imports_only_from_layers_below_it() -> None:
    upward = set()
    for path in core_files():
        own = layer_of(f"hookline.{path.relative_to(SOURCE).parts[0]}")
        if own is None:
            continue
        for name in imports_of(path):
            if name.startswith("hookline."):  # `hookline` alone holds the version and imports nothing
                layer = layer_of(name)
                if layer is None or layer > own:
                    upward.add((path.relative_to(SOURCE).as_posix(), name))
    assert upward - UPWARD == set()
    assert UPWARD - upward == set(), "remove these exceptions: they are no longer needed"


def test_outside_of_the_dialects_only_the_run_as_command_imports_them() -> None:
    files = core_files()
    assert len(files) > 100
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in files
        if any(is_in(name, DIALECTS) for name in imports_of(path)) or DIALECTS in path.read_text(encoding="utf-8")
    }
    assert found == {"cli/run_as.py"}


def test_a_dialect_imports_neither_another_dialect_nor_an_original_package() -> None:
    for package in PACKAGES:
        for path in (SOURCE / "dialects" / package).rglob("*.py"):
            for name in imports_of(path):
                others = set(PACKAGES) - set(PACKAGES[package])
                assert not any(is_in(name, f"{DIALECTS}.{other}") for other in others), (path, name)
                assert name.partition(".")[0] not in PACKAGES, (path, name)
