"""The documentation of hooks from their docstrings and signatures, for `hookline hooks` and the docs."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass
from typing import Any

from hookline.config.signature import Parameter, signature_of
from hookline.config.slots import HOOK_KEYS
from hookline.plan.hook import Priority
from hookline.plan.points import POINTS, SCOPES
from hookline.plan.registry import DEFAULT_HOOKS, HOOKS

SECTIONS = re.compile(r"^(Example|YAML|Args):\n((?:[ \t]+.*(?:\n|\Z)|[ \t]*\n)+)", re.MULTILINE)

HEAD = """\
# The built-in hooks

`make docs` generates this page from the code. `hookline hooks NAME` shows the same text, and the points of the hook, in
the terminal. Every example runs; `toy_runner` creates a small run on toy data. In a config, every hook also takes
`priority`, `on_error`, `ranks` and `budget`.

"""


@dataclass(frozen=True)
class Documentation:
    """The documentation of one hook: the parts of its docstring, and facts about its class."""

    name: str
    #: The first sentence.
    summary: str
    #: The description without the Example, YAML and Args sections.
    text: str
    #: Python code that runs without changes.
    example: str
    #: Part of a config file.
    yaml: str
    parameters: tuple[Parameter, ...]
    #: The types of the parameters, in readable form.
    kinds: tuple[str, ...]
    points: tuple[str, ...]
    priority: str
    role: str
    runs_after: tuple[str, ...]
    runs_before: tuple[str, ...]


def read(name: str) -> Documentation:
    """Return the documentation of the hook that is registered under a name."""
    hook: Any = HOOKS.get(name)
    whole = inspect.getdoc(hook) or "This hook has no documentation."
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
    """Return the first sentence of a text in one line, without its period."""
    return " ".join(text.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def _names(others: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(other if isinstance(other, str) else other.__name__ for other in others)


def _yaml(name: str, parameters: tuple[Parameter, ...]) -> str:
    """Return a YAML example for a hook whose docstring has none."""
    shown = [p for p in parameters if p.required or isinstance(p.default, (bool, int, float, str))][:2]
    options = [f"{p.name}: {'...' if p.required else json.dumps(p.default).strip(chr(34))}" for p in shown]
    key = next((key for key, default in DEFAULT_HOOKS.items() if default == name), None)
    if key is not None:
        return f"default_hooks: {{{key}: {{{', '.join(options)}}}}}"
    return f"custom_hooks: [{{{', '.join([f'type: {name}', *options])}}}]"


def as_text(name: str) -> str:
    """Return the full documentation of one hook for the terminal."""
    hook = read(name)
    lines = [f"{name}  priority {hook.priority}, {hook.role}, from {HOOKS.origin(name)}", "", hook.text, ""]
    if hook.parameters:
        lines.append("Parameters")
        for parameter, kind in zip(hook.parameters, hook.kinds, strict=True):
            lines.append(f"  {parameter.name}: {kind}, {_default(parameter)}")
            if parameter.doc:
                lines.append(f"      {parameter.doc}")
        lines.append("")
    lines += ["Every hook also takes, in a config", f"  {', '.join(HOOK_KEYS)}", ""]
    lines += ["Points", f"  {', '.join(hook.points) or 'none'}", ""]
    for statement, others in (("runs_after", hook.runs_after), ("runs_before", hook.runs_before)):
        if others:
            lines += [f"{statement}: {', '.join(others)}", ""]
    for title, code in (("Example", hook.example), ("In YAML", hook.yaml)):
        if code:
            lines += [title, *(f"  {line}".rstrip() for line in code.splitlines()), ""]
    return "\n".join(lines).rstrip()


def page() -> str:
    """Return the docs page about all built-in hooks."""
    hooks = [read(name) for name in HOOKS if HOOKS.origin(name) == "hookline"]
    rows = [f"| [{hook.name}](#{hook.name.lower()}) | {hook.summary} |" for hook in hooks]
    table = ["| hook | what it does |", "| --- | --- |", *rows]
    return HEAD + "\n".join(table) + "\n" + "".join(_section(hook) for hook in hooks)


def _section(hook: Documentation) -> str:
    lines = ["", f"## {hook.name}", "", hook.text, ""]
    if hook.parameters:
        lines += ["| parameter | meaning |", "| --- | --- |"]
        for parameter, kind in zip(hook.parameters, hook.kinds, strict=True):
            default = "" if parameter.required else f" = {parameter.default!r}"
            cells = (f"`{parameter.name}: {kind}{default}`", parameter.doc)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    order = [f"Priority {hook.priority}", hook.role]
    order += [f"runs after {', '.join(hook.runs_after)}"] * bool(hook.runs_after)
    order += [f"runs before {', '.join(hook.runs_before)}"] * bool(hook.runs_before)
    lines += [f"{', '.join(order)}.", ""]
    for language, code in (("python", hook.example), ("yaml", hook.yaml)):
        lines += [f"```{language}", code, "```", ""]
    return "\n".join(lines)


def stub() -> str:
    """Return the text of `hooks/__init__.pyi`, so that editors and type checkers know the built-in hooks."""
    places = sorted(place.partition(":")[::2] for place in HOOKS.builtin.values())
    lines = [f"from {module} import {name} as {name}" for module, name in places]
    return "\n".join(["# Generated by `make docs` from the files in this folder.", *lines, ""])


def _kind(hook: Any, name: str) -> str:
    """Return the type of a parameter as written in the code, in simplified form."""
    annotation = inspect.signature(hook).parameters[name].annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"Literal\[([^\]]*)\]", lambda literal: literal[1].replace('"', "'").replace(", ", " | "), text)
    return re.sub(r"(list|dict|tuple)\[Any\]", r"\1", re.sub(r"Callable\[.*?\](?!\])", "function", text)).replace(
        "type[Any]", "class"
    )


def _default(parameter: Parameter) -> str:
    return "required" if parameter.required else f"default {parameter.default!r}"
