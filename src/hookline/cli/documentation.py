"""What a hook says about itself, out of its docstring and signature: the text of `hookline hooks` and of the docs."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass
from typing import Any

from hookline.config.signature import Parameter, signature_of
from hookline.plan.hook import Priority
from hookline.plan.points import POINTS, SCOPES
from hookline.plan.registry import DEFAULT_HOOKS, HOOKS

SECTIONS = re.compile(r"^(Example|YAML|Args):\n((?:[ \t]+.*(?:\n|\Z)|[ \t]*\n)+)", re.MULTILINE)

HEAD = """\
# The built-in hooks

This page is made from the code by `make docs`. `hookline hooks NAME` shows the same in the terminal. Every example runs
as it is; `toy_runner` makes a small run on toy data. The YAML is a part of a config file.

"""


@dataclass(frozen=True)
class Documentation:
    """One hook: what its docstring says, part by part, and what its class does."""

    name: str
    #: The first sentence.
    summary: str
    #: What it does and what to mind, its cost last.
    text: str
    #: Python that runs as it is, and the excerpt of a config.
    example: str
    yaml: str
    parameters: tuple[Parameter, ...]
    #: The types of the parameters, in words.
    kinds: tuple[str, ...]
    points: tuple[str, ...]
    priority: str
    role: str
    runs_after: tuple[str, ...]
    runs_before: tuple[str, ...]


def read(name: str) -> Documentation:
    """What is known about the hook that is registered under a name."""
    hook: Any = HOOKS.get(name)
    whole = inspect.getdoc(hook) or "It has no documentation."
    parts = {section[1]: inspect.cleandoc("\n" + section[2]) for section in SECTIONS.finditer(whole)}
    text = SECTIONS.sub("", whole).strip()
    parameters = tuple(signature_of(hook).parameters.values())
    return Documentation(
        name=name,
        summary=summary(text),
        text=re.sub(r"\n{3,}", "\n\n", text),
        example=parts.get("Example", ""),
        yaml=parts.get("YAML") or _yaml(name, parameters),
        parameters=parameters,
        kinds=tuple(_kind(hook, parameter.name) for parameter in parameters),
        points=tuple(point for point in (*POINTS, *SCOPES) if callable(getattr(hook, point, None))),
        priority=Priority.label(Priority.parse(getattr(hook, "priority", "NORMAL"))),
        role=getattr(hook, "role", "actor"),
        runs_after=_names(getattr(hook, "runs_after", ())),
        runs_before=_names(getattr(hook, "runs_before", ())),
    )


def summary(text: str) -> str:
    """The first sentence of a documentation, in one line, without its full stop."""
    return " ".join(text.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def _names(others: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(other if isinstance(other, str) else other.__name__ for other in others)


def _yaml(name: str, parameters: tuple[Parameter, ...]) -> str:
    """How a config names a hook that does not say so itself."""
    shown = [p for p in parameters if p.required or isinstance(p.default, (bool, int, float, str))][:2]
    given = [f"{p.name}: {'...' if p.required else json.dumps(p.default).strip(chr(34))}" for p in shown]
    key = next((key for key, default in DEFAULT_HOOKS.items() if default == name), None)
    if key is not None:
        return f"default_hooks: {{{key}: {{{', '.join(given)}}}}}"
    return f"custom_hooks: [{{{', '.join([f'type: {name}', *given])}}}]"


def as_text(name: str) -> str:
    """Everything about one hook, for the terminal."""
    hook = read(name)
    lines = [f"{name}  priority {hook.priority}, {hook.role}, from {HOOKS.origin(name)}", "", hook.text, ""]
    if hook.parameters:
        lines.append("Parameters")
        for parameter, kind in zip(hook.parameters, hook.kinds, strict=True):
            lines.append(f"  {parameter.name}: {kind}, {_default(parameter)}")
            if parameter.doc:
                lines.append(f"      {parameter.doc}")
        lines.append("")
    lines += ["Points", f"  {', '.join(hook.points) or 'none'}", ""]
    for statement, others in (("runs_after", hook.runs_after), ("runs_before", hook.runs_before)):
        if others:
            lines += [f"{statement}: {', '.join(others)}", ""]
    for title, code in (("Example", hook.example), ("In YAML", hook.yaml)):
        if code:
            lines += [title, *(f"  {line}".rstrip() for line in code.splitlines()), ""]
    return "\n".join(lines).rstrip()


def page() -> str:
    """The page of the docs about all hooks that hookline brings."""
    hooks = [read(name) for name in HOOKS if HOOKS.origin(name) == "hookline"]
    rows = [f"| [{hook.name}](#{hook.name.lower()}) | {hook.priority} | {hook.summary} |" for hook in hooks]
    table = ["| hook | priority | what it does |", "| --- | --- | --- |", *rows]
    return HEAD + "\n".join(table) + "\n" + "".join(_section(hook) for hook in hooks)


def _section(hook: Documentation) -> str:
    lines = ["", f"## {hook.name}", "", hook.text, ""]
    if hook.parameters:
        lines += ["| parameter | type | default | what it is |", "| --- | --- | --- | --- |"]
        for parameter, kind in zip(hook.parameters, hook.kinds, strict=True):
            default = "required" if parameter.required else f"`{parameter.default!r}`"
            cells = (f"`{parameter.name}`", f"`{kind}`", default, parameter.doc)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    order = [f"priority {hook.priority}", hook.role]
    order += [f"runs after {', '.join(hook.runs_after)}"] * bool(hook.runs_after)
    order += [f"runs before {', '.join(hook.runs_before)}"] * bool(hook.runs_before)
    lines += [f"Points: {', '.join(f'`{point}`' for point in hook.points)}; {', '.join(order)}.", ""]
    for language, code in (("python", hook.example), ("yaml", hook.yaml)):
        lines += [f"```{language}", code, "```", ""]
    return "\n".join(lines)


def stub() -> str:
    """Return the text of `hooks/__init__.pyi`, by which editors and type checkers know the built-in hooks."""
    places = sorted(place.partition(":")[::2] for place in HOOKS.builtin.values())
    lines = [f"from {module} import {name} as {name}" for module, name in places]
    return "\n".join(["# Made by `make docs` from the files of this folder.", *lines, ""])


def _kind(hook: Any, name: str) -> str:
    """The type of a parameter as its author wrote it, in plainer words."""
    annotation = inspect.signature(hook).parameters[name].annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"Literal\[([^\]]*)\]", lambda found: found[1].replace('"', "'").replace(", ", " | "), text)
    return re.sub(r"(list|dict|tuple)\[Any\]", r"\1", re.sub(r"Callable\[.*?\](?!\])", "function", text)).replace(
        "type[Any]", "class"
    )


def _default(parameter: Parameter) -> str:
    return "required" if parameter.required else f"default {parameter.default!r}"
