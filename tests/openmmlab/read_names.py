"""Look up every name of mmengine that a project uses, in the real mmengine or in hookline's dialect.

    python read_names.py mmengine|hookline PROJECT OUT

OUT gets the names, and whether each of them exists.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import operator
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path


def names_in(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a file imports from mmengine, and those that it reads from the imported package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and f"{node.module}.".startswith("mmengine."):
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if f"{each.name}.".startswith("mmengine."))
        elif isinstance(node, ast.Attribute) and re.fullmatch(r"mmengine(\.\w+)+", text := ast.unparse(node)):
            yield text


def exists(name: str) -> bool:
    """Return whether a dotted name is a module, or can be read from one."""
    module, rest = name, ""
    while module:
        try:
            importlib.import_module(module)
        except ImportError:
            module, _, last = module.rpartition(".")
            rest = f"{last}.{rest}".strip(".")
        else:
            return not rest or _has(sys.modules[module], rest)
    return False


def _has(value: object, path: str) -> bool:
    try:
        operator.attrgetter(path)(value)
    except AttributeError:
        return False
    return True


def main(package: str, project: str, out: Path) -> None:
    if package == "hookline":
        from hookline.dialects import alias

        alias("mmengine")
    warnings.simplefilter("ignore")
    spec = importlib.util.find_spec(project)
    assert spec is not None and spec.origin is not None  # noqa: PT018
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in Path(spec.origin).parent.rglob("*.py"))
    names = sorted({name for tree in trees for name in names_in(tree)})
    out.write_text(json.dumps({name: exists(name) for name in names}), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
