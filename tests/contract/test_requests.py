"""Check that hooks and commands only make requests and never set attributes of the runner or of another hook."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import hookline

SOURCE = Path(hookline.__file__).parent
FILES = sorted([*(SOURCE / "hooks").glob("*.py"), *(SOURCE / "cli").glob("*.py")])
#: The one documented exception: a hook may replace the batch.
ALLOWED = {"runner.data_batch"}
#: Variable names for a runner, and variable names for another hook.
RUNNERS = ("runner", "self.runner", "self.trainer", "trainer", "first", "second")
HOOKS = ("hook", "entry.hook", "other")


def targets_of(tree: ast.AST) -> list[str]:
    """Return the attributes that a file assigns to, deletes, or sets with `setattr`, as text."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.Delete)):
            found += [ast.unparse(part) for target in node.targets for part in _flat(target)]
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            found += [ast.unparse(part) for part in _flat(node.target)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr"):
            found.append(f"{ast.unparse(node.args[0])}.{ast.unparse(node.args[1])}")
        elif isinstance(node, (ast.For, ast.With)):
            items = [node.target] if isinstance(node, ast.For) else [item.optional_vars for item in node.items]
            found += [ast.unparse(part) for item in items if item is not None for part in _flat(item)]
    return found


def _flat(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return [part for each in target.elts for part in _flat(each)]
    return [target] if isinstance(target, ast.Attribute) else []


def is_foreign(target: str) -> bool:
    return any(target.startswith(f"{owner}.") for owner in (*RUNNERS, *HOOKS)) and target not in ALLOWED


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_hooks_and_commands_set_no_attribute_of_the_runner_or_of_another_hook(path: Path) -> None:
    assert [target for target in targets_of(ast.parse(path.read_bytes())) if is_foreign(target)] == []


@pytest.mark.parametrize(
    ("line", "target"),
    [
        ("runner.exit_code = 4", "runner.exit_code"),
        ("runner.position.iter += 1", "runner.position.iter"),
        ("a, runner.ends_window = 1, True", "runner.ends_window"),
        ("self.runner.waiting = None", "self.runner.waiting"),
        ("entry.hook.out_dir = None", "entry.hook.out_dir"),
        ("setattr(runner, 'quiet', True)", "runner.'quiet'"),
        ("del runner.model", "runner.model"),
        ("with context as runner.terminal: pass", "runner.terminal"),
    ],
)
def test_every_way_to_set_an_attribute_is_detected(line: str, target: str) -> None:
    assert [each for each in targets_of(ast.parse(line)) if is_foreign(each)] == [target]
    assert not is_foreign("runner.data_batch")
    assert not is_foreign("self.best")
