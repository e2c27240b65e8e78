"""Tell which tests of a suite look into private parts of an original, or compare the text of an error."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

#: The calls that compare the text of an error or a warning.
COMPARING = ("assertRaisesRegex", "assertWarnsRegex", "raises", "warns")


def is_about_behavior(checkout: Path, test: str) -> bool:
    """Return whether a test, as pytest names it, uses public names only and compares no text of an error."""
    file, name = test.partition("::")[0], re.sub(r"\[.*", "", test).rpartition("::")[2]
    functions = _functions(checkout / file)
    if name not in functions:
        name = re.sub(r"_\d+(_.*)?$", "", name)  # a case of a parameterized test
    return functions.get(name, True)


@cache
def _functions(file: Path) -> dict[str, bool]:
    """Return the test functions of a file, each with whether it is about behavior. A base class is in another file."""
    if not file.is_file():
        return {}
    tree = ast.parse(file.read_text(encoding="utf-8"))
    private = {
        each.asname or each.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
        if _is_private(each.name)
    }
    return {
        node.name: not any(_looks_inside(part, private) or _compares_text(part) for part in ast.walk(node))
        for node in _tests(tree)
    }


def _tests(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test"))


def _looks_inside(node: ast.AST, private: set[str]) -> bool:
    if isinstance(node, ast.Attribute):  # a helper of the test's class is not part of the original
        of_test = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        return _is_private(node.attr) and not of_test
    if isinstance(node, ast.Constant):  # the name of a part that the test replaces
        return isinstance(node.value, str) and re.fullmatch(r"[\w.]+\._[a-z]\w*", node.value) is not None
    return isinstance(node, ast.Name) and node.id in private


def _compares_text(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    return name in COMPARING and (name.endswith("Regex") or any(each.arg == "match" for each in node.keywords))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")
