"""The whole public surface, name by name with parameters, so that a change of it is seen in a diff.

`python -m tests.test_public_surface` writes it to `public_surface.txt` beside this file.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hookline.hooks
from hookline import Runner
from hookline.testing import toy_runner

FILE = Path(__file__).with_name("public_surface.txt")

#: The modules that users may import from.
MODULES = (
    *("hookline", "hookline.hooks", "hookline.data", "hookline.testing", "hookline.errors", "hookline.writers"),
    *("hookline.metrics", "hookline.schedules", "hookline.steps", "hookline.images", "hookline.averaging"),
    *("hookline.runs", "hookline.config", "hookline.integrations.own_loop"),
)
#: Classes whose methods users call or override.
OPEN = ("Runner", "TrainLoop", "EvalLoop", "Optim", "Hook", "MessageHub", "Writer", "Run", "Session")


def surface() -> Iterator[str]:
    """A line for every public name and, for the main classes, for every public method and property."""
    for name in MODULES:
        module = importlib.import_module(name)
        for public in sorted(names_of(module)):
            value = getattr(module, public)
            yield f"{name}.{public}{parameters_of(value)}"
            if inspect.isclass(value) and public in OPEN and name == value_home(public):
                yield from sorted(members_of(f"{name}.{public}", value))


def names_of(module: Any) -> list[str]:
    if hasattr(module, "__all__"):
        return [each for each in module.__all__ if not each.startswith("__")]
    own = [each for each, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return [each for each in own if not each.startswith("_")]


def value_home(public: str) -> str:
    return {"Run": "hookline.runs", "Session": "hookline.integrations.own_loop"}.get(public, "hookline")


def members_of(prefix: str, cls: type) -> Iterator[str]:
    """Members that the class, or a base of hookline's own, defines."""
    for name in {name: None for base in cls.__mro__ if base.__module__.startswith("hookline.") for name in vars(base)}:
        if name.startswith("_"):
            continue
        value = inspect.getattr_static(cls, name)
        if isinstance(value, property) or hasattr(value, "attrname"):
            yield f"{prefix}.{name}: property"
        elif callable(value) or isinstance(value, (staticmethod, classmethod)):
            yield f"{prefix}.{name}{parameters_of(getattr(cls, name))}"
        else:
            yield f"{prefix}.{name} = {value!r}"


def parameters_of(value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return f": {', '.join(value.__members__)}"
    if not callable(value):
        return f": {type(value).__name__}"
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty, default=shown(parameter.default))
        for parameter in signature.parameters.values()
    ]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def shown(default: Any) -> Any:
    """A default that looks the same in every process."""
    return f"<{default.__name__}>" if inspect.isfunction(default) else default


def test_the_public_surface_is_the_one_that_was_agreed_on() -> None:
    found = "\n".join([*surface(), ""])
    assert found == FILE.read_text(encoding="utf-8"), (
        "the public surface has changed: run `python -m tests.test_public_surface`, look at the diff, and write what "
        "users have to know into CHANGELOG.md"
    )


def test_a_runner_has_its_public_members_and_nothing_else() -> None:
    runner = toy_runner()
    runner.train()
    public = {line.split(".")[2] for line in members_of("hookline.Runner", Runner)}
    assert {name for name in dir(runner) if not name.startswith("_")} == {
        re.split(r"[(: ]", name)[0] for name in public
    }


HOOKS_FOLDER = Path(hookline.hooks.__file__).parent


@pytest.mark.parametrize("file", sorted(HOOKS_FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_built_in_hooks_use_only_public_members_of_a_runner(file: Path) -> None:
    used = {
        node.attr
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and ((isinstance(node.value, ast.Name) and node.value.id == "runner") or _is_own_runner(node.value))
    }
    assert used <= set(dir(Runner)), "a user who copies this hook would write against private names"
    assert not [name for name in used if name.startswith("_")]


def _is_own_runner(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "runner" and isinstance(node.value, ast.Name)


if __name__ == "__main__":
    FILE.write_text("\n".join([*surface(), ""]), encoding="utf-8")
