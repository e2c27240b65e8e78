"""Configs that are Python: run, because the caller said that they may be.

_base_ = ["./base.py"]                    the bases, whose values are `_base_.x` and {{_base_.x}} below
with read_base(): from .base import *     the newer way to say the same
"""

from __future__ import annotations

import ast
import copy
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hookline.dialects.mmengine.config.config_dict import ConfigDict, converted
from hookline.errors import ConfigError, HooklineError, blame

Load = Callable[[Path], ConfigDict]


@contextmanager
def read_base() -> Iterator[None]:
    """Marks the imports of a config's bases; the config is read with `Config.fromfile`."""
    yield


def bases_of(text: str, file: Path) -> list[str]:
    """The files that a Python config names as `_base_`, without running it."""
    for statement in _parsed(text, file).body:
        if _is_base(statement):
            try:
                given = ast.literal_eval(statement.value)  # type: ignore[attr-defined]  # it is an assignment
            except ValueError:
                line = statement.lineno
                raise ConfigError(f"{file}:{line}: _base_ is a path or a list of paths, written out") from None
            return [given] if isinstance(given, str) else list(given)
    return []


def run(text: str, file: Path, base: ConfigDict, load: Load) -> ConfigDict:
    """What a Python config assigns: its names, without modules, functions and what it imports."""
    tree = _parsed(text, file)
    tree.body = [statement for statement in tree.body if not _is_base(statement)]
    tree = ast.fix_missing_locations(_Unbraced().visit(tree))
    names: dict[str, Any] = {"__file__": str(file), "__name__": file.stem, "_base_": copy.deepcopy(base)}
    imported: set[str] = set()
    for statement in tree.body:
        if _reads_base(statement):
            names.update(_imported_bases(statement, file, load))
            continue
        imported |= (brought := _names_imported(statement))
        if brought != {"read_base"}:  # of whichever package: what it marks is read here
            _execute(statement, file, names)
    kept = {
        name: value
        for name, value in names.items()
        if not name.startswith("__") and name not in imported and name not in ("_base_", "read_base")
        if not isinstance(value, (types.ModuleType, types.FunctionType))
    }
    return ConfigDict({name: converted(value) for name, value in kept.items()})


def _execute(statement: ast.stmt, file: Path, names: dict[str, Any]) -> None:
    code = compile(ast.Module([statement], type_ignores=[]), str(file), "exec", dont_inherit=True)
    try:
        exec(code, names)
    except HooklineError:
        raise
    except Exception as error:
        blame(error, f"in the config {file}:{statement.lineno}", exit_code=ConfigError.exit_code)
        raise


def _parsed(text: str, file: Path) -> ast.Module:
    try:
        return ast.parse(text, str(file))
    except SyntaxError as error:
        raise ConfigError(f"{file}:{error.lineno}: this is not Python: {error.msg}") from error


def _is_base(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == "_base_" for target in statement.targets
    )


def _reads_base(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.With):
        return False
    call = statement.items[0].context_expr
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "read_base"


def _names_imported(statement: ast.stmt) -> set[str]:
    if not isinstance(statement, (ast.Import, ast.ImportFrom)):
        return set()
    return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}


def _imported_bases(statement: ast.stmt, file: Path, load: Load) -> dict[str, Any]:
    """The names that the imports under `with read_base()` bring, read from the files that they mean."""
    found: dict[str, Any] = {}
    for each in statement.body:  # type: ignore[attr-defined]  # it is a `with`
        if not isinstance(each, ast.ImportFrom) or not each.level:
            raise ConfigError(f"{file}:{each.lineno}: under read_base() stand imports from files: from .base import *")
        folder = file.parent
        for _ in range(each.level - 1):
            folder = folder.parent
        base = load(folder.joinpath(*(each.module or "").split(".")).with_suffix(".py"))
        for alias in each.names:
            if alias.name == "*":
                found.update(base)
            else:
                found[alias.asname or alias.name] = base[alias.name]
    return found


class _Unbraced(ast.NodeTransformer):
    """Makes `{{_base_.x}}`, which Python reads as a set in a set, the value of the base."""

    def visit_Set(self, node: ast.Set) -> ast.AST:  # ast calls it so
        inner = node.elts[0]
        if len(node.elts) == 1 and isinstance(inner, ast.Set) and len(inner.elts) == 1:
            root = inner.elts[0]
            while isinstance(root, (ast.Attribute, ast.Subscript)):
                root = root.value
            if isinstance(root, ast.Name) and root.id == "_base_":
                return inner.elts[0]
        return self.generic_visit(node)
