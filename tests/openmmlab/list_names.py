"""List the names of mmengine that code of others can import, as the data of tests/dialects/mmengine/test_names.py.

    python -m tests.openmmlab.list_names FOLDER > tests/dialects/mmengine/names.txt

The folder has the wheels of OpenMMLab's projects (`pip download --pre --no-deps ...`). This script runs where the real
mmengine is installed. A line has a module and its names: the public ones that the module defines or exports, and those
that a wheel imports from it, with a leading underscore or not, if the real mmengine has them.
"""

from __future__ import annotations

import ast
import importlib.metadata
import sys
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import mmengine

from tests.openmmlab.read_names import exists, names_in

#: Parts of mmengine that a project does not import.
SKIPPED = ("mmengine.__main__",)


def modules() -> Iterator[str]:
    """Yield the dotted names of all modules of mmengine."""
    root = Path(mmengine.__path__[0])
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        if ".mim" not in parts:
            yield ".".join(parts).removesuffix(".__init__")


def public_names(module: ModuleType) -> set[str]:
    """Return what a module exports or, without an `__all__`, the names that its own lines define."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    found = {name for node in tree.body for name in _defined(node)}
    return {name for name in found if not name.startswith("_") and hasattr(module, name)}


def _defined(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
    elif isinstance(node, (ast.If, ast.Try)):  # a handler has substitutes for packages that are not installed
        for each in (*node.body, *node.orelse):
            yield from _defined(each)


def imported_by(wheel: Path) -> set[str]:
    """Return the dotted names of mmengine that the files of a wheel import or read."""
    found: set[str] = set()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".py") and not name.startswith("mmengine/"):
                try:
                    found.update(names_in(ast.parse(archive.read(name))))
                except SyntaxError:  # templates
                    continue
    return {name for name in found if not name.endswith(".*")}


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    assert importlib.metadata.version("mmengine") == mmengine.__version__
    names: dict[str, set[str]] = {}
    for name in modules():
        try:
            module = importlib.import_module(name)
        except ImportError as problem:  # it needs an optional package
            print(f"{name} is not listed: {problem}", file=sys.stderr)
        else:
            names[name] = public_names(module)
    for wheel in sorted(folder.glob("*.whl")):
        used = {name for name in imported_by(wheel) if exists(name)}
        print(f"{wheel.name}: {len(used)} names", file=sys.stderr)
        for name in used:
            module_name = name
            while module_name not in names:
                module_name = module_name.rpartition(".")[0]
            if rest := name.removeprefix(module_name).strip("."):
                names[module_name].add(rest)
    print(f"# mmengine {mmengine.__version__}, and what the wheels of OpenMMLab's projects import from it.")
    for name, found in names.items():
        print(" ".join([f"{name}:", *sorted(found)]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
