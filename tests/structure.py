"""Measures of the structure: `python -m tests.structure` prints them, and test_structure.py keeps them small.

A walk is a short training of the toy run, traced: how many source files of hookline one piece of work runs through, and
how often control passes from one file to another.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import hookline
from hookline import Hook, Runner
from hookline.state.host import Host
from hookline.strategies import Strategy
from hookline.testing import toy_runner

SOURCE = Path(hookline.__file__).parent
SURFACE = Path(__file__).with_name("public_surface.txt")
LONG = 400


class Walk(NamedTuple):
    """What one piece of work runs through."""

    files: int
    jumps: int
    calls: int


def measures() -> dict[str, int]:
    """Return every measure by its name."""
    return {
        "members of a Runner that are not public": len(hidden_members()),
        "members of Host": len({name for name in (*vars(Host), *Host.__annotations__) if not name.startswith("_")}),
        "methods of Strategy": len([name for name, _ in methods_of(Strategy)]),
        "modules in engine/": len([*(SOURCE / "engine").glob("*.py")]) - 1,
        f"source files over {LONG} lines": len(long_files()),
        "requests: Any in strategies": text_of("strategies").count("requests: Any"),
        "modules in the largest import cycle": len(largest_cycle()),
    }


def hidden_members() -> set[str]:
    """Return the members of a Runner, without underscores, that are not on the public surface."""
    public = set(re.findall(r"^hookline\.Runner\.(\w+)", SURFACE.read_text(encoding="utf-8"), re.MULTILINE))
    return {name for name in dir(toy_runner()) if not name.startswith("_")} - public


def methods_of(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the methods and properties that a class defines."""
    for name, value in vars(cls).items():
        if not name.startswith("_") and (inspect.isroutine(value) or isinstance(value, property)):
            yield name, value


def long_files() -> list[str]:
    """Return the source files with more than 400 lines; the dialects follow the interfaces of others."""
    core = [file for file in SOURCE.rglob("*.py") if "dialects" not in file.parts]
    return sorted(str(file.relative_to(SOURCE)) for file in core if len(file.read_text("utf-8").splitlines()) > LONG)


def text_of(package: str) -> str:
    """Return the source of a package."""
    return "".join(file.read_text(encoding="utf-8") for file in sorted((SOURCE / package).rglob("*.py")))


def largest_cycle() -> list[str]:
    """Return the modules of the largest cycle of imports, with those for types alone, and those inside functions."""
    imports = {name: set(_imports(file, name)) for file, name in _modules()}
    known = set(imports)
    reached = {name: _reached(name, imports, known) for name in known}
    cycles = [sorted(other for other in reached[name] if name in reached[other]) for name in known]
    return max(cycles, key=lambda cycle: len(cycle), default=[])


def _modules() -> Iterator[tuple[Path, str]]:
    for file in SOURCE.rglob("*.py"):
        parts = file.relative_to(SOURCE.parent).with_suffix("").parts
        if "dialects" not in parts:
            yield file, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(file: Path, module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def _reached(start: str, imports: dict[str, set[str]], known: set[str]) -> set[str]:
    reached: set[str] = set()
    open_ = [*(imports[start] & known)]
    while open_:
        name = open_.pop()
        if name not in reached:
            reached.add(name)
            open_ += imports[name] & known
    return reached


class _Tracer:
    """Counts the files of hookline that calls enter, and how often they come from another file."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.jumps = self.calls = 0

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(str(SOURCE)):
            return
        self.calls += 1
        self.files[frame.f_code.co_filename] += 1
        caller = frame.f_back
        if caller is not None and caller.f_code.co_filename.startswith(str(SOURCE)):
            self.jumps += caller.f_code.co_filename != frame.f_code.co_filename

    @contextmanager
    def tracing(self) -> Iterator[None]:
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)

    @property
    def walk(self) -> Walk:
        return Walk(len(self.files), self.jumps, self.calls)


class _At(Hook):
    """Calls a function at the end of one iteration."""

    priority = "LOWEST"

    def __init__(self, iteration: int, call: Callable[[Runner], None]) -> None:
        self._iteration, self._call = iteration, call

    def after_train_iter(self, runner: Runner) -> None:
        if runner.iter + 1 == self._iteration:
            self._call(runner)


def walks(folder: Path) -> dict[str, Walk]:
    """Trace one iteration, one save, one resume until the first step, and a signal."""
    return {
        "an iteration": _iteration(folder / "iteration"),
        "a save": _save(folder / "save"),
        "a resume": _resume(folder / "save"),
        "a signal": _signal(folder / "signal"),
    }


def _iteration(folder: Path) -> Walk:
    tracer = _Tracer()
    hooks = [_At(5, lambda runner: sys.setprofile(tracer)), _At(6, lambda runner: sys.setprofile(None))]
    toy_runner(work_dir=folder, batches=8, custom_hooks=hooks, quiet=True).train()
    return tracer.walk


def _save(folder: Path) -> Walk:
    runner = toy_runner(work_dir=folder, quiet=True)
    runner.train()
    tracer = _Tracer()
    runner.request_save("one.pth")
    with tracer.tracing():
        runner.saving.save()
        runner.saving.finish()
    return tracer.walk


def _resume(folder: Path) -> Walk:
    tracer = _Tracer()
    hooks = [_At(9, lambda runner: sys.setprofile(None))]
    runner = toy_runner(work_dir=folder, max_epochs=3, resume=True, custom_hooks=hooks, quiet=True, keep="config")
    with tracer.tracing():
        runner.train()
    return tracer.walk


def _signal(folder: Path) -> Walk:
    tracer = _Tracer()

    def interrupt(runner: Runner) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        sys.setprofile(tracer)

    runner = toy_runner(work_dir=folder, custom_hooks=[_At(3, interrupt)], quiet=True)
    try:
        runner.train()
    except BaseException as error:
        sys.setprofile(None)
        if "SIGTERM" not in repr(error) and not isinstance(error, SystemExit | KeyboardInterrupt):
            raise
    finally:
        sys.setprofile(None)
    return tracer.walk


def main() -> None:
    """Print everything."""
    import tempfile

    for name, number in measures().items():
        print(f"{name}: {number}")
    print("largest import cycle:", ", ".join(largest_cycle()))
    print("long files:", ", ".join(long_files()))
    with tempfile.TemporaryDirectory() as folder:
        for name, walk in walks(Path(folder)).items():
            print(f"{name}: {walk.files} files, {walk.jumps} jumps, {walk.calls} calls")


if __name__ == "__main__":
    main()
