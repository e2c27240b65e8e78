"""Read configs written in Python by running them, which the caller has allowed.

_base_ = ["./base.py"]                    the bases; the rest of the file reads their values as `_base_.x`, {{_base_.x}}
_base_.x = 1, del _base_.y                changes them
with read_base(): from .base import *     the newer way to write the same
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hookline.dialects.mmengine.config.config_dict import ConfigDict, to_config_dicts
from hookline.dialects.mmengine.config.variables import base_value
from hookline.dialects.mmengine.errors import ConfigKeyError
from hookline.errors import ConfigError, blame

#: Reads a base, and returns its settings and the names that it imports.
Load = Callable[[Path], tuple[ConfigDict, dict[str, Any]]]
#: The name under which a running config finds the function that `{{_base_.x}}` calls.
READ = "__read_base__"


@contextmanager
def read_base() -> Iterator[None]:
    """Mark the imports of a config's bases; `Config.fromfile` reads them."""
    yield


def find_bases(text: str, file: Path) -> list[str]:
    """Return the files that a Python config names as `_base_`: a path, a list of paths, or an expression for one."""
    for statement in _parse(text, file).body:
        if _names_bases(statement):
            who = f"{file}:{statement.lineno}: _base_ must be a path or a list of paths"
            value = statement.value  # type: ignore[attr-defined]  # it is an assignment
            try:
                bases = eval(compile(ast.Expression(value), str(file), "eval"), {})
            except NameError as error:
                raise ConfigError(
                    f"{who}. It is read before the rest of the file, so it cannot use its names: {error}"
                ) from None
            except Exception as error:
                raise ConfigError(f"{who}, but computing it failed: {type(error).__name__}: {error}") from error
            paths = [bases] if isinstance(bases, str) else bases
            if not isinstance(paths, (list, tuple)) or not all(isinstance(path, str) for path in paths):
                raise ConfigError(f"{who}, not {bases!r}")
            return list(paths)
    return []


def run(
    text: str, file: Path, base: ConfigDict, load: Load, imported_as_base: bool = False
) -> tuple[ConfigDict, dict[str, Any]]:
    """Run a Python config. Return the names it assigns, except modules, and the names it imports.

    Its functions are settings as well if it is in the newer style: if it has no `_base_`, and imports something or is
    imported as a base.

    What the config changes in `_base_` is changed in `base`, into which the caller merges the result. In the newer
    style, an import that fails is put off until the name is used, and the names that a base imports are known, too.
    """
    tree = _parse(text, file)
    declaration = next(filter(_names_bases, tree.body), None)
    tree.body = [statement for statement in tree.body if statement is not declaration]
    tree = ast.fix_missing_locations(_Unbraced().visit(tree))
    read = _ValuesRead(base)
    names: dict[str, Any] = {"__file__": str(file), "__name__": file.stem, READ: read}
    if declaration is not None or not any(map(_reads_base, tree.body)):  # bases that are imported have no `_base_`
        names["_base_"] = base
    imported: set[str] = set()
    lazy = any(map(_reads_base, tree.body))
    for statement in tree.body:
        if _reads_base(statement):
            found, known = _import_bases(statement, file, load)
            names.update({**known, **found})
            imported |= known.keys() - found.keys()
            continue
        names_here = _imported_names(statement)
        if names_here != {"read_base"}:  # skip it, whichever package it is from: the bases are read here
            try:
                _execute(statement, file, names)
            except ImportError as error:
                if not lazy or not names_here or "*" in names_here:
                    raise
                names.update(_lazy_names(statement, error))
        imported = (imported | names_here) - _assigned_names(statement)
        if names.get("_base_", base) is not base:
            raise ConfigError(
                f"{file}:{statement.lineno}: _base_ must be set once, to a literal path or a list of literal paths, "
                "with `_base_ = ...` and nothing around it. To change the bases' values, set entries: _base_.lr = 0.1"
            )
        read.refuse_changes(f"{file}:{statement.lineno}")
    newer = declaration is None and (
        imported_as_base or any(_reads_base(each) or _imported_names(each) for each in tree.body)
    )
    left_out = types.ModuleType if newer else (types.ModuleType, types.FunctionType)
    kept = {
        name: value
        for name, value in names.items()
        if not name.startswith("__") and name not in imported and name not in ("_base_", "read_base")
        if not isinstance(value, left_out)
    }
    settings = ConfigDict({name: to_config_dicts(value) for name, value in kept.items()})
    return settings, {name: names[name] for name in imported if name in names}


def _execute(statement: ast.stmt, file: Path, names: dict[str, Any]) -> None:
    code = compile(ast.Module([statement], type_ignores=[]), str(file), "exec", dont_inherit=True)
    try:
        exec(code, names)
    except Exception as error:
        blame(error, f"in the config {file}:{statement.lineno}", exit_code=ConfigError.exit_code)
        raise


def _parse(text: str, file: Path) -> ast.Module:
    try:
        return ast.parse(text, str(file))
    except SyntaxError as error:
        raise ConfigError(f"{file}:{error.lineno}: this is not Python: {error.msg}") from error


def _names_bases(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
        return False
    target = statement.targets[0]
    return isinstance(target, ast.Name) and target.id == "_base_"


def _reads_base(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.With):
        return False
    call = statement.items[0].context_expr
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "read_base"


def _imported_names(statement: ast.stmt) -> set[str]:
    if not isinstance(statement, (ast.Import, ast.ImportFrom)):
        return set()
    return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}


def _lazy_names(statement: ast.stmt, error: ImportError) -> dict[str, LazyObject]:
    """Return what stands for the names of an import that has failed."""
    assert isinstance(statement, (ast.Import, ast.ImportFrom)), "it has failed with an ImportError"
    home = f"{statement.module or ''}." if isinstance(statement, ast.ImportFrom) else ""
    whole = {alias.asname or alias.name: home + alias.name for alias in statement.names}
    if not home:  # `import a.b` defines `a`
        whole = {
            name.partition(".")[0]: path if name != path else path.partition(".")[0] for name, path in whole.items()
        }
    return {name: LazyObject(path, error) for name, path in whole.items()}


def _assigned_names(statement: ast.stmt) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _import_bases(statement: ast.stmt, file: Path, load: Load) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the names that the imports under `with read_base()` define, and those that the files they read import."""
    found: dict[str, Any] = {}
    known: dict[str, Any] = {}
    for each in statement.body:  # type: ignore[attr-defined]  # it is a `with`
        if not isinstance(each, ast.ImportFrom) or not each.level:
            raise ConfigError(
                f"{file}:{each.lineno}: only imports from files are allowed under read_base(): from .base import *"
            )
        folder = file.parent
        for _ in range(each.level - 1):
            folder = folder.parent
        base, imports = load(folder.joinpath(*(each.module or "").split(".")).with_suffix(".py"))
        for alias in each.names:
            if alias.name == "*":
                found.update(base)
                known.update(imports)
            elif alias.name in imports and alias.name not in base:
                known[alias.asname or alias.name] = imports[alias.name]
            else:
                found[alias.asname or alias.name] = base[alias.name]
    return found, known


class LazyObject:
    """Stands for an imported name whose import failed. The error is raised where it is used."""

    def __init__(self, name: str, cause: ImportError) -> None:
        self.__name__, self._cause = name, cause

    def __getattr__(self, name: str) -> LazyObject:
        if name.startswith("__"):
            raise AttributeError(name)
        return LazyObject(f"{self.__name__}.{name}", self._cause)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise the error of the import."""
        raise ConfigError(
            f"the config uses '{self.__name__}', which cannot be imported: {self._cause}"
        ) from self._cause

    def __deepcopy__(self, memo: dict[int, Any]) -> LazyObject:
        return self

    def __repr__(self) -> str:
        return f"<the name {self.__name__}, which cannot be imported>"


class _Unbraced(ast.NodeTransformer):
    """Replaces `{{_base_.x}}`, which Python parses as a set in a set, with a call that reads the value of the base."""

    def visit_Set(self, node: ast.Set) -> ast.AST:  # ast requires this name
        inner = node.elts[0]
        if len(node.elts) == 1 and isinstance(inner, ast.Set) and len(inner.elts) == 1:
            root = found = inner.elts[0]
            while isinstance(root, (ast.Attribute, ast.Subscript)):
                root = root.value
            if isinstance(root, ast.Name) and root.id == "_base_":
                arguments = [found, ast.Constant(ast.unparse(found)), ast.Constant(node.lineno)]
                return ast.copy_location(ast.Call(ast.Name(READ, ast.Load()), arguments, []), node)
        return self.generic_visit(node)


@dataclass
class _ValuesRead:
    """Remembers which values of the base were read as `{{_base_.x}}`.

    MMEngine fills them in at the end of the file. Here they are read at once, so that a config can compute with them.
    Both are the same as long as a value is not replaced afterwards.
    """

    base: ConfigDict
    read: list[tuple[Any, str, int]] = field(default_factory=list)

    def __call__(self, value: Any, expression: str, line: int) -> Any:
        self.read.append((value, expression, line))
        return value

    def refuse_changes(self, where: str) -> None:
        """Refuse the statement at `where` if it replaced or deleted a value that was read."""
        for value, expression, line in self.read:
            try:
                changed = base_value(self.base, expression.removeprefix("_base_."), where) != value
            except ConfigKeyError:
                changed = True
            if changed:
                raise ConfigError(
                    f"{where}: {expression} is changed here, but {{{{{expression}}}}} on line {line} has already read "
                    f"it; move the change above line {line}"
                )
