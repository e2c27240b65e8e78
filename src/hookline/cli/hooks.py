"""`hookline hooks`: what there is, and what one of them does."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hookline.errors import HooklineError
from hookline.points import POINTS, SCOPES
from hookline.registry import DEFAULT_HOOKS, HOOKS

EXAMPLES = """\b
Examples:
  hookline hooks                   all hooks, also those of installed packages
  hookline hooks CheckpointHook    what one does, its parameters, its points, an example
"""


def add_to(app: typer.Typer) -> None:
    """Make it a command."""
    app.command("hooks", epilog=EXAMPLES)(hooks)


def hooks(name: Annotated[str, typer.Argument(metavar="[NAME]", help="One hook, in full.")] = "") -> None:
    """List the hooks that a config can name, or show one of them in full."""
    print(describe(name) if name else listing())


def listing() -> str:
    """A line a hook: name, priority, what it does, where it comes from."""
    rows = []
    for name in HOOKS:
        try:
            hook = HOOKS.get(name)
        except HooklineError as error:  # a plugin that is broken must not hide the others
            rows.append((name, "", f"cannot be loaded: {error}", ""))
            continue
        origin = HOOKS.origin(name)
        rows.append((name, _priority(hook), summary(hook), "" if origin == "hookline" else f"  [{origin}]"))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(
        f"{name:{widths[0]}}  {priority:{widths[1]}}  {text}{origin}" for name, priority, text, origin in rows
    )


def summary(hook: Any) -> str:
    """The first sentence of a hook's documentation."""
    text = " ".join((inspect.getdoc(hook) or "").split("\n\n")[0].split())
    return text.partition(". ")[0].rstrip(".")


def _priority(hook: Any) -> str:
    from hookline.hook import Priority

    return Priority.label(Priority.parse(getattr(hook, "priority", "NORMAL")))


def describe(name: str) -> str:
    """Everything about one hook: documentation, parameters, points, order, where it is defined."""
    from hookline.config.signature import signature_of

    hook = HOOKS.get(name)
    lines = [f"{name}  priority {_priority(hook)}, {getattr(hook, 'role', 'actor')}, from {HOOKS.origin(name)}", ""]
    documentation = inspect.getdoc(hook) or "It has no documentation."
    lines += [documentation.partition("\nArgs:")[0].strip(), ""]
    parameters = signature_of(hook).parameters
    if parameters:
        lines.append("Parameters")
        for parameter in parameters.values():
            default = "required" if parameter.required else f"default {parameter.default!r}"
            lines.append(f"  {parameter.name}: {inspect.formatannotation(parameter.hint)}, {default}")
            if parameter.doc:
                lines.append(f"      {parameter.doc}")
        lines.append("")
    points = [point for point in (*POINTS, *SCOPES) if callable(getattr(hook, point, None))]
    lines += ["Points", f"  {', '.join(points) or 'none'}", ""]
    for statement in ("runs_after", "runs_before"):
        others = [other if isinstance(other, str) else other.__name__ for other in getattr(hook, statement, ())]
        if others:
            lines += [f"{statement}: {', '.join(others)}", ""]
    key = next((key for key, default in DEFAULT_HOOKS.items() if default == name), None)
    example = _example(parameters)
    own = f"{{type: {name}{', ' * bool(example)}{example}}}"
    lines += ["In YAML", f"  default_hooks: {{{key}: {{{example}}}}}" if key else f"  custom_hooks: [{own}]"]
    return "\n".join(lines)


def _example(parameters: Mapping[str, Any]) -> str:
    shown = [p for p in parameters.values() if p.required or isinstance(p.default, (bool, int, float, str))][:2]
    return ", ".join(f"{p.name}: {'...' if p.required else json.dumps(p.default).strip(chr(34))}" for p in shown)
